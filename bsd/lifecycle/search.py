"""Full-text search: the index follows the sessions and their stores, and reads only what is new."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from bsd.formats.base import Entry, Format
from bsd.formats.detect import NotOurs, detect
from bsd.formats.marker import Marker
from bsd.formats.reading import entry_id
from bsd.formats.words import words_at, words_of
from bsd.foundation.errors import BsdError, Busy, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.value_path import ValuePath, parse_path
from bsd.lifecycle import catalog
from bsd.lifecycle.statistics import Statistics
from bsd.store.extracted import SessionStore
from bsd.store.search import Known, SearchIndex, Words, drop_for_good, use
from bsd.store.search_query import Hit, match_expression
from bsd.transcript.change import Identity
from bsd.transcript.reader import Line, Transcript, TranscriptFile, parse_entry

_log = get_logger("search")

_GUARDED = 4096  # bytes before the offset that must be what they were
# A directory just written may change again without its time showing it.
_UNCERTAIN_NS = 2 * 10**9
_NO_SHELF = (0, 0)
_MOST_LINES = 1 << 62  # a name or an index may say anything

Progress = Callable[[int, int], None]  # bytes read, of so many


@dataclass(frozen=True, slots=True)
class _Due:
    """A session that is not as it was; `size` is about how many bytes are to be read."""

    name: SessionName
    shelf: tuple[int, int]
    size: int


def search(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    progress: Progress | None = None,
) -> list[Hit]:
    """Entries that hold all the words, the best first; the index is brought up to date before.

    Raises Invalid (no word), Unavailable (no FTS5, disk full), Busy, ConfigError.
    """
    match_expression(words)  # before the work, not after it

    def work(index: SearchIndex) -> list[Hit]:
        _follow(layout, index, agent, progress)
        return index.search(words, agent=agent, limit=limit)

    return use(layout.search_db, work)


def bring_up_to_date(
    layout: Layout, *, agent: str | None = None, progress: Progress | None = None
) -> None:
    """Read what is new in all sessions, statistics included; raises as `search` does."""
    use(layout.search_db, lambda index: _follow(layout, index, agent, progress))


def forget_stored(layout: Layout, gone: Mapping[str, Iterable[str]]) -> None:
    """Take the text of deleted stored files (refs by store directory) out of the index, for good.

    A session that changed since it was read is read now: the text may have been in its lines when
    it was. A problem is logged.
    """

    def drop(index: SearchIndex) -> bool:
        known = False
        for store, refs in gone.items():
            with index.change():
                if (was := index.kept_in(store)) is None:
                    continue
                known = True
                index.forget_stored(store, refs)
                _catch_up(layout, index, was)
        return known

    drop_for_good(layout.search_db, drop)


def _catch_up(layout: Layout, index: SearchIndex, was: Known) -> None:
    name = SessionName.parse(was.name)
    try:
        if _file(was) != _state(Identity.of(layout.session_file(name).stat())):
            _read_session(layout, index, _Due(name, _NO_SHELF, 0))
    except (BsdError, OSError) as problem:
        _log.debug("Forgotten, as it cannot be read", session=was.name, problem=str(problem))
        index.forget(was.name)


def _follow(
    layout: Layout, index: SearchIndex, agent: str | None, progress: Progress | None
) -> None:
    known = index.known(agent)
    shelves = _shelves(layout)
    due: list[_Due] = []
    for name, stat in catalog.with_stats(layout, agent):
        was = known.pop(str(name), None)
        shelf = shelves.get(layout.trash_name(name), _NO_SHELF)
        now = _state(Identity.of(stat))
        if was is None or (*_file(was), was.shelf_ino, was.shelf_mtime) != (*now, *shelf):
            appended = was is not None and was.ino == now[1]
            begin = was.offset if was and appended else 0
            due.append(_Due(name, shelf, max(0, stat.st_size - begin)))
    if known:
        with index.change():
            dropped = sum(map(index.forget, known))
        if dropped:
            index.scrub()
    _read_all(layout, index, due, progress)


def _read_all(
    layout: Layout, index: SearchIndex, due: list[_Due], progress: Progress | None
) -> None:
    total, done = sum(each.size for each in due), 0
    for each in due:
        try:
            with index.change():
                _read_session(layout, index, each)
        except (NotFound, Busy):
            continue  # deleted or shortened meanwhile: the next search sees it as it is then
        except BsdError as problem:
            _log.warning(
                "A session cannot be searched", session=str(each.name), problem=problem.message
            )
        done += each.size
        if progress is not None:
            progress(done, total)


def _shelves(layout: Layout) -> dict[str, tuple[int, int]]:
    """The store directories: inode and mtime by name; an mtime of 0 is looked at again."""
    found = {}
    certain = time.time_ns() - _UNCERTAIN_NS
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(layout.extracted) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    mtime = stat.st_mtime_ns if stat.st_mtime_ns < certain else 0
                    found[entry.name] = (_signed(stat.st_ino), mtime)
    return found


def _read_session(layout: Layout, index: SearchIndex, due: _Due) -> None:
    with TranscriptFile(layout.session_file(due.name)) as source:
        was = index.known_as(due.name)
        if was is None or _file(was) != _state(source.identity):
            was = _read_transcript(layout, index, due.name, source, was)
        _read_store(layout, index, due.name)
        shelf_ino, shelf_mtime = due.shelf
        index.note(replace(was, shelf_ino=shelf_ino, shelf_mtime=shelf_mtime))


def _read_transcript(
    layout: Layout,
    index: SearchIndex,
    name: SessionName,
    source: Transcript,
    was: Known | None,
) -> Known:
    start, first, settled = 0, 0, Statistics()
    if was is not None and _was_appended_to(was, source):
        start, first, settled = was.offset, was.lines, Statistics.loads(was.settled)
    if was is None:
        index.note(_known(layout, name, source, (0, 0), Statistics(), Statistics()))
    found = detect(line.raw for line in source.lines())
    reading = _Reading(None if isinstance(found, NotOurs) else found, settled, start, first)
    index.set_lines(name, reading.words(source), first)
    place = (reading.offset, reading.lines)
    return _known(layout, name, source, place, reading.settled, reading.statistics)


class _Reading:
    """One pass over new lines. A last line without its end counts, but is read again."""

    def __init__(self, fmt: Format | None, settled: Statistics, offset: int, lines: int) -> None:
        self._fmt = fmt
        self.settled = settled
        self.statistics = settled
        self.offset = offset
        self.lines = lines

    def words(self, source: Transcript) -> Iterator[Words]:
        for line in source.lines(self.offset, self.lines):
            if line.raw.endswith(b"\n"):
                self.offset, self.lines = line.offset + len(line.raw), line.index + 1
            else:
                self.statistics = Statistics.loads(self.settled.dumps())
            yield self._line(line)

    def _line(self, line: Line) -> Words:
        entry = parse_entry(line.raw)
        if entry is None:  # no JSON, but perhaps somebody's words
            return Words(line.index, None, line.raw.decode("utf-8", "replace").strip())
        self.statistics.take(entry, self._fmt, len(line.raw))
        return Words(line.index, entry_id(entry), words_of(entry, self._fmt))


def _read_store(layout: Layout, index: SearchIndex, name: SessionName) -> None:
    store = SessionStore(layout, name)
    there = set(store.refs())
    known = index.stored(name)
    index.forget_stored(store.directory.name, known - there)
    for ref in sorted(there - known):
        if (words := _stored_words(store, ref)) is not None:
            index.add_stored(name, words)


def _stored_words(store: SessionStore, ref: str) -> Words | None:
    data = store.read(ref)
    if data is None:
        return None  # deleted since it was listed
    entry = parse_entry(data) or {}
    record = store.index.records.get(f"{ref}.json")
    number = record.index if record else int(ref.partition("_")[0])
    paths = _paths(record.keys) if record else []
    text = words_at(entry, paths) if paths else words_of(entry, None)
    return Words(number if 0 <= number < _MOST_LINES else 0, entry_id(entry), text, ref)


def _paths(keys: tuple[str, ...]) -> list[ValuePath]:
    paths = []
    for key in keys:
        with suppress(ValueError):
            paths.append(parse_path(key))
    return paths


def original(entry: Entry, store: SessionStore) -> Entry:
    """The entry as it was before values were taken out of it, if the store has them."""
    marker = Marker.of(entry)
    line = store.load(marker.ref, marker.hash) if marker else None
    return (parse_entry(line) if isinstance(line, bytes) else None) or entry


def _known(
    layout: Layout,
    name: SessionName,
    source: Transcript,
    place: tuple[int, int],
    settled: Statistics,
    statistics: Statistics,
) -> Known:
    dev, ino, size, mtime, ctime = _state(source.identity)
    offset, lines = place
    shelf_ino, shelf_mtime = _NO_SHELF
    return Known(
        name=str(name),
        agent=name.agent,
        store=layout.trash_name(name),
        dev=dev,
        ino=ino,
        size=size,
        mtime=mtime,
        ctime=ctime,
        offset=offset,
        lines=lines,
        guard=_guard(source, offset),
        settled=settled.dumps(),
        statistics=statistics.dumps(),
        shelf_ino=shelf_ino,
        shelf_mtime=shelf_mtime,
    )


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
    return tuple(map(_signed, numbers))


def _signed(number: int) -> int:
    """Inode numbers have 64 bits, SQLite's integers 63 and a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number
