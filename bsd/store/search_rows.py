"""What `search.db` knows of a session: how it was read, and its words."""

from __future__ import annotations

from typing import NamedTuple

from bsd.foundation.immutable import immutable


@immutable
class Known:
    """A session as it was when it was last read; the fields are columns of `sessions`."""

    name: str
    agent: str
    store: str  # name of its store directory
    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    offset: int  # up to here its lines are complete
    lines: int  # so many of them
    guard: bytes  # hash of the last bytes before the offset
    settled: str  # statistics of those lines
    statistics: str  # of all there was
    shelf_ino: int  # of its store directory; 0: none
    shelf_mtime: int


class Seen(NamedTuple):
    """What tells whether a session and its store are as they were; of many sessions, so small."""

    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    shelf_ino: int
    shelf_mtime: int
    offset: int


class Told(NamedTuple):
    """How a session is called and how new it is, by what was counted in it; and of which file."""

    size: int
    mtime: int
    title: str | None
    newest_ms: float | None


@immutable
class Slice:
    """Lines that were read together: in a session that was rewritten most of them are as before."""

    first: int  # number of its first line
    lines: int
    size: int  # bytes
    hash: bytes
    statistics: str  # of these lines


@immutable
class Words:
    """The text of one line, or of what was taken out of it."""

    line: int
    entry: str | None
    text: str
    ref: str | None = None  # of the stored file
