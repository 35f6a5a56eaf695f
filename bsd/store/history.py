"""What undo needs of every operation on a session: which lines it changed, and from what.

One file for each operation, in a directory for each session. It is named `….pending` and durable
before the session file changes, and renamed `….jsonl` afterwards; whether a pending operation that
a crash left took effect is seen in the session itself. After a head with the numbers, each changed
line has a line of JSON, and after it those bytes of its former self that stand nowhere else. A
line may also have been taken out, or have come in: then one of its two states is no bytes at all,
and of the line that is gone it is kept between which two others it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import orjson

from bsd.core.errors import BsdError, NotFound, Unavailable, os_problem
from bsd.core.files import (
    LARGEST_RECORD,
    NotPlain,
    create_private,
    make_durable_dir,
    plain_file,
    plain_stream,
    skip_hole,
    sync_dir,
)
from bsd.core.layout import Layout, SessionName
from bsd.store.entry_notes import NOTHING, EntryNotes, Noting
from bsd.store.extracted import FileSpan, Keep, Missing, SessionStore, Stored, digest
from bsd.transcripts.change import Edit, Readable
from bsd.transcripts.spans import ValuePath, paths_of
from bsd.transcripts.splice import SpliceError, find

_VERSION = 1
_NAME = re.compile(r"([0-9]{6,})_([a-z_]+)\.(jsonl|pending)")
_DONE, _PENDING = ".jsonl", ".pending"
_BUFFER = 1 << 20
_LONGEST_NAMED = 1024  # bytes: a name of 255, a hash, and what stands around them
# How a marker and a line of ours name a stored file; gateways write lines anew, some with spaces.
NAMED_FILE = re.compile(rb'"ref": ?"([A-Za-z0-9._~-]+)", ?"hash": ?"(sha256:[0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A line beside the gap, as the operation left it."""

    entry_id: str | None
    hash: str  # `sha256:…` of the raw line with its end

    def is_like(self, other: Neighbour) -> bool:
        """Whether it is the same entry, changed meanwhile or not."""
        if self.entry_id is not None and self.entry_id == other.entry_id:
            return True
        return self.hash == other.hash


@dataclass(frozen=True, slots=True)
class Gap:
    """The nearest lines that stayed; None is an end of the file."""

    after: Neighbour | None
    before: Neighbour | None

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        return tuple(one for one in (self.after, self.before) if one is not None)

    def as_json(self) -> list[Any]:
        return [one and [one.entry_id, one.hash] for one in (self.after, self.before)]

    @classmethod
    def of(cls, document: Any) -> Self:
        """Read what `as_json` wrote; raises ValueError, TypeError."""
        after, before = (one and Neighbour(*one) for one in document)
        return cls(after or None, before or None)


class HistoryDamaged(Unavailable):
    """What is kept of an operation cannot be read."""


@dataclass(frozen=True, slots=True)
class TouchedLine:
    """What an edit of a plan was about; a plan has one for each of its edits."""

    index: int  # 0-based line number
    entry_id: str | None
    undoes: int | None = None  # which of the lines of the operation that is undone
    gap: Gap | None = None  # of a line that is taken out: between which others


@dataclass(frozen=True, slots=True)
class Act:
    """What an operation was, in numbers; sizes are bytes of the session file."""

    action: str  # extract, restore, edit, undo, …
    actor: str
    at: str  # ISO 8601, Z
    values: int
    bytes_before: int
    bytes_after: int
    undoes: int | None = None  # number of the operation that this one undid


@dataclass(frozen=True, slots=True)
class KeptOperation:
    """One operation that is kept."""

    number: int  # counts the operations of one session
    act: Act
    entries: int  # changed lines
    path: Path

    @property
    def pending(self) -> bool:
        """Whether nobody has noted yet that it took effect."""
        return self.path.name.endswith(_PENDING)

    def __str__(self) -> str:
        return f"operation {self.number} ({self.act.action}, {self.act.at})"


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """One line that an operation changed. Hashes and sizes are of the raw line with its end.

    A size of 0 says that there was, or is, no such line.
    """

    index: int  # 0-based line number before the operation; one that came in came before that line
    entry_id: str | None
    was: str
    was_size: int
    now: str
    now_size: int
    ended: bool  # False: it was the last line and had no line end
    undoes: int | None
    ref: str | None  # stored file that the recipe names
    hash: str | None
    recipe: Recipe
    kept_at: int  # where the kept bytes stand in the operation's file
    kept: int
    gap: Gap | None = None

    @property
    def came(self) -> bool:
        """Whether the operation put the line in."""
        return self.was_size == 0

    @property
    def went(self) -> bool:
        """Whether the operation took the line out."""
        return self.now_size == 0


class History:
    """The operations of one session. Whoever writes holds bsd's own lock of the session."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self.name = name
        self._layout = layout
        self._begun: Path | None = None

    @cached_property
    def directory(self) -> Path:
        return self._layout.history_dir(self.name)

    @cached_property
    def entry_notes(self) -> EntryNotes:
        """What is known for longer than operations are kept."""
        return EntryNotes(self.directory, self.name)

    def operations(self) -> list[KeptOperation]:
        """All that are kept, the oldest first; what a crash left half written is left out."""
        return self._among(self._names())

    def pending(self) -> list[KeptOperation]:
        """Those of which it is not known whether they took effect."""
        return self._among(each for each in self._names() if each[1].endswith(_PENDING))

    def _among(self, names: Iterable[tuple[int, str]]) -> list[KeptOperation]:
        found = (_read_head(self.directory / name, number) for number, name in names)
        return [operation for operation in found if operation is not None]

    def lines(self, operation: KeptOperation) -> list[ChangedLine]:
        """The lines that an operation changed; raises NotFound, Damaged."""
        try:
            with plain_stream(operation.path, _BUFFER) as stream:
                stream.readline(LARGEST_RECORD)
                found = list(_read_lines(stream, operation.entries))
        except FileNotFoundError:
            raise NotFound(f"{operation} of {self.name} is no longer kept") from None
        except OSError as error:
            raise os_problem(error, f"reading {operation.path}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryDamaged(
                f"{operation} of {self.name} cannot be undone: "
                f"{operation.path} is damaged ({error})"
            ) from error
        return found

    def former(
        self, operation: KeptOperation, line: ChangedLine, now: bytes, stored: Stored
    ) -> bytes | Missing:
        """The bytes that a line had before; `now` are those that it had afterwards."""
        kept = b""
        if line.kept:
            try:
                with plain_file(operation.path) as stream:
                    kept = os.pread(stream.fileno(), line.kept, line.kept_at)
            except OSError as error:
                raise os_problem(error, f"reading {operation.path}") from error
        content: bytes | Missing = b""
        if line.ref is not None and any(piece.place is Place.STORED for piece in line.recipe):
            content = stored.load(line.ref, line.hash or "")
        if isinstance(content, Missing):
            return content
        was = follow(line.recipe, now, content, kept)
        return was if digest(was) == line.was else Missing.CORRUPT

    def begin(
        self,
        act: Act,
        edits: Sequence[Edit],
        touched: Sequence[TouchedLine],
        keeps: Iterable[Keep],
        source: Readable,
        store: SessionStore,
        noting: Noting = NOTHING,
    ) -> int:
        """Make durable what undoing these edits takes; the store has kept `keeps` by now.

        And what the plan wants noted, if it takes effect.

        Each edit replaces one line, takes one out, or puts one in. Returns the operation's
        number; `done` or `discard` must follow. Raises Unavailable, Forbidden.
        """
        number = self._next_number()
        path = self.directory / f"{number:06d}_{act.action}{_PENDING}"
        recorder = _Recorder(source, store, {keep.index: keep for keep in keeps})
        try:
            make_durable_dir(self.directory)
            with open(create_private(path), "wb", _BUFFER) as stream:
                self._begun = path
                head = {"version": _VERSION, "session": str(self.name), "operation": number}
                stream.write(_json({**head, "entries": len(edits), **asdict(act)}))
                for edit, about in zip(edits, touched, strict=True):
                    line, kept = recorder.record(edit, about)
                    stream.write(_json(line))
                    stream.write(kept + b"\n")
                stream.flush()
                os.fchmod(stream.fileno(), 0o600)
                os.fsync(stream.fileno())
            sync_dir(self.directory)
            self.entry_notes.note(number, noting)
        except OSError as error:
            self.discard()
            raise os_problem(error, f"writing to {self.directory}") from error
        except BaseException:  # Ctrl-C included: it did not happen
            self.discard()
            raise
        return number

    def done(self) -> None:
        """The operation begun last took effect."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # Not synced: until the next operation is, the session itself tells as much.
            with suppress(OSError):
                os.rename(begun, begun.with_suffix(_DONE))

    def discard(self) -> None:
        """The operation begun last did not take effect."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # As long as the operation lies there, it is known that what it noted may not count.
            with suppress(OSError, BsdError):
                self.entry_notes.drop(int(begun.name.partition("_")[0]))
                begun.unlink()
        with suppress(OSError):  # others lie there, or it was never made
            self.directory.rmdir()

    def settle(self, operation: KeptOperation, *, happened: bool) -> None:
        """Note of a pending operation what the session told."""
        self._begun = operation.path
        if happened:
            self.done()
        else:
            self.discard()

    def forget(self, entry_id: str) -> int:
        """Keep nothing any more of what an entry was; returns how many of its lines were kept.

        That it was changed, and by what, stays known. Raises HistoryDamaged, NotFound, Unavailable.
        """
        forgotten = 0
        for operation in self.operations():
            lines = self.lines(operation)
            if any(_is_kept_of(line, entry_id) for line in lines):
                forgotten += sum(_is_kept_of(line, entry_id) for line in lines)
                try:
                    _write_without(operation.path, operation.entries, entry_id)
                except OSError as error:
                    raise os_problem(error, f"writing {operation.path}") from error
        return forgotten

    def _names(self) -> list[tuple[int, str]]:
        try:
            names = os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise os_problem(error, f"reading {self.directory}") from error
        return sorted((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))

    def _next_number(self) -> int:
        names = self._names()
        return names[-1][0] + 1 if names else 1


class _Recorder:
    """Says of each edit how it is taken back."""

    def __init__(self, source: Readable, store: SessionStore, keeps: Mapping[int, Keep]) -> None:
        self._source = source
        self._store = store
        self._keeps = keeps

    def record(self, edit: Edit, about: TouchedLine) -> tuple[dict[str, Any], bytes]:
        """Describe one edit; the second answer is what must be kept of the former line."""
        keep = self._keeps.get(about.index)
        line: dict[str, Any] = {
            "index": about.index,
            "entry_id": about.entry_id,
            "undoes": about.undoes,
            "was_size": edit.length,
            "now": digest(edit.new),
            "now_size": len(edit.new),
            "ended": edit.new.endswith(b"\n"),
            "ref": keep.ref if keep else None,
            "hash": keep.hash if keep else None,
        }
        kept = b""
        if keep and isinstance(keep.line, FileSpan):
            # The usual case of a backlog: the stored file is the line, and need not be read.
            line["was"], recipe = keep.hash, whole_file(keep.size)
        else:
            was = self._source.read(edit.offset, edit.length)
            line["was"] = digest(was)
            recipe, kept = self._recipe(was, edit.new, keep)
        line["recipe"] = [[str(place), start, end] for place, start, end in recipe]
        line["kept"] = len(kept)
        if about.gap is not None:
            line["gap"] = about.gap.as_json()
        return line, kept

    def _recipe(self, was: bytes, now: bytes, keep: Keep | None) -> tuple[Recipe, bytes]:
        stored = self._store.load(keep.ref, keep.hash) if keep else None
        if keep and isinstance(stored, bytes):
            return write_recipe_with(was, now, stored, list(paths_of(keep.keys).values()))
        return write_recipe(was, now)


def named_files(directory: Path) -> set[tuple[str, str]]:
    """The stored files, as (ref, hash), that one may need who takes back what is kept there.

    Those that recipes name, and those that markers in the bytes that are kept name.
    """
    found: set[tuple[str, str]] = set()
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    for path in (directory / name for name in names if name.endswith((_DONE, _PENDING))):
        try:
            with plain_file(path) as stream:
                for content in _overlapping(stream):
                    found.update(
                        (m[1].decode(), m[2].decode()) for m in NAMED_FILE.finditer(content)
                    )
        except (FileNotFoundError, NotPlain):  # it expired meanwhile
            continue
        except OSError as error:
            raise os_problem(error, f"reading {path}") from error
    return found


def _overlapping(stream: FileIO) -> Iterator[bytes]:
    """A file's blocks, each with the end of the one before, so that none cuts a name in two.

    Read, not mapped: who touches what another has cut off meanwhile would be killed.
    """
    before = b""
    skip_hole(stream)
    while block := stream.read(_BUFFER):
        yield before + block
        before = (before + block)[-_LONGEST_NAMED:]
        skip_hole(stream)


def undone_entries(operations: Sequence[KeptOperation]) -> dict[int, int]:
    """How many lines of each operation are undone now, by its number; redoing undoes an undo."""
    undone = dict.fromkeys((operation.number for operation in operations), 0)
    for operation in reversed(operations):  # what undoes something comes after it
        if operation.act.undoes in undone:
            undone[operation.act.undoes] += operation.entries - undone[operation.number]
    return undone


def _json(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _read_head(path: Path, number: int) -> KeptOperation | None:
    try:
        with plain_stream(path) as stream:
            head = orjson.loads(stream.readline(LARGEST_RECORD))
        act = Act(**{name: head[name] for name in Act.__dataclass_fields__})
        return KeptOperation(number, act, int(head["entries"]), path)
    except (FileNotFoundError, NotPlain, ValueError, KeyError, TypeError):
        return None  # it expired meanwhile, a crash left it, or it is none of ours
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error


def _read_lines(stream: IO[bytes], count: int) -> Iterator[ChangedLine]:
    for _ in range(count):
        found = orjson.loads(stream.readline(LARGEST_RECORD))
        recipe = tuple(Piece(Place(place), start, end) for place, start, end in found["recipe"])
        gap = Gap.of(found["gap"]) if "gap" in found else None
        line = ChangedLine(**{**found, "recipe": recipe, "kept_at": stream.tell(), "gap": gap})
        stream.seek(line.kept, os.SEEK_CUR)
        if stream.read(1) != b"\n":
            raise ValueError("its end is missing")
        yield line


def _is_kept_of(line: ChangedLine, entry_id: str) -> bool:
    return line.entry_id == entry_id and bool(line.recipe or line.ref)


def _write_without(path: Path, count: int, entry_id: str) -> None:
    """Write an operation anew, whose lines of one entry say nothing of what they were."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # by a process that was killed: whoever writes holds the lock
    with plain_stream(path, _BUFFER) as old, open(create_private(new), "wb", _BUFFER) as stream:
        stream.write(old.readline(LARGEST_RECORD))
        for _ in range(count):
            line = orjson.loads(old.readline(LARGEST_RECORD))
            kept = old.read(line["kept"] + 1)
            if line["entry_id"] == entry_id:
                line |= {"recipe": [], "kept": 0, "ref": None, "hash": None}
                kept = b"\n"
            stream.write(_json(line))
            stream.write(kept)
        stream.flush()
        os.fsync(stream.fileno())
    found = path.stat()
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))  # by which its time is up
    os.replace(new, path)
    sync_dir(path.parent)


def with_end(was: bytes, line: ChangedLine, now: bytes) -> bytes:
    """Give a former line the line end that others have added since."""
    return was + b"\n" if not line.ended and now.endswith(b"\n") else was


def as_ended(line: ChangedLine, now: bytes) -> bytes:
    """A line as the operation left it: without the line end that others have added since."""
    return now if line.ended else now.removesuffix(b"\n")


# --- how a line's former bytes are made again from what is kept elsewhere anyway ---

# What can be had from the line as it is now, or from the session's stored files, is not kept twice:
# so content that retention deletes is not kept by the history either.
_WORTH_LOOKING = 64  # bytes: shorter pieces are simply kept


class Place(StrEnum):
    """Where a piece's bytes are."""

    NOW = "now"  # in the line as the operation left it
    STORED = "stored"  # in a stored file
    KEPT = "kept"  # in the history itself


class Piece(NamedTuple):
    """Bytes `[start, end)` of one of these."""

    place: Place
    start: int
    end: int


Recipe = tuple[Piece, ...]


def whole_file(size: int) -> Recipe:
    """The former line is a stored file, byte for byte."""
    return (Piece(Place.STORED, 0, size),)


def write_recipe(was: bytes, now: bytes) -> tuple[Recipe, bytes]:
    """Say how `was` is made from `now`, and what must be kept for it: all between their ends."""
    limit = min(len(was), len(now))
    head = _common(limit, lambda length: was[:length] == now[:length])
    tail = _common(limit - head, lambda length: was[len(was) - length :] == now[-length:])
    kept = was[head : len(was) - tail]
    pieces = (
        Piece(Place.NOW, 0, head),
        Piece(Place.KEPT, 0, len(kept)),
        Piece(Place.NOW, len(now) - tail, len(now)),
    )
    return tuple(piece for piece in pieces if piece.end > piece.start), kept


def write_recipe_with(
    was: bytes, now: bytes, stored: bytes, paths: Collection[ValuePath]
) -> tuple[Recipe, bytes]:
    """The same, where a stored file has the values of some paths."""
    pieces: list[Piece] = []
    kept = bytearray()
    done = seen = 0
    for start, end, there in _shared(was, stored, paths):
        seen = _between(was[done:start], now, seen, pieces, kept)
        pieces.append(Piece(Place.STORED, there, there + end - start))
        done = end
    _between(was[done:], now, seen, pieces, kept)
    return tuple(pieces), bytes(kept)


def follow(recipe: Recipe, now: bytes, stored: bytes, kept: bytes) -> bytes:
    """Make the former line; wrong ingredients make a wrong one, so check its hash."""
    source = {Place.NOW: now, Place.STORED: stored, Place.KEPT: kept}
    return b"".join(source[place][start:end] for place, start, end in recipe)


def _common(limit: int, equal: Callable[[int], bool]) -> int:
    """The greatest length up to `limit` for which `equal` holds: it holds for all below, too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if equal(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _shared(
    was: bytes, stored: bytes, paths: Collection[ValuePath]
) -> Iterator[tuple[int, int, int]]:
    """Values that stand in both, in order: start and end in `was`, start in `stored`."""
    found = []
    for path in paths:
        try:
            (start, end), (there, until) = find(was, [path])[path], find(stored, [path])[path]
        except SpliceError:  # not in both, or not to be told apart: kept as it stands
            continue
        if was[start:end] == stored[there:until]:
            found.append((start, end, there))
    done = 0
    for start, end, there in sorted(found):
        if start >= done:  # a value inside another is there already
            yield start, end, there
            done = end


def _between(was: bytes, now: bytes, seen: int, pieces: list[Piece], kept: bytearray) -> int:
    """Add what stands between two values; returns how far `now` has been used."""
    if len(was) > _WORTH_LOOKING and (at := now.find(was, seen)) >= 0:
        pieces.append(Piece(Place.NOW, at, at + len(was)))
        return at + len(was)
    if was:
        pieces.append(Piece(Place.KEPT, len(kept), len(kept) + len(was)))
        kept += was
    return seen
