"""Events of the running daemon, and the fields of its answers.

Times are ISO 8601 (UTC), sizes are bytes. This module reads no transcript, and the time for an
answer does not depend on the number of sessions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.core.formatting import iso_utc

_MOST_WAITING = 1000  # events of one subscription; beyond this the oldest are dropped


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `type` is `session`, `job`, `config` or `state`."""

    type: str
    at: float  # epoch seconds
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"type": self.type, "at": iso_utc(self.at), **self.data}


class Subscription:
    """The events for one listener, in order. Thread-safe."""

    def __init__(self, wake: Callable[[], None], end: Callable[[Subscription], None]) -> None:
        self._wake = wake
        self._end = end
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._closed = False
        self._lost = 0

    def take(self) -> Event | None:
        """Remove and return the next event, or None."""
        with self._lock:
            return self._events.popleft() if self._events else None

    def take_lost(self) -> int:
        """Return the number of events that were dropped since the last call."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    @property
    def closed(self) -> bool:
        """True if no more events will come; waiting events can still be taken."""
        return self._closed

    def close(self) -> None:
        """End the subscription, and wake the listener."""
        self._end(self)
        self._closed = True
        self._wake()

    def put(self, event: Event) -> None:
        with self._lock:
            first = not self._events
            self._lost += len(self._events) == _MOST_WAITING
            self._events.append(event)
        if first:
            self._wake()


class Events:
    """Delivers each event to all subscriptions. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[Subscription] = []

    def subscribe(self, wake: Callable[[], None] = lambda: None) -> Subscription:
        """Subscribe to all further events.

        Args:
            wake: called on the publishing thread when an event comes while none is waiting, and at
                the end of the subscription. It must neither block nor raise.
        """
        subscription = Subscription(wake, self._forget)
        with self._lock:
            self._listeners.append(subscription)
        return subscription

    @property
    def has_listeners(self) -> bool:
        """True if there is a subscription."""
        return bool(self._listeners)

    def publish(self, type: str, /, **data: Any) -> None:
        """Deliver an event to all subscriptions; `data` must be serializable as JSON."""
        with self._lock:
            listeners = list(self._listeners)
        if listeners:
            event = Event(type, self._clock(), data)
            for listener in listeners:
                listener.put(event)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()

    def _forget(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._listeners:
                self._listeners.remove(subscription)


EntryInfo = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the daemon. This answer needs no API key."""

    # `degraded`: there is a problem (for example, a source cannot be served), or a loop is late.
    status: Literal["ok", "degraded", "starting", "stopping"]
    version: str
    pid: int
    uptime_seconds: float
    late: Annotated[list[str], Field(description="Threads whose heartbeat is late")]
    problems: list[str]
    not_understood: Annotated[
        list[str],
        Field(
            description="Programs whose new sessions bsd does not understand, and leaves alone; the"
            " daemon is well all the same"
        ),
    ]


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The status of the daemon.

    Sizes are bytes, times ISO 8601; totals count since the start of the daemon.
    """

    schema_name: ClassVar[str] = "Status"

    state: str
    pid: int
    version: str
    root: str
    page: Annotated[
        str | None, Field(description="Address of the page; null: the API does not listen on TCP")
    ]
    started_at: str
    uptime_seconds: float
    enabled: bool
    readonly: bool
    auto_refresh_ms: int
    roots: Annotated[
        list[EntryInfo], Field(description="path, level (strong, weak, none), filesystem, why")
    ]
    watcher: Annotated[EntryInfo, Field(description="directories, watched, scan_only, problems")]
    queue: Annotated[
        EntryInfo,
        Field(
            description="debouncing, waiting, ready, working, gathering, refused, retried, parked, "
            "cache_warm (sessions that wait for their prompt cache to get cold)"
        ),
    ]
    prompt_cache: Annotated[
        EntryInfo,
        Field(
            description="The sessions that wait for their prompt cache to get cold: sessions "
            "(their number), tokens_ready, tokens_rewritten (if all were cut now), cost_now (of "
            "these, in US dollars; null: unknown), unpriced (sessions that cost_now lacks, because "
            "the prices of their models are unknown), next_cold"
        ),
    ]
    workers: Annotated[list[EntryInfo], Field(description="name, session, since")]
    children: Annotated[
        list[EntryInfo], Field(description="Processes that work on sessions: pid, since, session")
    ]
    totals: Annotated[
        EntryInfo,
        Field(
            description="commits, entries, values, bytes_saved, tokens_saved, tokens_rewritten (of "
            "warm prompt caches, by cuts), bytes_written, busy, failed, restores_failed (entries "
            "whose values did not come back, in all processes), children_started, children_died, "
            "workers_replaced, crashes, sessions, give_ups (by reason), cuts (by `cut_reason`)"
        ),
    ]
    left_alone: Annotated[EntryInfo, Field(description="count, reasons")]
    unknown_forms: Annotated[
        list[EntryInfo],
        Field(
            description="Sessions in a form that bsd does not know, by source: source, title (of "
            "the program), sessions (their number), newest, reason (of the newest), since, text"
        ),
    ]
    unrecognised: Annotated[
        list[EntryInfo],
        Field(
            description="Sources whose files grew during the last day without a session that bsd "
            "recognises: source, title, files (their number), newest (path), text"
        ),
    ]
    exclude: Annotated[
        list[str], Field(description="Patterns of agents and sessions that bsd never reads")
    ]
    pauses: Annotated[
        list[EntryInfo], Field(description="name, since, until (null: until a user ends it)")
    ]
    sessions: Annotated[
        list[EntryInfo], Field(description="The last result of each session, with its time `at`")
    ]
    orphans: Annotated[EntryInfo, Field(description="count, bytes")]
    sources: Annotated[
        list[EntryInfo], Field(description="name, kind, path, served_by, left_alone, problem")
    ]
    unserved: Annotated[
        list[EntryInfo],
        Field(
            description="Agents with sessions on this machine that bsd does not process, until"
            " `bsd status` has reported them: kind, title, directory, hint"
        ),
    ]
    not_copied: Annotated[
        list[EntryInfo],
        Field(description="Sessions that are deleted soon and could not be copied: session, why"),
    ]
    room: Annotated[
        EntryInfo, Field(description="free, size: free and total bytes of the root's disk")
    ]
    notices: Annotated[
        list[EntryInfo],
        Field(
            description="Problems that need a person: id, about, text, try, dismissed (on the page)"
        ),
    ]
    clock: Annotated[
        str | None,
        Field(description="Why the clock is in doubt, so that no file is deleted by age"),
    ]
    disk: Annotated[
        EntryInfo,
        Field(
            description="Disk use of bsd: store, archive, index, history, orphans, "
            "databases, others, log; copies (of whole sessions), trash, in_flight (replaced "
            "versions). saved: bytes that extraction saved in existing sessions; uncounted: "
            "sessions that saved does not include yet; "
            "kept: all but copies, trash and in_flight; total: all; net: saved less kept; "
            "net_with_copies: saved less total; net_when_packed: net once the store is packed"
        ),
    ]
    search: Annotated[
        EntryInfo, Field(description="complete, waiting, problem: state of the search index")
    ]
    config: Annotated[EntryInfo, Field(description="path, problem")]
    # `held`, also in `trash` and `archive`: why no file is deleted (the clock is in doubt).
    retention: Annotated[
        EntryInfo,
        Field(
            description="keep, next_run, files, bytes (of the next run), next_expiry, held, trash "
            "(all_sessions, all_bytes: all sessions in the trash); archive: "
            "these, and on, most_bytes, used_bytes (by packs and copies; null: there is no limit), "
            "nearly_full (90 % of most_bytes or more), packs, lines, content (bytes of these), "
            "kept (bytes that they take), ratio, oldest, newest; copies (of sessions): keep, "
            "sessions, gone, content, kept, ratio, oldest"
        ),
    ]
    fleet: Annotated[
        EntryInfo | None,
        Field(
            description="Only if this host shares something: host, bucket, database (whether there "
            "is one), behind_files, behind_bytes, behind_seconds (null: nothing waits), files and "
            "bytes (in the bucket), generation (of the manifest), errors, last_success, "
            "last_error; senders: name, last_success, last_error, failures (since then), errors"
        ),
        OMIT_EMPTY,
    ] = None


@dataclass(frozen=True, slots=True)
class LastResult:
    """The result of the last run of a job."""

    ok: bool
    error: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """A job; if `schedule` is null, it runs only on request."""

    name: str
    schedule: str | None
    enabled: bool
    running: bool
    last_run: str | None
    last_result: LastResult | None
    next_run: str | None


@dataclass(frozen=True, slots=True)
class JobList:
    """All jobs, by name."""

    jobs: list[Job]
