"""Reads sessions into the search index: only what is new, in slices that keep nobody waiting.

Each slice is a transaction of its own, and the session is open only while its bytes are read: our
own open file would stand in the way of a commit (DESIGN §4).
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

from bsd.agents.dialect import Format
from bsd.agents.entry import entry_id
from bsd.agents.owners import owner_of
from bsd.agents.values import words_at, words_of, words_with
from bsd.care import catalog
from bsd.care.keeping import gone_sessions, is_gone, open_or_copy
from bsd.foundation.database_file import signed
from bsd.foundation.errors import BsdError, Busy, NotFound, os_problem
from bsd.foundation.files import UNCERTAIN_NS
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.session.session import format_of
from bsd.store.archive import SessionArchive, ref_of
from bsd.store.extracted import SessionStore
from bsd.store.index import Record, record_of
from bsd.store.search import SearchIndex
from bsd.store.search_file import Known, KnownState, Slice, Statistics, Words
from bsd.text.change import Identity
from bsd.text.reader import Line, Transcript, is_too_large, parse_entry
from bsd.text.spans import ValuePath, parse_path

_log = get_logger("search")

SLICE_BYTES = 1 << 20
_PIECE = 256 * 1024  # bytes read at once for a hash
_GUARDED = 4096  # bytes before the offset that must be what they were
_NO_SHELF = (0, 0)
_MOST_LINES = 1 << 62  # a name or an index may say anything
_DIGITS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Due:
    """A session that is not as it was; `size` is about how many bytes are to be read."""

    name: SessionName
    shelf: tuple[int, int] = _NO_SHELF  # its store directory, as it will have been read
    size: int = 0
    known: bool = True  # else it is to be looked at first


@dataclass(frozen=True, slots=True)
class ReadOn:
    """What became of a session that was to be read: there may be more of it, or less."""

    due: Due
    more: bool = False
    dropped: bool = False  # words that are still in the files of the index


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
    shelves = _shelves(layout)
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
        due += _due_among(layout, found, known, shelves)
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
        copies = gone_sessions(layout, agent)
    except BsdError as problem:  # then nobody knows which are, and other sessions can be searched
        _log.warning("Sessions that are gone cannot be searched", problem=problem.message)
        return Unread(due, [], up_to)
    kept = {str(copy.name): copy for copy in reversed(copies) if is_gone(layout, copy.name)}
    known = index.known_among(kept)
    for text, copy in kept.items():
        was = known.get(text)
        if up_to is not None or text in there:
            continue
        if was is None or _file(was) != _state(copy.transcript.was):
            due.append(Due(copy.name, size=copy.transcript.was.size))
    return Unread(due, [name for name in gone if name not in kept], up_to)


def _due_among(
    layout: Layout,
    found: Iterable[tuple[SessionName, os.stat_result]],
    known: dict[str, KnownState],
    shelves: dict[str, tuple[int, int]],
) -> Iterator[Due]:
    """Those that are not as they were; what is found is taken out of `known`."""
    for name, stat in found:
        was = known.pop(str(name), None)
        shelf = shelves.get(layout.store_name(name), _NO_SHELF)
        now = _state(Identity.of(stat))
        if was is None or was[:7] != (*now, *shelf):
            appended = was is not None and was.ino == now[1]
            begin = was.offset if was and appended else 0
            yield Due(name, shelf, max(0, stat.st_size - begin))


def due_as_it_is(layout: Layout, name: SessionName) -> Due:
    """One session that may not be as it was."""
    shelf = _NO_SHELF
    with suppress(FileNotFoundError, NotADirectoryError):
        shelf = _shelf(layout.store_dir(name).lstat(), time.time_ns() - UNCERTAIN_NS)
    return Due(name, shelf)


def has_changed(layout: Layout, was: Known) -> bool:
    """Whether a session's file is not as it was read; raises NotFound, Forbidden, OSError."""
    with open_or_copy(layout, SessionName.parse(was.name)) as source:
        return _file(was) != _state(source.identity)


def _shelves(layout: Layout) -> dict[str, tuple[int, int]]:
    """The store directories: inode and mtime by name; an mtime of 0 is looked at again."""
    found = {}
    certain = time.time_ns() - UNCERTAIN_NS
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(layout.extracted) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    found[entry.name] = _shelf(entry.stat(follow_symlinks=False), certain)
    return found


def _shelf(stat: os.stat_result, certain: int) -> tuple[int, int]:
    return signed(stat.st_ino), stat.st_mtime_ns if stat.st_mtime_ns < certain else 0


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
    dues = [one if one.known else due_as_it_is(layout, one.name) for one in wanted]
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
    with open_or_copy(layout, name) as source:
        was = index.known_as(name)
        if was is None or _file(was) != _state(source.identity):
            part = _Part(layout, index, name, source, was)
            part.read(budget)
        else:
            part = None
    if part is not None:  # the file is closed: this may take its time
        was = part.write()
        if not part.complete:
            index.note(was)
            return True
    assert was is not None  # noqa: S101 - known, or just read
    if not _read_store(layout, index, name, budget):
        index.note(was)
        return True
    shelf_ino, shelf_mtime = due.shelf
    index.note(replace(was, shelf_ino=shelf_ino, shelf_mtime=shelf_mtime))
    return False


class _Part:
    """The lines of one slice, read and not yet indexed.

    A last line without its end counts, but is read again: it belongs to no slice.
    """

    def __init__(
        self,
        layout: Layout,
        index: SearchIndex,
        name: SessionName,
        source: Transcript,
        was: Known | None,
    ) -> None:
        self._layout, self._index, self._name = layout, index, name
        self._identity = source.identity
        self._source = source
        self._offset, self._first, self._settled = 0, 0, Statistics()
        self._go_on_with: Slice | None = None
        self._digest = hashlib.sha256()
        self._lines: list[Line] = []
        self._unfinished: Line | None = None
        self.complete = False
        if was is not None and _was_appended_to(was, source):
            self._offset, self._first = was.offset, was.lines
            self._settled = Statistics.loads(was.settled)
            self._go_on_with = index.slice_before(name, was.lines)
        elif was is None:
            index.note(self._known((0, 0), b"", Statistics()))

    def read(self, budget: int) -> None:
        """Pass over what is as before, and read what comes then."""
        source = self._source
        self._fmt = format_of(source, owner_of(self._layout, self._name.agent))
        before = self._index.slices(self._name, self._first)
        while before and self._is_as_before(before[0]):
            same = before.pop(0)
            self._settled.add(Statistics.loads(same.statistics))
            self._offset, self._first = self._offset + same.size, self._first + same.lines
        # Up to where the next one begins: it may be as before in turn.
        stop = next((each.first for each in before if each.first > self._first), None)
        self._read_lines(budget, stop)
        self._guard = _guard(source, self._end)
        last = self._go_on_with
        if last is not None and last.size < SLICE_BYTES // 2:  # or each append had its own
            _hash_into(self._digest, source, self._offset - last.size, last.size)
        else:
            self._go_on_with = None

    def _read_lines(self, budget: int, stop: int | None) -> None:
        taken = 0
        for line in self._source.lines(self._offset, self._first):
            if not line.raw.endswith(b"\n"):
                self._unfinished = line
                break
            if self._lines and (taken >= budget or line.index == stop):
                return
            self._lines.append(line)
            taken += len(line.raw)
        self.complete = True

    def _is_as_before(self, was: Slice) -> bool:
        if was.first != self._first or self._offset + was.size > self._identity.size:
            return False
        return _hash(self._source, self._offset, was.size) == was.hash

    @property
    def _end(self) -> int:
        return self._offset + sum(len(line.raw) for line in self._lines)

    def write(self) -> Known:
        """Put the words into the index; returns how far the session is known now."""
        index, name = self._index, self._name
        read, statistics = Statistics(), Statistics()
        lines = self._first + len(self._lines)
        words = self._words(read, statistics)
        index.set_lines(name, words, self._first, None if self.complete else lines)
        if self._lines:
            index.set_slice(name, self._slice(read))
        if self.complete:
            index.drop_slices(name, lines)
        return self._known((self._end, lines), self._guard, statistics)

    def _words(self, read: Statistics, statistics: Statistics) -> Iterator[Words]:
        """The words of one line after the other, which are counted as they are given."""
        for line in self._lines:
            self._digest.update(line.raw)
            yield _words_of(line, self._fmt, read)
        self._settled.add(read)
        statistics.add(self._settled)
        if self._unfinished is not None:
            yield _words_of(self._unfinished, self._fmt, statistics)

    def _slice(self, read: Statistics) -> Slice:
        first, size = self._first, self._end - self._offset
        if (last := self._go_on_with) is not None:
            first, size = last.first, size + last.size
            read = Statistics.loads(last.statistics).add(read)
        lines = self._first + len(self._lines) - first
        return Slice(first, lines, size, self._digest.digest(), read.dumps())

    def _known(self, place: tuple[int, int], guard: bytes, statistics: Statistics) -> Known:
        dev, ino, size, mtime, ctime = _state(self._identity)
        offset, lines = place
        if not self.complete:  # as a file that ended there, and was appended to
            size, mtime, ctime = offset, 0, 0
        shelf_ino, shelf_mtime = _NO_SHELF
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
            guard=guard,
            settled=self._settled.dumps(),
            statistics=statistics.dumps(),
            shelf_ino=shelf_ino,
            shelf_mtime=shelf_mtime,
        )


def _words_of(line: Line, fmt: Format | None, statistics: Statistics) -> Words:
    entry = parse_entry(line.raw)
    if entry is None and is_too_large(line.raw):
        return Words(line.index, None, "")
    if entry is None:  # no JSON, but perhaps somebody's words
        return Words(line.index, None, line.raw.decode("utf-8", "replace").strip())
    if fmt is None:
        statistics.take(entry, None, None, len(line.raw))
        return Words(line.index, entry_id(entry), words_of(entry, None))
    facts, title = fmt.facts(entry), fmt.title(entry)
    statistics.take(entry, facts, title, len(line.raw))
    return Words(line.index, facts.id, words_with(entry, fmt, facts, title))


def _read_store(layout: Layout, index: SearchIndex, name: SessionName, budget: int) -> bool:
    """Follow a session's store directory; whether that is all of it."""
    store = SessionStore(layout, name)
    archive = SessionArchive(layout.archive_dir(name))
    there = set(store.refs())
    try:
        packed = archive.names()
    except OSError as error:
        raise os_problem(error, f"reading {archive.directory}") from error
    known = index.stored(name)
    if gone := known - there - packed:
        index.forget_stored(store.directory.name, gone)
    taken = 0
    for words in chain(
        filter(None, (_stored_words(store, ref) for ref in sorted(there - known))),
        _packed_words(archive, packed - there - known),
    ):
        if taken >= budget:
            return False
        index.add_stored(name, words)
        taken += len(words.text)
    return True


def _stored_words(store: SessionStore, ref: str) -> Words | None:
    data = store.read(ref)
    if data is None:
        return None  # deleted since it was listed
    return _words_away(ref, data, store.index.records.get(f"{ref}.json"))


def _packed_words(archive: SessionArchive, refs: frozenset[str]) -> Iterator[Words]:
    for one in archive.lines(refs) if refs else ():
        record = record_of({**one.record, "hash": ""})
        yield _words_away(ref_of(one.record), one.line, record)


def _words_away(ref: str, data: bytes, record: Record | None) -> Words:
    entry = parse_entry(data) or {}
    number = record.index if record else _number_in(ref)
    paths = list(_paths(record.keys)) if record else []
    text = words_at(entry, paths) if paths else words_of(entry, None)
    name = record.entry_id if record else entry_id(entry)
    return Words(number if 0 <= number < _MOST_LINES else 0, name, text, ref)


def _number_in(ref: str) -> int:
    """The line number with which the name of a stored line begins; 0 for a name that is odd."""
    digits = ref.partition("_")[0]
    return int(digits) if _DIGITS.fullmatch(digits) else 0


def _paths(keys: Iterable[str]) -> Iterator[ValuePath]:
    for key in keys:
        with suppress(ValueError):
            yield parse_path(key)


# --- is it as it was? ---


def _was_appended_to(was: Known, source: Transcript) -> bool:
    dev, ino, size, *_ = _state(source.identity)
    if (was.dev, was.ino) != (dev, ino) or size <= was.size:
        return False
    return _guard(source, was.offset) == was.guard


def _guard(source: Transcript, offset: int) -> bytes:
    start = max(0, offset - _GUARDED)
    return hashlib.sha256(source.read(start, offset - start)).digest()


def _hash(source: Transcript, offset: int, length: int) -> bytes:
    digest = hashlib.sha256()
    _hash_into(digest, source, offset, length)
    return digest.digest()


def _hash_into(digest: hashlib._Hash, source: Transcript, offset: int, length: int) -> None:
    for start in range(offset, offset + length, _PIECE):
        digest.update(source.read(start, min(_PIECE, offset + length - start)))


def _file(known: Known) -> tuple[int, ...]:
    return known.dev, known.ino, known.size, known.mtime, known.ctime


def _state(identity: Identity) -> tuple[int, ...]:
    """A file's state, in integers that SQLite can hold."""
    numbers = (identity.dev, identity.ino, identity.size, identity.mtime_ns, identity.ctime_ns)
    return tuple(map(signed, numbers))
