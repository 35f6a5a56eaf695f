"""Searches all text of sessions, stores and archives without an index.

The newest sessions are read first. A search can stop anywhere and go on from that `ScanPosition`
later. Only lines that may hold the words are parsed
(`Matcher.candidates`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from bsd.core.errors import BsdError, Invalid, NotFound, Unavailable, os_problem
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted, open_or_snapshot
from bsd.maintenance.wanted_sessions import WantedSessions
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive, is_pack, ref_of
from bsd.store.originals import SessionStore
from bsd.store.pack import Pack, PackDamaged
from bsd.store.search import SearchHit
from bsd.store.search_filter import NO_FILTER, ROLES, SearchFilter, SearchPlace
from bsd.store.search_words import Matcher, indexable
from bsd.transcripts.agents.entry import Entry, entry_id
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.values import all_words_of, part_words, words_at
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import ValuePath, parse_path

_MOST_LINES = 1 << 62  # a name or an index may say anything
_PIECE = 1 << 20  # bytes of a pack's lines between two looks at whether to stop
_TRANSCRIPT, _STORE, _PACKS = range(3)


class ScanPosition(NamedTuple):
    """Progress of a search, in bytes of files; a pack counts with its compressed size."""

    began: int  # epoch ns: sessions that changed since come last, so that none is left out
    scanned: int = 0
    total: int = 0
    late: int = 0  # with `age` and `name`: the session that it has come to
    age: int = -(1 << 63)
    name: str = ""
    part: int = _TRANSCRIPT  # of that session
    at: str = ""  # the last line of the transcript, the last file of the store, or line of a pack

    @property
    def key(self) -> tuple[int, int, str]:
        """Return the position of the session in the order of all sessions."""
        return self.late, self.age, self.name

    def dumps(self) -> str:
        """As text for a URL."""
        return orjson.dumps([*self]).hex()

    @classmethod
    def loads(cls, text: str) -> ScanPosition:
        """Read the output of `dumps`; raises Invalid."""
        with suppress(ValueError, TypeError):
            values = orjson.loads(bytes.fromhex(text))
            if [type(one) for one in values] == [type(one) for one in cls(0)]:
                return cls(*values)
        raise Invalid("this is no cursor of a search", hint="begin without one")


class _Piece(NamedTuple):
    """A piece that was read: its part, its end, and its bytes in the files."""

    part: int
    at: str
    size: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a search; `place` is None if it came to the end."""

    hits: list[SearchHit]
    place: ScanPosition | None
    scanned: int
    total: int


@dataclass(slots=True)
class FullScan:
    """One search through everything; or, with `only`, through the originals of one session.

    `progress` is told bytes done and in all; `stopping` is asked after each piece of about 1 MB;
    `failed` is told of files that cannot be read; the search goes on with the others.
    """

    layout: Layout
    words: str
    agent: str | None = None
    only: SessionName | None = None
    wanted: SearchFilter = NO_FILTER
    limit: int = 20
    progress: Callable[[int, int], object] = lambda _done, _of: None
    stopping: Callable[[], bool] = lambda: False
    failed: Callable[[SessionName, BsdError], object] = lambda _name, _why: None
    _hits: dict[tuple[SessionName, str | int], SearchHit] = field(init=False, default_factory=dict)
    _formats: dict[SessionName, TranscriptFormat | None] = field(init=False, default_factory=dict)

    @property
    def _parts(self) -> range:
        """The parts of each session that are read."""
        if self.only is not None:
            return range(_STORE, _PACKS + 1)
        match self.wanted.place:
            case SearchPlace.LIVE:
                return range(_TRANSCRIPT, _STORE)
            case SearchPlace.EXTRACTED:
                return range(_STORE, _PACKS)
            case SearchPlace.ARCHIVED:
                return range(_PACKS, _PACKS + 1)
        return range(_TRANSCRIPT, _PACKS + 1)

    def run(self, place: ScanPosition | None = None) -> Scanned:
        """Search on until enough is found, `stopping` says so, or all was read; raises Invalid."""
        with closing(Matcher(self.words)) as matcher:
            began = place.began if place else time.time_ns()
            sessions = sorted(
                (int(mtime > began), 0 if mtime > began else -mtime, str(name), name)
                for name, mtime in self._sessions()
            )
            if place is None:
                place = ScanPosition(began, total=sum(self._size(one[3]) for one in sessions))
            for late, age, text, name in sessions:
                if (late, age, text) < place.key:
                    continue
                if (late, age, text) > place.key:
                    place = ScanPosition(began, place.scanned, place.total, late, age, text)
                with closing(self._pieces(name, matcher, place)) as pieces:
                    for part, at, size in pieces:
                        place = place._replace(part=part, at=at, scanned=place.scanned + size)
                        self.progress(min(place.scanned, place.total), place.total)
                        if len(self._hits) >= self.limit or self.stopping():
                            return self._scanned(place, place)
        return self._scanned(None, place)

    def _scanned(self, place: ScanPosition | None, last: ScanPosition) -> Scanned:
        hits = list(self._hits.values())[: self.limit]
        scanned = last.total if place is None else min(last.scanned, last.total)
        return Scanned(hits, place, scanned, last.total)

    # --- the texts to read ---

    def _sessions(self) -> Iterator[tuple[SessionName, int]]:
        if self.only is not None:
            yield self.only, 0
            return
        session, of_gone = self.wanted.session, self.wanted.of_gone
        is_gone = None if session is None else is_deleted(self.layout, session)
        if not of_gone and not is_gone:
            yield from self._in_their_places()
        if of_gone is not False and is_gone is not False:
            yield from self._gone()

    def _in_their_places(self) -> Iterator[tuple[SessionName, int]]:
        wanted, session = self._wanted_sessions, self.wanted.session
        if session is not None:
            with suppress(NotFound, FileNotFoundError):
                if wanted.has(session, self.layout.session_file(session).lstat()):
                    yield session, 0
            return
        for name, stat in catalog.with_stats(self.layout, self.agent):
            if wanted.has(name, stat):
                yield name, stat.st_mtime_ns

    def _gone(self) -> Iterator[tuple[SessionName, int]]:
        wanted, session = self._wanted_sessions, self.wanted.session
        agent = session.agent if session else self.agent
        copies = {copy.name: copy for copy in reversed(deleted_sessions(self.layout, agent))}
        exclusions = self.layout.exclusions()
        for name, copy in copies.items():
            if session not in (None, name) or exclusions.session(name.agent, name.session):
                continue
            if wanted.has_gone(name, copy.working_directory) and is_deleted(self.layout, name):
                yield name, copy.transcript.was.mtime_ns

    @property
    def _wanted_sessions(self) -> WantedSessions:
        return WantedSessions(self.layout, self.agent, self.wanted)

    def _size(self, name: SessionName) -> int:
        layout, size, parts = self.layout, 0, self._parts
        if _TRANSCRIPT in parts:
            with suppress(BsdError, OSError):
                size = layout.transcript(name).lstat().st_size
        size += _size_of(layout.store_dir(name)) if _STORE in parts else 0
        return size + (_size_of(layout.archive_dir(name)) if _PACKS in parts else 0)

    def _pieces(
        self, name: SessionName, matcher: Matcher, place: ScanPosition
    ) -> Generator[_Piece, None, None]:
        readers = (self._in_transcript, self._in_store, self._in_packs)
        for part in self._parts:
            if part < place.part:
                continue
            at = place.at if part == place.part else ""
            try:
                yield from readers[part](name, matcher, at)
            except NotFound:
                continue  # deleted since it was listed
            except PackDamaged as problem:
                hint = "`bsd verify --repair` mends what can be"
                self.failed(name, Unavailable(str(problem), hint=hint))
            except (BsdError, OSError) as problem:
                self.failed(name, os_problem(problem, f"reading {name}"))

    # --- reading it ---

    def _in_transcript(self, name: SessionName, matcher: Matcher, at: str) -> Iterator[_Piece]:
        offset, number = map(int, at.split(":")) if at else (0, 0)
        with open_or_snapshot(self.layout, name) as source:
            size = source.identity.size
            if offset and (offset > size or source.read(offset - 1, 1) != b"\n"):
                offset = number = 0  # it was rewritten since
            fmt = format_of(source, program_of(self.layout, name.agent))
            for lines in source.whole_lines(offset):
                for start, end in matcher.candidates(lines):
                    line = number + lines.count(b"\n", 0, start)
                    entry = parse_entry(lines[start:end])
                    called = fmt.info(entry).id if fmt and entry else entry_id(entry or {})
                    about = _about(entry, fmt)
                    if self.wanted.fits(*about):
                        text = self._text(entry, fmt, lines[start:end])
                        self._look_at(matcher, text, name, called, line, about, away=False)
                offset, number = offset + len(lines), number + lines.count(b"\n")
                yield _Piece(_TRANSCRIPT, f"{offset}:{number}", len(lines))

    def _in_store(self, name: SessionName, matcher: Matcher, at: str) -> Iterator[_Piece]:
        store = SessionStore(self.layout, name)
        for ref in store.refs():
            if ref <= at or (data := store.read(ref)) is None:
                continue
            if any(matcher.candidates(data)):
                record = store.index.records.get(f"{ref}.json")
                about = (record.index, record.entry_id, record.keys) if record else (None, None, ())
                self._look_at_stored(matcher, name, ref, data, *about)
            yield _Piece(_STORE, ref, len(data))

    def _in_packs(self, name: SessionName, matcher: Matcher, at: str) -> Iterator[_Piece]:
        archive = SessionArchive(self.layout.archive_dir(name))
        pack_name, _, number = at.partition(":")
        problem: PackDamaged | None = None
        for path in archive.packs():
            if path.name < pack_name:
                continue
            after = int(number) if path.name == pack_name else -1
            try:
                yield from self._in_pack(path, name, matcher, after)
            except FileNotFoundError:
                continue  # merged since
            except PackDamaged as damaged:
                problem = damaged
        if problem is not None:
            raise problem

    def _in_pack(
        self, path: Path, name: SessionName, matcher: Matcher, after: int
    ) -> Iterator[_Piece]:
        with Pack(path) as pack:
            share = pack.summary.packed / max(1, pack.summary.content)
            done, read = after, 0
            for one in pack.lines_from(after + 1):
                done, read = done + 1, read + len(one.line)
                if any(matcher.candidates(one.line)):
                    record = one.record
                    about = (record.get(key) for key in ("index", "entry_id", "keys"))
                    self._look_at_stored(matcher, name, ref_of(record), one.line, *about)
                if read >= _PIECE:
                    yield _Piece(_PACKS, f"{path.name}:{done}", int(read * share))
                    read = 0
            if read:
                yield _Piece(_PACKS, f"{path.name}:{done}", int(read * share))

    # --- the texts of a line ---

    def _look_at_stored(
        self,
        matcher: Matcher,
        name: SessionName,
        ref: str,
        data: bytes,
        index: Any,
        called: Any,
        keys: Any,
    ) -> None:
        """Search an original; of values that are known to be extracted, only those."""
        entry, fmt = parse_entry(data), self._format_of(name)
        if not isinstance(index, int):
            index = int(ref.partition("_")[0]) if ref[:1].isdigit() else 0
        index = index if 0 <= index < _MOST_LINES else 0
        about = _about(entry, fmt)
        if self.wanted.fits(*about):
            text = self._text(entry, fmt, data, list(_paths(keys or ())))
            called = called or entry_id(entry or {})
            self._look_at(matcher, text, name, called, index, about, away=True)

    def _text(
        self,
        entry: Entry | None,
        fmt: TranscriptFormat | None,
        raw: bytes,
        only: list[ValuePath] | None = None,
    ) -> str:
        """Return the text of a line that is searched; of `only` these values, if there are any."""
        if (part := self.wanted.part) is not None:
            return part_words(entry, fmt, part, only or None) if entry and fmt else ""
        if entry is None:
            return raw.decode("utf-8", "replace")
        return words_at(entry, only) if only else all_words_of(entry)

    def _format_of(self, name: SessionName) -> TranscriptFormat | None:
        """Return the format of a session; its file need not be there any more."""
        if name not in self._formats:
            self._formats.clear()  # they come one after the other
            self._formats[name] = None
            with suppress(BsdError, OSError), open_or_snapshot(self.layout, name) as source:
                self._formats[name] = format_of(source, program_of(self.layout, name.agent))
        return self._formats[name]

    def _look_at(
        self,
        matcher: Matcher,
        text: str,
        name: SessionName,
        entry: str | None,
        index: int,
        about: tuple[str | None, float | None],
        *,
        away: bool,
    ) -> None:
        entry = None if entry is None else indexable(entry)
        key = (name, entry or index)
        if key in self._hits or (snippet := matcher.snippet(text)) is None:
            return
        where: Literal["transcript", "extracted"] = "extracted" if away else "transcript"
        self._hits[key] = SearchHit(name, entry, index, where, snippet, 0.0, *about)


def _about(entry: Entry | None, fmt: TranscriptFormat | None) -> tuple[str | None, float | None]:
    """The role of an entry, and when it was written (epoch seconds), as far as they are known."""
    if entry is None or fmt is None:
        return None, None
    info = fmt.info(entry)
    role = info.role if info.role in ROLES.values() else None
    return role, None if info.time_ms is None else info.time_ms / 1000


def _paths(keys: Iterable[object]) -> Iterator[ValuePath]:
    for key in keys:
        with suppress(ValueError):
            yield parse_path(str(key))


def _size_of(directory: Path) -> int:
    """Bytes of stored lines, or packs, in a directory; 0 if it is not there."""
    with suppress(OSError), os.scandir(directory) as files:
        return sum(
            file.stat(follow_symlinks=False).st_size
            for file in files
            if file.name.endswith(".json") or is_pack(file.name)
        )
    return 0
