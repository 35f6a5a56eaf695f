"""Reads all lines within bsd's reach: of sessions, stores, archive packs, copies and history.

The newest sessions are read first. A reader can stop at any point and continue later from its
`ScanPosition`. A deleted session is read from its snapshot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from bsd.core.errors import BsdError, Invalid, NotFound, Unavailable, os_problem
from bsd.core.files import plain_stream
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted, open_or_snapshot
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive, is_pack, ref_of
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.store.pack import Pack, PackDamaged
from bsd.store.snapshots import packs_in, snapshot_directories
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.programs import program_of

_TRANSCRIPT, _STORE, _PACKS, _COPIES, _UNDO = range(5)
EVERYTHING = range(5)
STORED_AND_ARCHIVED = range(_STORE, _PACKS + 1)
LIVE_AND_ARCHIVED = range(_TRANSCRIPT, _PACKS + 1)
LIVE = range(_TRANSCRIPT, _STORE)
STORED = range(_STORE, _PACKS)
ARCHIVED = range(_PACKS, _PACKS + 1)
_PIECE = 1 << 20  # bytes of a pack's lines between two calls of `stopping`


class ScanPosition(NamedTuple):
    """The progress of a search, in bytes of files; a pack counts with its compressed size."""

    began: int  # epoch ns; sessions that change later are read last, so that none is missed
    scanned: int = 0
    total: int = 0
    late: int = 0  # `late`, `age` and `name` identify the current session
    age: int = -(1 << 63)
    name: str = ""
    part: int = _TRANSCRIPT  # the current part of that session
    at: str = ""  # the last item read: a line of the transcript or a pack, or a file of the store

    @property
    def key(self) -> tuple[int, int, str]:
        """Return the position of the session in the order of all sessions."""
        return self.late, self.age, self.name

    def dumps(self) -> str:
        """Return the position as text for a URL."""
        return orjson.dumps([*self]).hex()

    @classmethod
    def loads(cls, text: str) -> ScanPosition:
        """Read the output of `dumps`; raises Invalid."""
        with suppress(ValueError, TypeError):
            values = orjson.loads(bytes.fromhex(text))
            if [type(one) for one in values] == [type(one) for one in cls(0)]:
                return cls(*values)
        raise Invalid("this is not a cursor of a search", hint="begin without a cursor")


class TextPlace(StrEnum):
    """The place of a line."""

    TRANSCRIPT = "transcript"
    EXTRACTED = "extracted"  # in the store
    ARCHIVED = "archived"  # in a pack, or in the copy of a deleted session
    COPIED = "copied"  # in another copy of a session, or in its undo history


@dataclass(frozen=True, slots=True)
class StoredLines:
    """A piece of text: several lines of a transcript, or a stored line.

    Attributes:
        index: 0-based number of the first line; for a stored line, its number when it was
            extracted.
        entry_id: id of the entry of a stored line, if known.
        keys: paths of the extracted values of a stored line, if known.
        format: format of the transcript, if known.
        is_stored: True for a single line of a store or a pack.
    """

    session: SessionName
    place: TextPlace
    data: bytes
    index: int
    entry_id: str | None = None
    keys: tuple[str, ...] = ()
    format: TranscriptFormat | None = None
    is_stored: bool = False


_Piece = tuple[int, str, int]  # the part, the position after it, and its bytes in the files
# Returns the number of bytes of `data` that were read, if the reading must continue behind them.
Look = Callable[[StoredLines], int | None]


@dataclass(slots=True)
class StoredLineReader:
    """Reads the lines of all sessions, or of some.

    Args:
        agent: only sessions of this agent.
        only: only these sessions, without calling `has` and `has_gone`; empty: all.
        progress: called with the bytes read so far and the total.
        stopping: called after each piece of about 1 MB, and after each line of a pack; True pauses
            the reading.
        failed: called for files that cannot be read; the reading continues with the others.
        parts: the parts of a session to read.
        gone: True: only sessions that their program has deleted; False: only existing sessions.
        has: tells whether to read an existing session, given the stat of its file.
        has_gone: tells whether to read a deleted session, given the directory in which it began.
    """

    layout: Layout
    agent: str | None = None
    only: Collection[SessionName] = ()
    progress: Callable[[int, int], object] = lambda _done, _of: None
    stopping: Callable[[], bool] = lambda: False
    failed: Callable[[SessionName, BsdError], object] = lambda _name, _why: None
    parts: range = EVERYTHING
    gone: bool | None = None
    has: Callable[[SessionName, os.stat_result], bool] = lambda _name, _stat: True
    has_gone: Callable[[SessionName, str | None], bool] = lambda _name, _directory: True

    def run(self, look: Look, position: ScanPosition | None = None) -> ScanPosition:
        """Call `look` with all lines, starting from `position`.

        Returns:
            The position to continue from. Its `scanned` equals its `total` if all lines were read.
        """
        began = position.began if position else time.time_ns()
        sessions = sorted(
            (int(mtime > began), 0 if mtime > began else -mtime, str(name), name)
            for name, mtime in self._sessions()
        )
        if position is None:
            total = sum(self._size(each[3]) for each in sessions)
            position = ScanPosition(began, total=total)
        for late, age, text, name in sessions:
            if (late, age, text) < position.key:
                continue
            if (late, age, text) > position.key:
                position = ScanPosition(began, position.scanned, position.total, late, age, text)
            with closing(self._pieces(name, look, position)) as pieces:
                for part, at, size in pieces:
                    scanned = position.scanned + size
                    position = position._replace(part=part, at=at, scanned=scanned)
                    self.progress(min(scanned, position.total), position.total)
                    if self.stopping():
                        # Sessions may have grown, but an unfinished search must not look complete.
                        return position._replace(scanned=min(scanned, position.total - 1))
        return position._replace(scanned=position.total)

    def _sessions(self) -> Iterator[tuple[SessionName, int]]:
        if self.only:
            yield from ((name, 0) for name in self.only)
            return
        if not self.gone:
            for name, stat in catalog.with_stats(self.layout, self.agent):
                if self.has(name, stat):
                    yield name, stat.st_mtime_ns
        if self.gone is False:
            return
        copies = {copy.name: copy for copy in reversed(deleted_sessions(self.layout, self.agent))}
        exclusions = self.layout.exclusions()
        for name, copy in copies.items():
            if exclusions.session(name.agent, name.session):
                continue
            if self.has_gone(name, copy.working_directory) and is_deleted(self.layout, name):
                yield name, copy.transcript.was.mtime_ns

    def _size(self, name: SessionName) -> int:
        layout, size = self.layout, 0
        if _TRANSCRIPT in self.parts:
            with suppress(BsdError, OSError):
                size = stat_transcript(layout, name).st_size
        directories = ((_STORE, layout.store_dir(name)), (_PACKS, layout.archive_dir(name)))
        for part, directory in directories:
            with suppress(OSError):
                size += sum(
                    path.lstat().st_size
                    for path in directory.iterdir()
                    if part in self.parts and (path.name.endswith(".json") or is_pack(path.name))
                )
        return size

    def _pieces(
        self, name: SessionName, look: Look, position: ScanPosition
    ) -> Generator[_Piece, None, None]:
        readers = (
            self._in_transcript,
            self._in_store,
            self._in_packs,
            self._in_copies,
            self._in_history,
        )
        for part in range(max(position.part, self.parts.start), self.parts.stop):
            at = position.at if part == position.part else ""
            try:
                yield from readers[part](name, look, at)
            except NotFound:
                continue  # deleted since it was listed
            except PackDamaged as problem:
                hint = "`bsd verify --repair`"
                self.failed(name, Unavailable(str(problem), hint=hint))
            except (BsdError, OSError) as problem:
                self.failed(name, os_problem(problem, f"reading {name}"))

    def _in_transcript(self, name: SessionName, look: Look, at: str) -> Iterator[_Piece]:
        offset, number = map(int, at.split(":")) if at else (0, 0)
        with open_or_snapshot(self.layout, name) as source:
            size = source.size
            if offset and (offset > size or source.read(offset - 1, 1) != b"\n"):
                offset = number = 0  # the transcript was rewritten since
            fmt = format_of(source, program_of(self.layout, name.agent))
            place = TextPlace.ARCHIVED if is_deleted(self.layout, name) else TextPlace.TRANSCRIPT
            for lines in source.whole_lines(offset):
                end = look(StoredLines(name, place, lines, number, format=fmt))
                seen = lines[:end]
                offset, number = offset + len(seen), number + seen.count(b"\n")
                yield _TRANSCRIPT, f"{offset}:{number}", len(seen)

    def _in_store(self, name: SessionName, look: Look, at: str) -> Iterator[_Piece]:
        store = SessionStore(self.layout, name)
        for ref in store.refs():
            if ref <= at or (data := store.read(ref)) is None:
                continue
            record = store.index.records.get(f"{ref}.json")
            about = (record.index, record.entry_id, record.keys) if record else (ref, None, None)
            look(_stored(name, TextPlace.EXTRACTED, data, *about))
            yield _STORE, ref, len(data)

    def _in_packs(self, name: SessionName, look: Look, at: str) -> Iterator[_Piece]:
        pack_name, _, number = at.partition(":")
        problem: PackDamaged | None = None
        for path in SessionArchive(self.layout.archive_dir(name)).packs():
            if path.name < pack_name:
                continue
            done = int(number) if path.name == pack_name else -1
            try:
                with Pack(path) as pack:
                    share = pack.summary.packed / max(1, pack.summary.content)
                    read = 0
                    for packed in pack.lines_from(done + 1):
                        done, read = done + 1, read + len(packed.line)
                        record = packed.record
                        index = record.get("index", ref_of(record))
                        about = (index, record.get("entry_id"), record.get("keys"))
                        look(_stored(name, TextPlace.ARCHIVED, packed.line, *about))
                        if read >= _PIECE or self.stopping():
                            yield _PACKS, f"{path.name}:{done}", int(read * share)
                            read = 0
                    if read:
                        yield _PACKS, f"{path.name}:{done}", int(read * share)
            except FileNotFoundError:
                continue  # merged since
            except PackDamaged as damaged:
                problem = damaged
        if problem is not None:
            raise problem

    def _in_copies(self, name: SessionName, look: Look, at: str) -> Iterator[_Piece]:
        """Read all packs of a session's copies, including leftovers of killed processes."""
        last, _, number = at.partition(":")
        for directory in snapshot_directories(self.layout.archive_dir(name)):
            for path in packs_in(directory):
                place = f"{directory.name}/{path.name}"
                if place < last:
                    continue
                done = int(number) if place == last else -1
                with suppress(FileNotFoundError), Pack(path) as pack:  # merged since
                    for packed in pack.lines_from(done + 1):
                        done += 1
                        look(StoredLines(name, TextPlace.COPIED, packed.line, 0))
                        yield _COPIES, f"{place}:{done}", 0

    def _in_history(self, name: SessionName, look: Look, at: str) -> Iterator[_Piece]:
        history = History(self.layout, name)
        for operation in history.operations():
            place = f"{operation.number:012d}"
            if place <= at:
                continue
            with plain_stream(operation.path) as stream:
                for line in history.lines(operation):
                    stream.seek(line.kept_at)
                    kept = stream.read(line.kept)
                    look(StoredLines(name, TextPlace.COPIED, kept, line.index, line.entry_id))
            yield _UNDO, place, 0


def _stored(
    name: SessionName, place: TextPlace, data: bytes, index: Any, entry_id: Any, keys: Any
) -> StoredLines:
    """Return a stored line; `index`: its line number, or a ref that begins with that number."""
    if isinstance(index, str):
        number = index.partition("_")[0]
        index = int(number) if number.isdigit() and len(number) < 18 else 0
    return StoredLines(
        name,
        place,
        data,
        index if isinstance(index, int) and 0 <= index < 1 << 62 else 0,
        entry_id if isinstance(entry_id, str) else None,
        tuple(map(str, keys)) if isinstance(keys, list | tuple) else (),
        is_stored=True,
    )
