"""Watch for changes of sessions and settings. An event is only a hint; the scan decides (scan.py).

One watchdog `Observer` watches `agents/` and every source recursively, and the root for `agents/`
itself. If the system has no more watches, watchdog omits directories without an error, so the
existing watches are counted in `/proc/self/fdinfo`. For a directory without a watch only the scan
detects changes, and `health` reports it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.utils import BaseThread

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.core.sources import Source
from bsd.daemon.directories import Directories, Trouble, WatchProblem, find_directories, no_access
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="watcher")
_watchdog_log = logging.getLogger("watchdog.observers")

# Interval at which all directories are listed (some milliseconds); a loop sleeps no longer.
CHECK_SECONDS = LONGEST_SLEEP_SECONDS
# Pause after a listing, since the directories of an agent appear one after the other.
_GATHER_SECONDS = 0.25
# Pause between two readings of a database, which its program may write to all the time.
_DATABASE_SECONDS = 2.0
# Interval of attempts to watch directories for which the system had no more watches.
RETRY_SECONDS = 600.0

# Event filters. Without them, bsd's own reads would cause events, and a burst of events displaces
# others from the kernel's queue.
_NAMES: list[type[FileSystemEvent]] = [FileMovedEvent, FileCreatedEvent, FileDeletedEvent]
_DIRECTORIES: list[type[FileSystemEvent]] = [DirCreatedEvent, DirMovedEvent, DirDeletedEvent]
_ALL: list[type[FileSystemEvent]] = [FileModifiedEvent, *_NAMES, *_DIRECTORIES]


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """The state of the watches at the last listing.

    Attributes:
        at: the time of the listing, in seconds of the caller's clock.
        dirs: directories that should be watched.
        watched: those of `dirs` that are watched.
        scan_only: further directories on file systems without events.
    """

    at: float = 0.0
    dirs: int = 0
    watched: int = 0
    scan_only: int = 0
    problems: tuple[WatchProblem, ...] = ()


_Identity = tuple[int, int]  # device and inode


class _Top(NamedTuple):
    """A directory for which the observer has its own watch."""

    recursive: bool
    events: list[type[FileSystemEvent]]
    identity: _Identity


class Watcher:
    """Keeps the watches up to date. Only one thread may call `step` and `close`.

    Args:
        hint: called with a session that had an event.
        rescan: called with a reason when events may be missing.
        wake: called when `step` should be called soon.
        settings_changed: called when config.json may have changed.
        pauses_changed: called when the file of the pauses may have changed.
        scan_only: returns why a directory on a device causes no events (a network file system), or
            None.

    The callbacks run on the observer's thread or on the watcher's own thread, and must not block.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        hint: Callable[[SessionName], None],
        rescan: Callable[[str], None],
        wake: Callable[[], None],
        settings_changed: Callable[[], None] = lambda: None,
        pauses_changed: Callable[[], None] = lambda: None,
        scan_only: Callable[[Path, int], str | None] = lambda _path, _device: None,
    ) -> None:
        self._layout = layout
        self._hint = hint
        self._rescan = rescan
        self._wake = wake
        self._settings_changed = settings_changed
        self._pauses_changed = pauses_changed
        self._scan_only = scan_only
        self._observer: BaseObserver | None = None
        self._threads: set[BaseThread] = set()  # the observer's threads, without those of watches
        self._handler = _EventHandler(self._handle)
        self._overflow = _OverflowHandler(self._lose_events)
        self._watches: dict[str, tuple[_Top, ObservedWatch]] = {}
        self._agents: dict[str, tuple[tuple[str, AgentProgram], ...]] = {}  # directory → agents
        self._archives: dict[str, Source] = {}  # directory of archived sessions → source
        self._outer: frozenset[str] = frozenset()
        # File of a database or its log → agent; and what is known of the sessions in it.
        self._databases: dict[str, tuple[str, SessionDatabase]] = {}
        self._in_databases: dict[str, Mapping[str, os.stat_result]] = {}
        self._written: set[str] = set()  # agents whose database was written to
        self._next_read = 0.0
        self._settings = str(layout.config_file)
        self._pauses = str(layout.pauses_file)
        self._unwatched: frozenset[str] = frozenset()  # directories without a watch at last listing
        self._retry_at = 0.0
        self._error: OSError | None = None  # why the observer could not watch a directory
        self._failure: str | None = None  # error of the event handler since the last listing
        self._changed = threading.Event()
        self._looking = False  # directories are being listed
        self._next_look = self._gathered = 0.0
        self.health = WatchHealth()

    # --- the watcher's own thread ---

    def step(self, now: float) -> float:
        """Update the watches if a directory changed or it is time; return the next step's time."""
        if now >= (self._gathered if self._changed.is_set() else self._next_look):
            self._changed.clear()
            self.rearm(now)
            self._gathered, self._next_look = now + _GATHER_SECONDS, now + CHECK_SECONDS
        again = self._gathered if self._changed.is_set() else self._next_look
        if self._written and now >= self._next_read:
            self._read_databases()
            self._next_read = now + _DATABASE_SECONDS
        return min(again, self._next_read) if self._written else again

    def _read_databases(self) -> None:
        """Give a hint for each session that changed in the databases that were written to."""
        for agent, database in set(self._databases.values()):
            if agent not in self._written:
                continue
            self._written.discard(agent)
            with suppress(BsdError):  # the scan reports it
                before, now = self._in_databases.get(agent, {}), database.sessions()
                for session in now.keys() | before.keys():
                    if before.get(session) != now.get(session):
                        self._hint(SessionName(agent, session))
                self._in_databases[agent] = now

    def rearm(self, now: float) -> WatchHealth:
        """Set watches on exactly the directories that should have one; raises no error."""
        self._looking = True
        found = find_directories(self._layout)
        new = self._learn(found)
        self._looking = False
        places = {str(path): place for path in found.all() if (place := _identity(path))}
        wanted = {
            path: place
            for path, place in places.items()
            if self._scan_only(Path(path), place[0]) is None
        }
        tops = self._tops(found, wanted)
        scheduled = self._schedule(tops)
        missing = self._missing(wanted)
        again = [path for path in missing if path in self._unwatched and os.access(path, os.R_OK)]
        if not missing:
            self._retry_at = now
        elif again and now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            for top in {top for path in again if (top := self._top_of(path))}:
                self._unschedule(top)
            scheduled |= self._schedule(tops)
            missing = self._missing(wanted)
        if scheduled or new:
            # Files that were written there before the watch existed have caused no event.
            self._rescan("directories are newly watched")
        # watchdog may be about to watch these directories; for the others it has failed.
        coming = [
            path
            for path in missing
            if path not in self._unwatched and self._top_of(path) not in {None, *scheduled}
        ]
        if coming:
            self._changed.set()  # check again soon
        self._unwatched = frozenset(missing)
        problems = list(found.problems)
        if missing:
            is_settled = len(coming) < len(missing)
            problems.append(self._why_unwatched(missing, len(wanted), is_settled=is_settled))
        if self._failure is not None:
            problems.append(_handler_failed(self._failure))
            self._failure = None
        self.health = WatchHealth(
            at=now,
            dirs=len(wanted),
            watched=len(wanted) - len(missing),
            scan_only=len(places) - len(wanted),
            problems=tuple(problems),
        )
        return self.health

    def close(self) -> None:
        """Stop watching."""
        observer, self._observer = self._observer, None
        self._watches.clear()
        if observer is not None:
            _watchdog_log.removeHandler(self._overflow)
            # Stop the thread that reads first: after that, ending a watch cannot fail.
            for thread in (*(self._threads - {observer}), observer):
                with suppress(KeyError):  # see `_unschedule`
                    thread.stop()
                    thread.join()

    def _learn(self, found: Directories) -> bool:
        """Record the agents of each directory; return True if a directory is new."""
        before = self._agents
        self._agents = {}
        for path, agents in found.sessions.items():
            known = before.get(str(path), ())
            if tuple(agent for agent, _ in known) != agents:
                known = tuple(_programs(self._layout, agents))
            self._agents[str(path)] = known
        new = not (before.keys() >= self._agents.keys())
        self._archives = {str(path): source for path, source in found.archived_in.items()}
        self._outer = frozenset(map(str, found.outer))
        self._databases = {
            f"{os.path.realpath(database.path)}{ending}": (agent, database)
            for agent, database in found.databases.items()
            for ending in ("", "-wal")
        }
        for agent, database in found.databases.items():
            if agent not in self._in_databases:
                with suppress(BsdError):  # the scan reports it
                    self._in_databases[agent] = database.sessions()
        return new

    def _tops(self, found: Directories, wanted: dict[str, _Identity]) -> dict[str, _Top]:
        """Return the directories that need their own watch; the others are below a tree."""
        trees = [str(tree) for tree in found.trees if str(tree) in wanted]
        tops = {}
        for path, place in wanted.items():
            if not any(path.startswith(f"{tree}/") for tree in trees):
                has_files = path in trees or path in self._agents or path in self._archives
                tops[path] = _Top(path in trees, _ALL if has_files else _DIRECTORIES, place)
        own = os.path.dirname(self._settings)
        identity = _identity(own)
        if identity and self._scan_only(Path(own), identity[0]) is None:
            # bsd writes to its own files all the time. It replaces config.json and the file of the
            # pauses, so events about names are enough.
            tops[own] = _Top(recursive=False, events=_NAMES, identity=identity)
        return tops

    def _schedule(self, tops: dict[str, _Top]) -> set[str]:
        """Make the observer watch exactly `tops`; return the paths that are newly watched."""
        self._error = None
        try:
            observer = self._open()
        except OSError as error:
            self._error = error
            return set()
        alive = {emitter.watch for emitter in observer.emitters if emitter.is_alive()}
        for path, (top, watch) in list(self._watches.items()):
            if tops.get(path) != top or watch not in alive:
                self._unschedule(path)
        new = set()
        for path, top in tops.items():
            if path not in self._watches:
                try:
                    watch = observer.schedule(
                        self._handler, path, recursive=top.recursive, event_filter=top.events
                    )
                except OSError as error:
                    self._error = error
                else:
                    self._watches[path] = top, watch
                    new.add(path)
        return new

    def _open(self) -> BaseObserver:
        """Return the observer; if its threads have ended, start a new one. Raises OSError."""
        # The thread that reads events ends if watchdog has mixed up its watches, see `_unschedule`.
        if self._observer is not None and not all(each.is_alive() for each in self._threads):
            _log.warning("Watching had stopped and starts again")
            self.close()
        if self._observer is None:
            # watchdog registers a new directory twice if its parent is new as well.
            warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
            before = _watchdog_threads()
            observer = Observer()
            observer.name = "bsd-watchdog"
            observer.start()
            self._threads = _watchdog_threads() - before
            _watchdog_log.addHandler(self._overflow)
            self._observer = observer
        return self._observer

    def _unschedule(self, path: str) -> None:
        _, watch = self._watches.pop(path)
        if self._observer is not None:
            # If a directory is moved out of a tree, watchdog keeps its watch under the old name. If
            # another directory then gets that name and is deleted, ending the first watch fails.
            with suppress(KeyError):
                self._observer.unschedule(watch)

    def _missing(self, wanted: dict[str, _Identity]) -> list[str]:
        """Return the directories without a watch."""
        installed = watched_inodes()
        return [
            path
            for path, place in wanted.items()
            if self._top_of(path) is None or (installed is not None and place[1] not in installed)
        ]

    def _top_of(self, path: str) -> str | None:
        """Return the directory whose watch covers `path`."""
        if path in self._watches:
            return path
        trees = (tree for tree, (top, _) in self._watches.items() if top.recursive)
        return next((tree for tree in trees if path.startswith(f"{tree}/")), None)

    def _why_unwatched(self, missing: list[str], total: int, *, is_settled: bool) -> WatchProblem:
        code = self._error.errno if self._error else None
        if code in {errno.EMFILE, errno.ENFILE}:
            return _instance_limit()
        closed = next((path for path in missing if not os.access(path, os.R_OK)), None)
        if closed is not None and code != errno.ENOSPC:
            return no_access(Path(closed), PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        if is_settled or code == errno.ENOSPC:
            return _watch_limit(len(missing), total)
        return WatchProblem(
            Trouble.UNWATCHED,
            f"{len(missing)} of {total} directories are not watched yet, {missing[0]} for one",
            "wait a moment; they will be watched soon",
        )

    # --- on the observer's thread, which an exception would end ---

    def _handle(self, event: FileSystemEvent) -> None:
        try:
            for path in (event.src_path, event.dest_path):
                if database := self._databases.get(os.fsdecode(path)):
                    self._written.add(database[0])
                    self._wake()
                elif path:
                    self._follow(os.fsdecode(path), is_directory=event.is_directory)
        except Exception as error:  # noqa: BLE001 - the thread must survive errors in callbacks
            self._failure = f"{os.fsdecode(event.src_path)}: {error!r}"
            _log.error("A file event could not be handled", what=self._failure, exc_info=error)
            with suppress(Exception):  # if this fails, the next regular scan finds the change
                self._rescan("a file event could not be handled")

    def _follow(self, path: str, *, is_directory: bool) -> None:
        directory, name = os.path.split(path)
        if path == self._settings:
            self._settings_changed()
        elif path == self._pauses:
            self._pauses_changed()
        elif is_directory:
            inner = path in self._agents or path in self._archives
            if self._looking or inner or path in self._outer or directory in self._outer:
                self.look_soon()
        elif directory in self._outer and os.path.islink(path):  # it may lead to an agent
            self.look_soon()
        elif source := self._archives.get(directory):
            if agent := source.agent_of(name):
                self._hint(SessionName(agent, name.removesuffix(ENDING)))
        else:
            for agent, program in self._agents.get(directory, ()):
                if program.is_session_file(name):
                    self._hint(SessionName(agent, name.removesuffix(ENDING)))

    def look_soon(self) -> None:
        """Request a listing of the directories soon. May be called from any thread."""
        if not self._changed.is_set():
            self._changed.set()
            self._wake()

    def _lose_events(self) -> None:
        _log.warning("File events were lost", why=_OVERFLOW)
        self._rescan(_OVERFLOW)


class _EventHandler(FileSystemEventHandler):
    """Passes all events to `handle`."""

    def __init__(self, handle: Callable[[FileSystemEvent], None]) -> None:
        self._handle = handle

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._handle(event)


_OVERFLOW = "the kernel's queue of events overflowed"


class _OverflowHandler(logging.Handler):
    """Calls `lost` when watchdog logs that events were lost; the log is its only report."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        if "events were lost" in record.getMessage():
            self._lost()


def _programs(layout: Layout, agents: Iterable[str]) -> Iterator[tuple[str, AgentProgram]]:
    for agent in agents:
        with suppress(BsdError):  # its directory has just become a link
            yield agent, program_of(layout, agent)


def _watchdog_threads() -> set[BaseThread]:
    return {each for each in threading.enumerate() if isinstance(each, BaseThread)}


def _identity(path: str | Path) -> _Identity | None:
    """Return device and inode; None if the directory does not exist or cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def watched_inodes() -> set[int] | None:
    """Return the inodes that this process watches; None if the system does not list them."""
    try:
        descriptors = os.listdir("/proc/self/fdinfo")
    except OSError:
        return None
    inodes: set[int] = set()
    for descriptor in descriptors:
        with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", "rb") as lines:
            # `inotify wd:3 ino:9e7e sdev:800013 mask:800afce …`
            inodes.update(
                int(line.split()[2].removeprefix(b"ino:"), 16)
                for line in lines
                if line.startswith(b"inotify wd:")
            )
    return inodes


def inotify_limit(name: str) -> int | None:
    """Read a limit such as `max_user_watches`; None: the system has no such limit."""
    try:
        return int(Path("/proc/sys/fs/inotify", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _watch_limit(missing: int, total: int) -> WatchProblem:
    limit = inotify_limit("max_user_watches") or total
    # All programs of a user share the limit, so bsd's own number is not enough.
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
        "no directory is watched, all are only scanned: no further inotify instance (or file) can"
        " be opened",
        f"sudo sysctl fs.inotify.max_user_instances={2 * limit}, or raise ulimit -n",
    )


def _handler_failed(what: str) -> WatchProblem:
    return WatchProblem(
        Trouble.HANDLER,
        f"an event could not be handled: {what}",
        "no action is needed, since a scan follows; please report this with the log",
    )
