"""Reads sessions into the search index: what was appended, or else a session as a whole.

Sessions are read in slices, so that others can use the index in between. A session is open only
while its bytes are read: our own open file would stand in the way of a commit (DESIGN §4). A line
whose text is as it was keeps its row in the index, also if the text lies in the store or an archive
by now.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from bsd.store.extracted import Missing, SessionStore
from bsd.store.markers import stored_line
from bsd.store.search import SearchIndex
from bsd.store.search_file import Known, KnownState, Statistics, Words
from bsd.transcripts.agents.entry import Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.values import words_of
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import Line, Transcript, parse_entry, parse_kept

_log = structlog.stdlib.get_logger(module="search")

SLICE_BYTES = 1 << 20
_GUARDED = 4096  # bytes before the offset that must be what they were


@dataclass(frozen=True, slots=True)
class Due:
    """A session that is not as it was; `size` is about how many bytes are to be read."""

    name: SessionName
    size: int = 0


@dataclass(frozen=True, slots=True)
class ReadOn:
    """What became of a session that was to be read: there may be more of it, or less."""

    due: Due
    more: bool = False
    dropped: bool = False  # words that are to be swept out of the index


# --- what is new ---


class Unread(NamedTuple):
    """What `find_due` has found."""

    due: list[Due]
    gone: list[str]  # names of sessions that are no more
    up_to: str | None = None  # the agent that it came to; None: it looked at all


def find_due(
    layout: Layout,
    index: SearchIndex,
    agent: str | None = None,
    *,
    after: str | None = None,
    most: float = float("inf"),
    going_on: Callable[[], object] = lambda: None,
) -> Unread:
    """Which sessions are not as they were, and which are gone; by stat alone.

    It ends behind the agent with which there are `most` of them, and goes on `after` that agent
    another time. `going_on` is called for each agent, and may raise to end it.
    """
    order = partial(catalog.agent_order, layout)
    due: list[Due] = []
    gone: list[str] = []
    up_to = None
    left = {agent} if agent else index.agents()
    if after is not None:
        left = {one for one in left if order(one) > order(after)}
    stats = catalog.with_stats(layout, agent, after=after)
    # One agent after the other: of very many sessions only a few are in memory at once.
    for name, found in groupby(stats, lambda one: one[0].agent):
        going_on()
        left.discard(name)
        known = index.seen(name)
        due += _due_among(found, known)
        gone += known
        if len(due) >= most:
            up_to = name
            left = {one for one in left if order(one) < order(name)}
            break
    gone += [name for each in left for name in index.seen(each)]
    return _keep_copied(layout, index, agent, Unread(due, gone, up_to))


def _keep_copied(layout: Layout, index: SearchIndex, agent: str | None, found: Unread) -> Unread:
    """What the archive keeps of sessions that are gone stays, or is read."""
    due, gone, up_to = found
    if up_to is not None and not gone:
        return found
    there = {str(each.name) for each in due}
    try:
        copies = deleted_sessions(layout, agent)
    except BsdError as problem:  # then nobody knows which are, and other sessions can be searched
        _log.warning("Sessions that are gone cannot be searched", problem=problem.message)
        return Unread(due, [], up_to)
    kept = {str(copy.name): copy for copy in reversed(copies) if is_deleted(layout, copy.name)}
    known = index.known_among(kept)
    for text, copy in kept.items():
        was = known.get(text)
        if up_to is not None or text in there:
            continue
        if was is None or _file(was) != _state(copy.transcript.was):
            due.append(Due(copy.name, size=copy.transcript.was.size))
    return Unread(due, [name for name in gone if name not in kept], up_to)


def _due_among(
    found: Iterable[tuple[SessionName, os.stat_result]], known: dict[str, KnownState]
) -> Iterator[Due]:
    """Those that are not as they were; what is found is taken out of `known`."""
    for name, stat in found:
        was = known.pop(str(name), None)
        now = _state(Identity.of(stat))
        if was is None or was[:5] != now:
            appended = was is not None and was[:2] == now[:2]
            begin = was.offset if was and appended else 0
            yield Due(name, size=max(0, stat.st_size - begin))


def has_changed(layout: Layout, was: Known) -> bool:
    """Whether a session's file is not as it was read; raises NotFound, Forbidden, OSError."""
    with open_or_snapshot(layout, SessionName.parse(was.name)) as source:
        return _file(was) != _state(source.identity)


# --- reading ---


def read_some(
    layout: Layout, index: SearchIndex, wanted: Iterable[Due], seconds: float, budget: int
) -> list[ReadOn]:
    """Give sessions their turn, one slice each, for so many seconds.

    All in one transaction: each makes a piece of the index that is merged again and again. But
    what cannot be read shall take nothing else with it: then each has one of its own. Raises
    sqlite3.Error.
    """
    end, done = time.monotonic() + seconds, []
    dues = list(wanted)
    try:
        with index.change():
            for due in dues:
                done.append(ReadOn(due, more=read_slice(layout, index, due, budget)))
                if time.monotonic() >= end:
                    break
    except (sqlite3.Error, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - told of once it is known of which session
        return [_turn(layout, index, due, budget) for due in dues[: len(done) + 1]]
    return done


def _turn(layout: Layout, index: SearchIndex, due: Due, budget: int) -> ReadOn:
    try:
        with index.change():
            return ReadOn(due, more=read_slice(layout, index, due, budget))
    except NotFound:
        with index.change():
            return ReadOn(due, dropped=index.forget(str(due.name)) > 0)
    except Busy:  # it was shortened meanwhile: somebody will tell of that
        return ReadOn(due)
    except BsdError as problem:
        _log.warning("A session cannot be searched", session=str(due.name), problem=problem.message)
    except (sqlite3.Error, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - whatever stands in one session, the others go on
        _log.exception("A session cannot be searched", session=str(due.name))
    return ReadOn(due)


def read_slice(layout: Layout, index: SearchIndex, due: Due, budget: int = SLICE_BYTES) -> bool:
    """Read on in a session, about `budget` bytes; whether there is more to read.

    The caller opened a `change()`. Raises NotFound, Busy, Forbidden.
    """
    name = due.name
    was = index.known_as(name)
    with open_or_snapshot(layout, name) as source:
        if was is not None and _file(was) == _state(source.identity):
            return False
        part = _Part(layout, name, source, was, budget)
    part.write(index)  # the file is closed: this may take its time
    return not part.complete


class _Part:
    """The lines of one slice, read and not yet indexed.

    A last line without its end counts, but is read again.
    """

    def __init__(
        self, layout: Layout, name: SessionName, source: Transcript, was: Known | None, budget: int
    ) -> None:
        self._layout, self._name = layout, name
        self._identity = source.identity
        self._offset, self._first, self._settled = 0, 0, Statistics()
        self._away = False
        if was is not None and _was_appended_to(was, source):
            self._offset, self._first = was.offset, was.lines
            self._settled = Statistics.loads(was.settled or was.statistics)
            self._away = was.away
        self._is_new = was is None
        self._lines: list[Line] = []
        self._unfinished: Line | None = None
        self.complete = False
        self._fmt = format_of(source, program_of(layout, name.agent))
        self._read(source, budget)
        self._end = self._offset + sum(len(line.raw) for line in self._lines)
        self._guard = _guard(source, self._end)

    def _read(self, source: Transcript, budget: int) -> None:
        taken = 0
        for line in source.lines(self._offset, self._first):
            if not line.raw.endswith(b"\n"):
                self._unfinished = line
                break
            if self._lines and taken >= budget:
                return
            self._lines.append(line)
            taken += len(line.raw)
        self.complete = True

    def write(self, index: SearchIndex) -> None:
        """Put the words into the index, and note how far the session is known now."""
        name, statistics = self._name, Statistics()
        if self._is_new:
            index.note(self._known((0, 0), Statistics()))
        lines = self._first + len(self._lines)
        words = self._words(statistics)
        index.set_lines(name, words, self._first, None if self.complete else lines)
        index.note(self._known((self._end, lines), statistics))

    def _words(self, statistics: Statistics) -> Iterator[Words]:
        """The words of one line after the other, which are counted as they are given."""
        reader = LineReader(self._layout, self._name, self._fmt)
        for line in self._lines:
            yield reader.words(line, self._settled)
        statistics.add(self._settled)
        if self._unfinished is not None:
            yield reader.words(self._unfinished, statistics)
        self._away |= reader.asked_store

    def _known(self, place: tuple[int, int], statistics: Statistics) -> Known:
        dev, ino, size, mtime, ctime = _state(self._identity)
        offset, lines = place
        if not self.complete:  # as a file that ended there, and was appended to
            size, mtime, ctime = offset, 0, 0
        return Known(
            name=str(self._name),
            agent=self._name.agent,
            store=self._layout.store_name(self._name),
            dev=dev,
            ino=ino,
            size=size,
            mtime=mtime,
            ctime=ctime,
            offset=offset,
            lines=lines,
            guard=self._guard,
            settled=self._settled.dumps() if self._unfinished is not None else "",
            statistics=statistics.dumps(),
            away=self._away,
        )


class LineReader:
    """Reads the index text of the lines of one session."""

    def __init__(self, layout: Layout, name: SessionName, fmt: TranscriptFormat | None) -> None:
        self._store = SessionStore(layout, name)
        self._fmt = fmt
        self.asked_store = False  # some text had left its line

    def words(self, line: Line, statistics: Statistics) -> Words:
        """The words of a line, which is counted in `statistics`."""
        fmt, entry = self._fmt, parse_entry(line.raw)
        if entry is None:
            return Words(line.index, line.offset, "")
        if fmt is None:  # no dialect tells which text is a user's
            statistics.take(entry, None, None, len(line.raw))
            return Words(line.index, line.offset, "")
        info, title = fmt.info(entry), fmt.title(entry)
        statistics.take(entry, info, title, len(line.raw))
        text = words_of(entry, fmt, info, title, partial(self._original, line.raw, fmt))
        return Words(line.index, line.offset, text)

    def read(self, line: Line) -> LineText | None:
        """Return the text of a line; None if it has none for the index."""
        fmt, entry = self._fmt, parse_entry(line.raw)
        if entry is None or fmt is None:
            return None
        info, title = fmt.info(entry), fmt.title(entry)
        inline = words_of(entry, fmt, info, title)
        text = words_of(entry, fmt, info, title, partial(self._original, line.raw, fmt))
        return LineText(line.index, info.id, text, inline)

    def _original(self, raw: bytes, fmt: TranscriptFormat) -> Entry | None:
        """The entry of a line as it was before values left it, from store or archive."""
        entry = parse_entry(raw)
        if entry is None or (marker := Marker.of(entry)) is None:
            return None
        self.asked_store = True
        line = stored_line(raw, entry, marker, fmt, self._store)
        return None if isinstance(line, Missing) else parse_kept(line)


class LineText(NamedTuple):
    """The index text of a line, and the part of it that is still inline."""

    line: int
    entry: str | None
    text: str
    inline: str


# --- is it as it was? ---


def _was_appended_to(was: Known, source: Transcript) -> bool:
    dev, ino, size, *_ = _state(source.identity)
    if (was.dev, was.ino) != (dev, ino) or size <= was.size:
        return False
    return _guard(source, was.offset) == was.guard


def _guard(source: Transcript, offset: int) -> bytes:
    start = max(0, offset - _GUARDED)
    return hashlib.sha256(source.read(start, offset - start)).digest()


def _file(known: Known) -> tuple[int, ...]:
    return known.dev, known.ino, known.size, known.mtime, known.ctime


def _state(identity: Identity) -> tuple[int, ...]:
    """A file's state, in integers that SQLite can hold."""
    numbers = (identity.dev, identity.ino, identity.size, identity.mtime_ns, identity.ctime_ns)
    return tuple(map(signed, numbers))
