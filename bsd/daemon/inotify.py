"""Watches on Linux: watchdog's inotify reader, one thread for all directories."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from bsd.daemon.watches import WatchListener

# Not opened, read or closed (our own reading would wake us), nor attributes (nor would chmod).
_NAMES = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
)
_FILES = Mask(_NAMES | InotifyConstants.IN_MODIFY)


class InotifyWatches:
    """See `bsd.daemon.watches.Watches`. The reader calls the three methods `on_…`."""

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
        mask = _FILES if files else _NAMES
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
