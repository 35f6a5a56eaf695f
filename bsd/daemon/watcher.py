"""Notices that a session changed. What it says is a hint; the scan (scan.py) is the truth.

Watched are the root, `agents/`, each agent's directory, and each agent's `sessions/`, and likewise
what leads to agents in sources: so new agents and directories made anew are noticed, and nothing
beside them costs a watch.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.daemon import directories
from bsd.daemon.directories import Directories, Trouble, WatchProblem, no_access
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS
from bsd.daemon.watches import Watches, WatchListener, open_watches
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="watcher")

# How long a look at all directories (some milliseconds) is good for: as long as a loop sleeps.
CHECK_SECONDS = LONGEST_SLEEP_SECONDS
# An agent's directories appear one after the other: look once for all of them.
_GATHER_SECONDS = 0.25


_Which = tuple[int, int]  # device, inode


class _Watched(NamedTuple):
    """A directory to be watched."""

    files: bool  # whether its files' contents matter
    which: _Which | None  # when it was looked at; None: it could not be


_Wanted = dict[Path, _Watched]


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """How well the watcher sees, when it looked last (`at`, in the caller's seconds).

    `dirs` should be watched, `watched` of them are; `scan_only` lie where no events come from.
    """

    at: float = 0.0
    dirs: int = 0
    watched: int = 0
    scan_only: int = 0
    problems: tuple[WatchProblem, ...] = ()


class Watcher(WatchListener):
    """Keeps watches where they should be. `step` and `close` belong to one thread.

    Three are told, on watchdog's thread or the watcher's own, and must not block: `hint` that
    something happened to a session, `rescan` why hints may be missing, `wake` that `step` should
    be called soon. `scan_only` says why no events come from a directory on a device (a network
    file system), or None.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        hint: Callable[[SessionName], None],
        rescan: Callable[[str], None],
        wake: Callable[[], None],
        scan_only: Callable[[Path, int], str | None] = lambda _path, _device: None,
        watching: Callable[[WatchListener], Watches] = open_watches,
    ) -> None:
        self._layout = layout
        self._hint = hint
        self._rescan = rescan
        self._wake = wake
        self._scan_only = scan_only
        self._watching = watching
        self._watches: Watches | None = None
        # sessions directory → agents, and whose they are
        self._agents: dict[str, tuple[tuple[str, AgentProgram], ...]] = {}
        self._program_archive: dict[
            str, Source
        ] = {}  # directory → whose sessions are put away there
        self._outer: frozenset[str] = frozenset()
        self._armed: dict[Path, _Which] = {}  # which directory it was
        self._refusal: WatchProblem | None = None
        self._changed = threading.Event()
        self._failed: str | None = None  # of the handler, since the last look
        self._closed = False
        self._next_look = self._gathered = 0.0
        self.health = WatchHealth()

    # --- the watcher's own thread ---

    def step(self, now: float) -> float:
        """Look after the watches if something changed or it is time; returns when to come again."""
        if now >= (self._gathered if self._changed.is_set() else self._next_look):
            self._changed.clear()
            self.rearm(now)
            self._gathered, self._next_look = now + _GATHER_SECONDS, now + CHECK_SECONDS
        return self._gathered if self._changed.is_set() else self._next_look

    def rearm(self, now: float) -> WatchHealth:
        """Put watches on all directories that should have one, and no others; raises nothing."""
        wanted, found = self._survey()
        self._refusal = None
        watches = self._reopen(len(wanted))
        if watches is not None:
            for path in self._armed.keys() - wanted.keys():
                self._disarm(path, watches)
            added = self._arm_all(wanted, watches)
            if added:
                # What was written there before the watch was, nobody has told of.
                self._rescan(f"{added} directories newly watched")
        health = self._judge(now, wanted, found)
        self._failed = None
        return health

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        if self._watches is not None:
            self._watches.close()
            self._watches = None
        self._armed.clear()

    # --- watchdog's thread: an exception here would end it ---

    def touched(self, directory: str, name: str) -> None:
        self._handle(self._touched, directory, name)

    def gone(self, directory: str) -> None:
        self._handle(self._gone, directory)

    def lost(self, why: str) -> None:
        self._handle(self._lost, why)

    def _handle(self, handler: Callable[..., None], *event: str) -> None:
        try:
            handler(*event)
        except Exception as error:  # noqa: BLE001 - the thread must live, whatever a callback does
            self._survive(error, "/".join(event))

    def _gone(self, directory: str) -> None:
        known = (self._agents, self._program_archive, self._outer)
        if not self._closed and any(directory in each for each in known):
            self._attend()

    def _lost(self, why: str) -> None:
        _log.warning("File events were lost", why=why)
        self._rescan(why)

    def _touched(self, directory: str, name: str) -> None:
        if directory in self._outer:
            self._attend()
        elif source := self._program_archive.get(directory):
            if agent := source.agent_of(name):
                self._hint(SessionName(agent, name.removesuffix(ENDING)))
        else:
            for agent, program in self._agents.get(directory, ()):
                if program.is_session_file(name):
                    self._hint(SessionName(agent, name.removesuffix(ENDING)))

    def _attend(self) -> None:
        if not self._changed.is_set():
            self._changed.set()
            self._wake()

    def _survive(self, error: Exception, what: str) -> None:
        self._failed = f"{what}: {error!r}"
        _log.error("A file event could not be handled", what=what, exc_info=error)
        try:
            self._rescan("a file event could not be handled")
        except Exception as again:  # noqa: BLE001 - then only the next regular scan will do it
            _log.error("No rescan could be asked for", exc_info=again)

    # --- what should be, what is ---

    def _survey(self) -> tuple[_Wanted, Directories]:
        """List directories to watch, the important ones first."""
        found = directories.look(self._layout)
        before = self._agents
        self._agents = {}
        for path, agents in found.sessions.items():
            owned = before.get(str(path), ())
            if tuple(agent for agent, _ in owned) != agents:
                owned = tuple(_owned(self._layout, agents))
            self._agents[str(path)] = owned
        self._program_archive = {str(path): source for path, source in found.archived_in.items()}
        self._outer = frozenset(map(str, found.outer))
        sessions = {**found.sessions, **found.archived_in}
        wanted = {}
        for path in (*found.outer[:2], *sessions, *found.outer[2:]):
            which = _which(path)
            if which is None or self._scan_only(path, which[0]) is None:
                wanted[path] = _Watched(path in sessions, which)
        return wanted, found

    def _missing(self, wanted: _Wanted) -> list[Path]:
        installed = self._watches.installed() if self._watches else set()
        return [
            path
            for path, place in wanted.items()
            if path not in installed or self._armed.get(path) != place.which
        ]

    def _judge(self, now: float, wanted: _Wanted, found: Directories) -> WatchHealth:
        missing = self._missing(wanted)
        problems = list(found.problems)
        if self._watches is not None and not self._watches.alive:
            problems.append(_STOPPED)
        elif missing:
            problems.append(self._refusal or _unwatched(missing[0], len(missing), len(wanted)))
        if self._failed:
            problems.append(_handler_failed(self._failed))
        self.health = WatchHealth(
            at=now,
            dirs=len(wanted),
            watched=len(wanted) - len(missing),
            scan_only=len({*found.sessions, *found.archived_in, *found.outer}) - len(wanted),
            problems=tuple(problems),
        )
        return self.health

    def _reopen(self, wanted: int) -> Watches | None:
        if self._watches is not None and not self._watches.alive:
            _log.warning("Watching had stopped and starts anew")
            self._watches.close()
            self._watches = None
            self._armed.clear()
        if self._watches is None:
            try:
                self._watches = self._watching(self)
            except OSError as error:
                self._refusal = refused(error, self._layout.root, wanted, wanted)
        return self._watches

    def _arm_all(self, wanted: _Wanted, watches: Watches) -> int:
        added = 0
        missing = self._missing(wanted)
        for path in missing:
            self._disarm(path, watches)
            which = _which(path)  # before the watch: if it is another by then, the next look tells
            try:
                watches.add(path, files=wanted[path].files)
            except OSError as error:
                if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                    continue  # it has just gone
                self._refusal = refused(error, path, len(missing) - added, len(wanted))
                if error.errno == errno.ENOSPC:
                    break  # nor would any other be watched
            else:
                added += 1
                if which is not None:
                    self._armed[path] = which
        return added

    def _disarm(self, path: Path, watches: Watches) -> None:
        self._armed.pop(path, None)
        watches.remove(path)


def _owned(layout: Layout, agents: Iterable[str]) -> Iterator[tuple[str, AgentProgram]]:
    for agent in agents:
        with suppress(BsdError):  # its directory has just become a link
            yield agent, program_of(layout, agent)


_STOPPED = WatchProblem(
    Trouble.STOPPED,
    "nothing is watched: the thread that reads events has ended",
    "nothing, it starts again by itself; if this comes back, see the log",
)


def _unwatched(example: Path, missing: int, total: int) -> WatchProblem:
    return WatchProblem(
        Trouble.UNWATCHED,
        f"{missing} of {total} directories are not watched yet, {example} for one",
        "nothing, they will be in a moment",
    )


def _handler_failed(what: str) -> WatchProblem:
    return WatchProblem(
        Trouble.HANDLER,
        f"an event could not be handled: {what}",
        "nothing, the scan has looked instead; please report it with the log",
    )


def _which(path: Path) -> _Which | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refused(error: OSError, directory: Path, missing: int, total: int) -> WatchProblem:
    """Say why a directory cannot be watched; `missing` of `total` are not."""
    if error.errno == errno.ENOSPC:
        return _watch_limit(missing, total)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return _instance_limit()
    return no_access(directory, error)


def inotify_limit(name: str) -> int | None:
    """Read a limit such as `max_user_watches`; None where there is no such thing."""
    try:
        return int(Path("/proc/sys/fs/inotify", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _watch_limit(missing: int, total: int) -> WatchProblem:
    limit = inotify_limit("max_user_watches") or total
    # All programs of a user share the limit, so more than our own number is needed.
    better = max(2 * limit, 2 * total)
    return WatchProblem(
        Trouble.WATCH_LIMIT,
        f"{missing} of {total} directories are not watched, only scanned:"
        f" the limit of {limit} watches is used up",
        f"sudo sysctl fs.inotify.max_user_watches={better}",
    )


def _instance_limit() -> WatchProblem:
    limit = inotify_limit("max_user_instances") or 128
    return WatchProblem(
        Trouble.INSTANCE_LIMIT,
        "nothing is watched, only scanned: no further inotify instance (or file) can be opened",
        f"sudo sysctl fs.inotify.max_user_instances={2 * limit}, or raise ulimit -n",
    )
