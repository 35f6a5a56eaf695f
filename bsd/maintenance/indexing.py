"""Reads sessions into the search index: only the appended lines, or else the whole session.

A session is open only while its bytes are read, because an open file blocks a commit (DESIGN §4).
A huge session is read in several parts, so that memory stays bounded and other processes can use
the index in between. A line whose text is unchanged keeps its row in the index, even if the text
has moved to the store or an archive.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import structlog

from bsd.core.database_file import signed
from bsd.core.errors import BsdError, Busy, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted, open_or_snapshot
from bsd.sessions.session import format_of
from bsd.store.markers import stored_line
from bsd.store.originals import Missing, SessionStore
from bsd.store.search import Known, SearchIndex
from bsd.store.search_rows import IndexedLine
from bsd.store.statistics import Statistics
from bsd.transcripts.agents.entry import Entry, Marker
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.touched import TouchedFile, touched_by
from bsd.transcripts.agents.values import words_of
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import Line, Transcript, parse_entry, parse_kept

_log = structlog.stdlib.get_logger(module="search")

PART_BYTES = 8 << 20  # size of a part; most sessions are smaller
_GUARDED = 4096  # bytes before the offset that must be unchanged
_LATEST_MS = 1 << 53  # limit of plausible times; an entry may hold any number


@dataclass(frozen=True, slots=True)
class Due:
    """A session that changed since it was indexed; `size`: approximate number of bytes to read."""

    name: SessionName
    size: int = 0


@dataclass(frozen=True, slots=True)
class ReadOn:
    """The outcome of reading a session."""

    due: Due
    more: bool = False  # the session is huge, and parts of it are still to be read
    dropped: bool = False  # dead rows are to be swept out of the index


class Unread(NamedTuple):
    """The result of `find_due`."""

    due: list[Due]
    gone: list[str]  # names of sessions that no longer exist
    up_to: str | None = None  # the last agent that was checked; None: all agents were checked


# --- new lines ---


def find_due(
    layout: Layout,
    index: SearchIndex,
    agent: str | None = None,
    *,
    after: str | None = None,
    most: float = float("inf"),
    going_on: Callable[[], object] = lambda: None,
) -> Unread:
    """Find the sessions that have changed since they were indexed, and those that are gone.

    Only the stat of each file is read.

    Args:
        layout: the root.
        index: the search index.
        agent: only sessions of this agent.
        after: only agents that come after this one.
        most: stop after the agent with which the number of found sessions reaches this limit.
        going_on: called for each agent; may raise to end the search.
    """
    order = partial(catalog.agent_order, layout)
    due: list[Due] = []
    gone: list[str] = []
    up_to = None
    left = {agent} if agent else index.agents()
    if after is not None:
        left = {each for each in left if order(each) > order(after)}
    stats = catalog.with_stats(layout, agent, after=after)
    # Agent by agent, so that only a part of a large number of sessions is in memory at once.
    for name, found in groupby(stats, lambda each: each[0].agent):
        going_on()
        left.discard(name)
        known = index.files(name)
        due += _due_among(found, known)
        gone += known
        if len(due) >= most:
            up_to = name
            left = {each for each in left if order(each) < order(name)}
            break
    gone += [name for each in left for name in index.files(each)]
    if up_to is not None and not gone:
        return Unread(due, gone, up_to)
    return _with_copies(layout, index, agent, Unread(due, gone, up_to))


def _due_among(
    found: Iterable[tuple[SessionName, os.stat_result]], known: dict[str, tuple[int, ...]]
) -> Iterator[Due]:
    """Yield the sessions that have changed; removes all of `found` from `known`."""
    for name, stat in found:
        before, now = known.pop(str(name), None), file_of(Identity.of(stat))
        if before != now:
            appended = before is not None and before[:2] == now[:2]
            yield Due(name, size=max(0, stat.st_size - (before[2] if before and appended else 0)))


def _with_copies(layout: Layout, index: SearchIndex, agent: str | None, found: Unread) -> Unread:
    """Keep deleted sessions whose copy is in the archive; add those that are to be read."""
    due, gone, up_to = found
    try:
        copies = deleted_sessions(layout, agent)
    except BsdError as problem:  # the list of copies is unknown; other sessions can be searched
        _log.warning("Deleted sessions cannot be searched", problem=problem.message)
        return Unread(due, [], up_to)
    kept = {str(copy.name): copy for copy in reversed(copies) if is_deleted(layout, copy.name)}
    if up_to is None:
        known = index.known_among(kept)
        there = {str(each.name) for each in due}
        for name, copy in kept.items():
            was = copy.transcript.was
            if name not in there and (name not in known or known[name].file != file_of(was)):
                due.append(Due(copy.name, size=was.size))
    return Unread(due, [name for name in gone if name not in kept], up_to)


def has_changed(layout: Layout, known: Known) -> bool:
    """Return True if a session has changed since it was indexed.

    Raises NotFound, Forbidden, OSError; LeftAlone if the session is excluded.
    """
    name = SessionName.parse(known.name)
    layout.refuse_excluded(name)
    with open_or_snapshot(layout, name) as source:
        return known.file != file_of(source.identity)


def file_of(identity: Identity) -> tuple[int, int, int, int, int]:
    """Return a file's state (device, inode, size, mtime, ctime) as integers of 64 bits."""
    dev, ino = signed(identity.dev), signed(identity.ino)
    return dev, ino, identity.size, signed(identity.mtime_ns), signed(identity.ctime_ns)


# --- reading ---


def read_session(layout: Layout, index: SearchIndex, name: SessionName) -> None:
    """Read the new lines of a session; raises NotFound, Busy, Forbidden."""
    more = True
    while more:
        with index.change():
            more = read_part(layout, index, Due(name))


def read_some(
    layout: Layout, index: SearchIndex, wanted: Iterable[Due], seconds: float
) -> list[ReadOn]:
    """Read sessions for `seconds`, but at least one; a huge session only in part.

    All reads share a transaction, because each transaction adds a segment to the index that must be
    merged repeatedly. If a session cannot be read, the sessions so far are read again, each in a
    transaction of its own. Raises sqlite3.Error.
    """
    end, done = time.monotonic() + seconds, []
    dues = list(wanted)
    try:
        with index.change():
            for due in dues:
                done.append(ReadOn(due, more=read_part(layout, index, due)))
                if time.monotonic() >= end:
                    break
    except (sqlite3.Error, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - `_read_alone` logs it with the session's name
        return [_read_alone(layout, index, due) for due in dues[: len(done) + 1]]
    return done


def _read_alone(layout: Layout, index: SearchIndex, due: Due) -> ReadOn:
    try:
        with index.change():
            return ReadOn(due, more=read_part(layout, index, due))
    except NotFound:
        with index.change():
            return ReadOn(due, dropped=index.forget(str(due.name)) > 0)
    except Busy:  # the session was shortened meanwhile and will be due again
        return ReadOn(due)
    except BsdError as problem:
        _log.warning("A session cannot be searched", session=str(due.name), problem=problem.message)
    except (sqlite3.Error, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - an error in one session does not stop the others
        _log.exception("A session cannot be searched", session=str(due.name))
    return ReadOn(due)


def read_part(layout: Layout, index: SearchIndex, due: Due) -> bool:
    """Read a session, or the next part of a huge session, into the index.

    The caller has opened a `change()`.

    Returns:
        True if more is left to read.

    Raises:
        NotFound: the session does not exist or has been excluded meanwhile.
        Busy, Forbidden.
    """
    name = due.name
    if layout.excluded(name):
        raise NotFound(f"session {name} is excluded")
    known = index.known_as(name)
    with open_or_snapshot(layout, name) as source:
        file = file_of(source.identity)
        if known is not None and known.file == file:
            return False
        fmt = format_of(source, program_of(layout, name.agent))
        appended = known is not None and _was_appended_to(known, source)
        offset, first = (known.offset, known.lines) if known and appended else (0, 0)
        lines, more = take_lines(source, offset, first)
        end = offset + sum(len(line.raw) for line in lines)
        # A last line without a newline may be continued: then the whole session is read next time.
        ended = not lines or lines[-1].raw.endswith(b"\n")
        guard = guard_before(source, end) if ended else b""
    # The file is closed, so the rest blocks no commit.
    statistics = Statistics.loads(known.statistics) if known and appended else Statistics()
    reader = LineReader(layout, name, fmt)
    dev, ino, size, mtime, ctime = file if not more else (*file[:2], end, 0, 0)
    row = Known(
        name=str(name),
        agent=name.agent,
        store=layout.store_name(name),
        dev=dev,
        ino=ino,
        size=size,  # after a part: as if the file ended there
        mtime=mtime,
        ctime=ctime,
        offset=end,
        lines=first + len(lines),
        guard=guard,
        statistics="",
        away=False,
    )
    if known is None:
        index.note(row)  # the rows of its lines need its number
    indexed = (reader.words(line, statistics) for line in lines)
    index.set_lines(name, indexed, first, row.lines if more else None)
    away = reader.asked_store or (known is not None and appended and known.away)
    index.note(replace(row, statistics=statistics.dumps(), away=away))
    return more


def take_lines(source: Transcript, offset: int, first: int) -> tuple[list[Line], bool]:
    """Return the lines of a part, and whether more lines follow."""
    lines: list[Line] = []
    size = 0
    for line in source.lines(offset, first):
        if size >= PART_BYTES:
            return lines, True
        lines.append(line)
        size += len(line.raw)
    return lines, False


def _was_appended_to(known: Known, source: Transcript) -> bool:
    same_file = (known.dev, known.ino) == file_of(source.identity)[:2]
    if not same_file or source.size <= known.offset or not known.guard:
        return False
    return guard_before(source, known.offset) == known.guard


def guard_before(source: Transcript, offset: int) -> bytes:
    """Return a hash of the bytes before an offset, which an append leaves as they are."""
    start = max(0, offset - _GUARDED)
    return hashlib.sha256(source.read(start, offset - start)).digest()


class LineText(NamedTuple):
    """The index text of a line, and the part of it that is still inline."""

    line: int
    entry: str | None
    text: str
    inline: str


class LineReader:
    """Reads the index text of the lines of one session."""

    def __init__(self, layout: Layout, name: SessionName, fmt: TranscriptFormat | None) -> None:
        self._store = SessionStore(layout, name)
        self._fmt = fmt
        self.asked_store = False  # True once a text was read from store or archive

    def words(self, line: Line, statistics: Statistics) -> IndexedLine:
        """Return the row of a line for the index, and count the line in `statistics`."""
        fmt, entry = self._fmt, parse_entry(line.raw)
        if entry is None:
            return IndexedLine(line.index, line.offset, "")
        if fmt is None:  # an unknown format does not show which texts are the user's
            statistics.take(entry, None, None, len(line.raw))
            return IndexedLine(line.index, line.offset, "")
        info, title = fmt.info(entry), fmt.title(entry)
        statistics.directory = statistics.directory or fmt.directory(entry)
        statistics.parent = statistics.parent or fmt.parent_session(entry)
        statistics.take(entry, info, title, len(line.raw))
        original = partial(self._original, line.raw, fmt)
        return IndexedLine(
            number=line.index,
            offset=line.offset,
            text=words_of(entry, fmt, info, title, original),
            role=info.role,
            time=_seconds(info.time_ms),
            touched=_touched(entry, info, original),
        )

    def read(self, line: Line) -> LineText | None:
        """Return the index text of a line; None if the line has no such text."""
        fmt, entry = self._fmt, parse_entry(line.raw)
        if entry is None or fmt is None:
            return None
        info, title = fmt.info(entry), fmt.title(entry)
        inline = words_of(entry, fmt, info, title)
        text = words_of(entry, fmt, info, title, partial(self._original, line.raw, fmt))
        return LineText(line.index, info.id, text, inline)

    def _original(self, raw: bytes, fmt: TranscriptFormat) -> Entry | None:
        """Return the original entry of a line from store or archive; None if it has no marker."""
        entry = parse_entry(raw)
        if entry is None or (marker := Marker.of(entry)) is None:
            return None
        self.asked_store = True
        line = stored_line(raw, entry, marker, fmt, self._store)
        return None if isinstance(line, Missing) else parse_kept(line)


def _touched(
    entry: Entry, info: EntryInfo, original: Callable[[], Entry | None]
) -> tuple[TouchedFile, ...]:
    """Return the files that the calls of an entry name."""
    return tuple(each for call in info.calls for each in touched_by(entry, call, original))


def _seconds(time_ms: float | None) -> int | None:
    """Return the time of an entry in whole epoch seconds; None if it is not plausible."""
    return int(time_ms // 1000) if time_ms is not None and abs(time_ms) < _LATEST_MS else None
