"""Watches on directories, by watchdog: what the watcher needs of the operating system.

On Linux, watchdog's inotify reader is used directly rather than its Observer: an Observer has one
thread for every directory, or else watches everything below one (side directories included) and
hides it when watches run out. The reader is one thread for all, says at once when a watch is
refused or events were lost, and asks the kernel for the wanted kinds of events only. Elsewhere it
is the Observer, one watch for each directory.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
from watchdog.observers import Observer as SystemsObserver
from watchdog.observers.api import BaseObserver, ObservedWatch

if TYPE_CHECKING or sys.platform == "linux":  # elsewhere it cannot be loaded
    from watchdog.observers.inotify_c import (
        CallbackId,
        InotifyConstants,
        InotifyEvent,
        InotifyFD,
        Mask,
        WatchDescriptor,
    )
if sys.platform == "darwin":
    from watchdog.observers.fsevents import FSEventsEmitter, FSEventsObserver

# Without a filter our own reading would make events, and a burst of them loses others.
_WANTED: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]


class WatchListener(Protocol):
    """Who is told. Called on a thread of watchdog, which any exception would end."""

    def touched(self, directory: str, name: str) -> None:
        """Something of this name was written, made, moved or removed in a watched directory."""
        ...

    def gone(self, directory: str) -> None:
        """A watched directory is no longer where it was."""
        ...

    def lost(self, why: str) -> None:
        """Events were lost, nobody knows which."""
        ...


class Watches(Protocol):
    """A set of watched directories, not their subdirectories."""

    @property
    def alive(self) -> bool:
        """Whether events are still being read."""
        ...

    def add(self, directory: Path, *, files: bool) -> None:
        """Watch `directory`, its files' contents too if `files`; raises OSError."""
        ...

    def remove(self, directory: Path) -> None:
        """Watch it no longer; nothing happens if it is not watched."""
        ...

    def installed(self) -> set[Path]:
        """Directories from which events really come."""
        ...

    def close(self) -> None:
        """End all watches and threads."""
        ...


def open_watches(listener: WatchListener) -> Watches:
    """Start watching, in the way this system allows; raises OSError."""
    if sys.platform == "linux":
        return InotifyWatches(listener)
    return ObserverWatches(listener)


class InotifyWatches:
    """Watches by watchdog's inotify reader, which calls the three methods `on_…`."""

    def __init__(self, listener: WatchListener) -> None:
        self._listener = listener
        self._id = CallbackId(id(self))
        self._lock = threading.Lock()
        self._descriptors: dict[Path, WatchDescriptor] = {}
        self._paths: dict[WatchDescriptor, Path] = {}
        self._reader = InotifyFD()
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._reader.is_alive()

    def add(self, directory: Path, *, files: bool) -> None:
        mask = _events(files=files)
        # The lock is held over both, or the reader could tell of an end before we know the start.
        with self._lock:
            descriptor = self._reader.add_callback(os.fsencode(directory), mask, self, self._id)
            if descriptor == -1:
                self._reader.remove_callbacks([(descriptor, self._id)])
                # watchdog 7.1 says nothing when permission is lacking.
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
            self._forget(descriptor)
            self._descriptors[directory] = descriptor
            self._paths[descriptor] = directory

    def remove(self, directory: Path) -> None:
        with self._lock:
            descriptor = self._descriptors.get(directory)
            if descriptor is not None:
                self._forget(descriptor)
                self._reader.remove_callbacks([(descriptor, self._id)])

    def installed(self) -> set[Path]:
        with self._lock:
            return set(self._descriptors) if self.alive else set()

    def close(self) -> None:
        self._reader.stop()
        self._reader.join()

    def on_event(self, event: InotifyEvent) -> None:
        path = self._paths.get(event.wd)
        if path is None:
            return
        if event.name:
            self._listener.touched(str(path), os.fsdecode(event.name))
        elif event.is_move_self or event.is_delete_self:
            # The watch would follow the directory and tell of it under its old name.
            self.remove(path)
            self._listener.gone(str(path))

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        with self._lock:
            path = self._paths.get(wd)
            self._forget(wd)
        if path is not None:
            self._listener.gone(str(path))

    def on_queue_overflow(self) -> None:
        self._listener.lost("the kernel's queue of events ran over")

    def _forget(self, descriptor: WatchDescriptor) -> None:
        path = self._paths.pop(descriptor, None)
        if path is not None and self._descriptors.get(path) == descriptor:
            del self._descriptors[path]


def _events(*, files: bool) -> Mask:
    """What inotify shall tell of a directory."""
    # Not opened, read or closed (our own reading would wake us), nor attributes (nor would chmod).
    names = (
        InotifyConstants.IN_CREATE
        | InotifyConstants.IN_DELETE
        | InotifyConstants.IN_MOVE
        | InotifyConstants.IN_DELETE_SELF
        | InotifyConstants.IN_MOVE_SELF
        | InotifyConstants.IN_ONLYDIR
    )
    return Mask(names | InotifyConstants.IN_MODIFY if files else names)


class ObserverWatches:
    """Watches by a watchdog Observer, which has a thread for each."""

    def __init__(self, listener: WatchListener) -> None:
        self._handler = _Handler(listener)
        self._watches: dict[Path, ObservedWatch] = {}
        self._overflow = _OverflowNoticer(listener.lost)
        _LOG.addHandler(self._overflow)
        try:
            self._observer = _new_observer(listener.lost)
            self._observer.start()
        except BaseException:  # who was not started will not be stopped
            _LOG.removeHandler(self._overflow)
            raise

    @property
    def alive(self) -> bool:
        return self._observer.is_alive()

    def add(self, directory: Path, *, files: bool) -> None:  # noqa: ARG002 - no finer filter
        self.remove(directory)  # a dead emitter would be taken for a living one
        self._watches[directory] = self._observer.schedule(
            self._handler, str(directory), recursive=False, event_filter=_WANTED
        )

    def remove(self, directory: Path) -> None:
        watch = self._watches.pop(directory, None)
        if watch is not None:
            with contextlib.suppress(KeyError):  # the observer has forgotten it by itself
                self._observer.unschedule(watch)

    def installed(self) -> set[Path]:
        if not self.alive:
            return set()
        living = {each.watch for each in self._observer.emitters.copy() if each.is_alive()}
        return {path for path, watch in self._watches.items() if watch in living}

    def close(self) -> None:
        _LOG.removeHandler(self._overflow)
        self._observer.stop()
        self._observer.join()
        self._watches.clear()


class _Handler(FileSystemEventHandler):
    def __init__(self, listener: WatchListener) -> None:
        self._listener = listener

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._tell(event.src_path, event)
        if event.dest_path:
            self._tell(event.dest_path, event)

    def _tell(self, path: bytes | str, event: FileSystemEvent) -> None:
        path = os.fsdecode(path)
        if isinstance(event, (DirDeletedEvent, DirMovedEvent)):
            self._listener.gone(path)
        self._listener.touched(os.path.dirname(path), os.path.basename(path))


_LOG = logging.getLogger("watchdog.observers")


class _OverflowNoticer(logging.Handler):
    """watchdog tells of lost events in its log only."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in str(record.msg):
            self._lost("the system's queue of events ran over")


# FSEvents: must scan subdirectories, dropped by user or kernel, ids wrapped, root changed,
# mounted, unmounted.
_FSEVENTS_LOST = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 | 0x80


def lost_by_fsevents(flags: list[int]) -> bool:
    """Whether FSEvents says with these that it has not told everything."""
    return any(flag & _FSEVENTS_LOST for flag in flags)


def _new_observer(lost: Callable[[str], None]) -> BaseObserver:
    if sys.platform == "darwin":
        # Not tried: there was no Mac. watchdog never looks at these flags itself.
        class Emitter(FSEventsEmitter):
            def events_callback(
                self, paths: list[bytes], inodes: list[int], flags: list[int], ids: list[int]
            ) -> None:
                if lost_by_fsevents(flags):
                    lost("the system has put events together or dropped some")
                super().events_callback(paths, inodes, flags, ids)

        class Observer(FSEventsObserver):
            def __init__(self) -> None:
                BaseObserver.__init__(self, Emitter)

        return Observer()
    # On Linux only who wants to compare the two comes here.
    return SystemsObserver()
