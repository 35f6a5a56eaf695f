"""Events of the running daemon, and the fields of its answers.

Times are ISO 8601 (UTC), sizes bytes. Nothing here reads a transcript, and no answer takes longer
if there are many sessions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bsd.core.formatting import iso_utc

_MOST_WAITING = 1000  # events of one subscription; then it loses the oldest


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `type` is session, job, config or state."""

    type: str
    at: float  # epoch seconds
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"type": self.type, "at": iso_utc(self.at), **self.data}


class Subscription:
    """Events in order for one listener, which may take them in any thread."""

    def __init__(self, wake: Callable[[], None], end: Callable[[Subscription], None]) -> None:
        self._wake = wake
        self._end = end
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._closed = False
        self._lost = 0

    def take(self) -> Event | None:
        """Return the next event if there is one."""
        with self._lock:
            return self._events.popleft() if self._events else None

    def take_lost(self) -> int:
        """Return how many events were dropped since the last call, because too many waited."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    @property
    def closed(self) -> bool:
        """True if no more events will come; those that wait can still be taken."""
        return self._closed

    def close(self) -> None:
        """End it, and wake the listener."""
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
    """Gives every event to every subscription."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[Subscription] = []

    def subscribe(self, wake: Callable[[], None] = lambda: None) -> Subscription:
        """Listen from now on.

        `wake` is called on the thread that publishes when the first event waits to be taken, and at
        the end. It must neither wait nor raise.
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
        """Give an event to all subscriptions; `data` must be ready for JSON."""
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
    """Whether all is well; needs no API key."""

    # It is degraded if there is a problem, a source that cannot be served among them, or a loop is
    # late.
    status: Literal["ok", "degraded", "starting", "stopping"]
    version: str
    pid: int
    uptime_seconds: float
    late: Annotated[list[str], Field(description="Loops that do not answer")]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """Everything at a glance. Sizes are bytes, times ISO 8601; totals count since the start."""

    schema_name: ClassVar[str] = "Status"

    state: str
    pid: int
    version: str
    root: str
    page: Annotated[str | None, Field(description="Its address; null: nothing listens on TCP")]
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
    workers: Annotated[list[EntryInfo], Field(description="name, session, since")]
    children: Annotated[
        list[EntryInfo], Field(description="Processes that work on sessions: pid, since, session")
    ]
    totals: EntryInfo
    left_alone: Annotated[EntryInfo, Field(description="count, reasons")]
    exclude: Annotated[list[str], Field(description="Patterns of what is never looked at")]
    pauses: Annotated[
        list[EntryInfo], Field(description="name, since, until (null: until it is ended)")
    ]
    sessions: Annotated[
        list[EntryInfo], Field(description="The last result of each session, and at")
    ]
    orphans: Annotated[EntryInfo, Field(description="count, bytes")]
    sources: Annotated[
        list[EntryInfo], Field(description="name, kind, path, served_by, left_alone, problem")
    ]
    unserved: Annotated[
        list[EntryInfo],
        Field(
            description="Agents with sessions here that bsd does not look after, until `bsd status`"
            " has told of them: kind, title, directory, hint"
        ),
    ]
    not_copied: Annotated[
        list[EntryInfo],
        Field(description="Sessions that are deleted soon and could not be copied: session, why"),
    ]
    room: Annotated[EntryInfo, Field(description="free, size: of the disk of the root")]
    notices: Annotated[
        list[EntryInfo],
        Field(description="What needs a person: id, about, text, try, dismissed (on the page)"),
    ]
    clock: Annotated[
        str | None, Field(description="Why the clock is not believed, and nothing deleted")
    ]
    disk: Annotated[
        EntryInfo,
        Field(
            description="What bsd takes on disk: store, archive, index, history, orphans, "
            "databases, others, log; copies (of whole sessions), trash, in_flight (replaced "
            "versions). saved: what left the sessions that are there; uncounted: those of which "
            "that is not known yet; "
            "kept: all but copies, trash and in_flight; total: all; net: saved less kept; "
            "net_with_copies: saved less total; net_when_packed: net once the store is packed"
        ),
    ]
    search: Annotated[
        EntryInfo, Field(description="complete, waiting, problem: the index of words")
    ]
    config: Annotated[EntryInfo, Field(description="path, problem")]
    # Of the trash likewise; `held` says why nothing is deleted: the clock is not believed.
    retention: Annotated[
        EntryInfo,
        Field(
            description="keep, next_run, files, bytes (of the next run), next_expiry, held, trash "
            "(all_sessions, all_bytes: of all that lies there); archive: "
            "these, and on, most_bytes, used_bytes (by packs and copies; null: there is no limit), "
            "nearly_full (90 % of most_bytes or more), packs, lines, content (bytes of these), "
            "kept (bytes that they take), ratio, oldest, newest; copies (of sessions): keep, "
            "sessions, gone, content, kept, ratio, oldest"
        ),
    ]


@dataclass(frozen=True, slots=True)
class LastResult:
    """How a job ended last."""

    ok: bool
    error: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """A scheduled job; a schedule of null: it runs only when asked."""

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
