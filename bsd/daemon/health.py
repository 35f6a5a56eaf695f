"""What the watcher knows about itself, in words that a user can act on."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Trouble(StrEnum):
    """Kinds of problems of watching."""

    ROOT_MISSING = "root_missing"
    AGENTS_MISSING = "agents_missing"
    SOURCE_MISSING = "source_missing"
    NO_ACCESS = "no_access"
    OUTSIDE = "outside"  # a link that leaves the root
    WATCH_LIMIT = "watch_limit"
    INSTANCE_LIMIT = "instance_limit"
    UNWATCHED = "unwatched"
    STOPPED = "stopped"  # the thread that reads events has ended
    HANDLER = "handler"  # our own code failed on an event


@dataclass(frozen=True, slots=True)
class WatchProblem:
    """Something that keeps changes from being noticed at once; the scan still finds them."""

    kind: Trouble
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text} (try: {self.remedy})"


@dataclass(frozen=True, slots=True)
class Health:
    """How well the watcher sees, when it looked last (`at`, in the caller's seconds).

    `dirs` should be watched, `watched` of them are; `scan_only` lie where no events come from.
    """

    at: float = 0.0
    dirs: int = 0
    watched: int = 0
    scan_only: int = 0
    problems: tuple[WatchProblem, ...] = ()


def refused(error: OSError, directory: Path, missing: int, total: int) -> WatchProblem:
    """Say why a directory cannot be watched; `missing` of `total` are not."""
    if error.errno == errno.ENOSPC:
        return _watch_limit(missing, total)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return _instance_limit()
    return no_access(directory, error)


def no_access(path: Path, error: OSError) -> WatchProblem:
    """Say that `path` cannot be looked into."""
    return WatchProblem(
        Trouble.NO_ACCESS,
        f"{path} cannot be read: {error.strerror or error}",
        "run bsd as the owner of these files, or mend their permissions",
    )


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
