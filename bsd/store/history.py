"""The history of a session: the data that undo needs for each operation (SPEC §6).

Each operation has one file, in the session's directory. The file is named `….pending` and durable
before the session file changes, and is renamed to `….jsonl` afterwards. Whether a pending operation
took effect can be seen in the session itself (`changed_lines`).

The file begins with a header of figures. Then each changed line has a line of JSON, followed by
those bytes of its former state that are stored nowhere else (`recipes`). An operation may also
remove or insert a line: its new or former state then has no bytes. For a removed line, the record
names the two neighbouring lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

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
from bsd.store.originals import (
    FileSpan,
    Missing,
    OriginalStore,
    SessionStore,
    StoredOriginal,
    digest,
)
from bsd.store.recipes import (
    Piece,
    Place,
    Recipe,
    follow,
    whole_file,
    write_recipe,
    write_recipe_with,
)
from bsd.transcripts.change import Edit, Readable
from bsd.transcripts.spans import paths_of

_VERSION = 1
_NAME = re.compile(r"([0-9]{6,})_([a-z_]+)\.(jsonl|pending)")
_DONE, _PENDING = ".jsonl", ".pending"
_BUFFER = 1 << 20
_CLOCK_TICK_SECONDS = 5.0  # a file's time may be older than the time in its header
_LONGEST_NAMED = 1024  # bytes: a name of 255, a hash, and the JSON around them
# How a marker, and a line of the history, name a stored file; gateways write some lines with
# spaces.
NAMED_FILE = re.compile(rb'"ref": ?"([A-Za-z0-9._~-]+)", ?"hash": ?"(sha256:[0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A line beside a gap, as the operation left it."""

    entry_id: str | None
    hash: str  # `sha256:…` of the raw line, with its line end

    def is_like(self, other: Neighbour) -> bool:
        """Return whether `other` is the same entry, even if its line has changed since."""
        if self.entry_id is not None and self.entry_id == other.entry_id:
            return True
        return self.hash == other.hash


@dataclass(frozen=True, slots=True)
class Gap:
    """The nearest lines that stayed, before and after a removed line; None: an end of the file."""

    after: Neighbour | None
    before: Neighbour | None

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        return tuple(each for each in (self.after, self.before) if each is not None)

    def as_json(self) -> list[Any]:
        return [each and [each.entry_id, each.hash] for each in (self.after, self.before)]

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Read the output of `as_json`; raises ValueError, TypeError."""
        after, before = (each and Neighbour(*each) for each in document)
        return cls(after or None, before or None)


class HistoryDamaged(Unavailable):
    """The file of an operation cannot be read."""


@dataclass(frozen=True, slots=True)
class TouchedLine:
    """The line that an edit changes; a plan has one for each of its edits."""

    index: int  # 0-based line number
    entry_id: str | None
    undoes: int | None = None  # position of the line in the operation that is undone
    gap: Gap | None = None  # for a line that is removed


@dataclass(frozen=True, slots=True)
class Act:
    """The kind and figures of an operation; sizes are bytes of the session file."""

    action: str  # extract, restore, edit, undo, …
    actor: str
    at: str  # ISO 8601, Z
    values: int
    bytes_before: int
    bytes_after: int
    undoes: int | None = None  # number of the operation that this operation undid
    cut_reason: str | None = None  # why values in context left then; None: none left


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the history."""

    number: int  # counts the operations of the session, from 1
    act: Act
    entries: int  # number of changed lines
    path: Path

    @property
    def pending(self) -> bool:
        """Whether it is not yet recorded that the operation took effect."""
        return self.path.name.endswith(_PENDING)

    def __str__(self) -> str:
        return f"operation {self.number} ({self.act.action}, {self.act.at})"


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line that an operation changed. Hashes and sizes are of the raw line with its end.

    `was_size` is 0 for an inserted line, `now_size` is 0 for a removed line.
    """

    index: int  # 0-based line number before the operation; a new line was inserted before it
    entry_id: str | None
    was: str
    was_size: int
    now: str
    now_size: int
    ended: bool  # False: the last line, without a line end
    undoes: int | None
    ref: str | None  # the stored file that the recipe refers to
    hash: str | None
    recipe: Recipe
    kept_at: int  # offset of the kept bytes in the operation's file
    kept: int
    gap: Gap | None = None

    @property
    def came(self) -> bool:
        """Whether the operation inserted the line."""
        return self.was_size == 0

    @property
    def went(self) -> bool:
        """Whether the operation removed the line."""
        return self.now_size == 0


class History:
    """The operations of a session. A writer holds bsd's own lock of the session."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self.name = name
        self._layout = layout
        self._begun: Path | None = None

    @cached_property
    def directory(self) -> Path:
        return self._layout.history_dir(self.name)

    @cached_property
    def entry_notes(self) -> EntryNotes:
        """Notes that outlast the operations."""
        return EntryNotes(self.directory, self.name)

    # --- reading ---

    def operations(self) -> list[Operation]:
        """Return all operations, the oldest first; half-written files are skipped."""
        return [found for number, name in self._names() if (found := self._read(number, name))]

    def pending(self) -> list[Operation]:
        """Return the operations for which it is not recorded whether they took effect."""
        names = [each for each in self._names() if each[1].endswith(_PENDING)]
        return [found for number, name in names if (found := self._read(number, name))]

    def may_be_changed_since(self, moment: float) -> bool:
        """Return False if no operation is as new as `moment` (epoch seconds), by the file times.

        No file is read, since most sessions of a root have not changed for a long time.
        """
        for _, name in reversed(self._names()):
            with suppress(OSError):
                if (self.directory / name).lstat().st_mtime >= moment - _CLOCK_TICK_SECONDS:
                    return True
        return False

    def _names(self) -> list[tuple[int, str]]:
        try:
            names = os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise os_problem(error, f"reading {self.directory}") from error
        return sorted((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))

    def _read(self, number: int, name: str) -> Operation | None:
        path = self.directory / name
        try:
            with plain_stream(path) as stream:
                head = orjson.loads(stream.readline(LARGEST_RECORD))
            head.setdefault("cut_reason")  # missing in operations of older versions
            act = Act(**{name: head[name] for name in Act.__dataclass_fields__})
            return Operation(number, act, int(head["entries"]), path)
        except (FileNotFoundError, NotPlain, ValueError, KeyError, TypeError):
            return None  # expired, left by a crash, or not written by bsd
        except OSError as error:
            raise os_problem(error, f"reading {path}") from error

    def lines(self, operation: Operation) -> list[ChangedLine]:
        """Return the lines that an operation changed; raises NotFound, HistoryDamaged."""
        try:
            with plain_stream(operation.path, _BUFFER) as stream:
                stream.readline(LARGEST_RECORD)
                return list(_read_lines(stream, operation.entries))
        except FileNotFoundError:
            raise NotFound(f"{operation} of {self.name} has expired") from None
        except OSError as error:
            raise os_problem(error, f"reading {operation.path}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryDamaged(
                f"{operation} of {self.name} cannot be undone: "
                f"{operation.path} is damaged ({error})"
            ) from error

    def former(
        self, operation: Operation, line: ChangedLine, now: bytes, stored: OriginalStore
    ) -> bytes | Missing:
        """Return the bytes of a line before the operation.

        Args:
            operation: the operation.
            line: the line, from `lines`.
            now: the bytes of the line after the operation.
            stored: the store of the session.

        Returns:
            The bytes; or why the stored file that they need is missing.
        """
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

    # --- writing ---

    def begin(  # noqa: PLR0913 - a plan, its session, and the data to keep
        self,
        act: Act,
        edits: Sequence[Edit],
        touched: Sequence[TouchedLine],
        originals: Iterable[StoredOriginal],
        source: Readable,
        store: SessionStore,
        noting: Noting = NOTHING,
        *,
        keeps_former: bool = True,
    ) -> int:
        """Make the undo data of a plan and its notes about entries durable.

        `done` or `discard` must follow.

        Args:
            act: kind and figures of the operation.
            edits: the edits; each replaces, removes or inserts one line.
            touched: the line of each edit.
            originals: lines that the store holds by now; recipes refer to them.
            source: the session as planned.
            store: the store of the session.
            noting: the notes about entries.
            keeps_former: False records only that the lines were changed, so that no content remains
                (for `forget`).

        Returns:
            The number of the operation.

        Raises:
            Unavailable: the disk is full, or a file is damaged.
            Forbidden: bsd may not write here.
        """
        names = self._names()
        number = names[-1][0] + 1 if names else 1
        path = self.directory / f"{number:06d}_{act.action}{_PENDING}"
        by_index = {original.index: original for original in originals}
        head = {"version": _VERSION, "session": str(self.name), "operation": number}
        try:
            make_durable_dir(self.directory)
            with open(create_private(path), "wb", _BUFFER) as stream:
                self._begun = path
                stream.write(_json({**head, "entries": len(edits), **asdict(act)}))
                for edit, about in zip(edits, touched, strict=True):
                    original = by_index.get(about.index)
                    recorded = _recorded if keeps_former else _recorded_alone
                    stream.writelines(recorded(edit, about, original, source, store))
                stream.flush()
                os.fchmod(stream.fileno(), 0o600)
                os.fsync(stream.fileno())
            sync_dir(self.directory)
            self.entry_notes.note(number, noting)
        except BaseException as error:  # an interrupt, too: the operation does not take place
            self.discard()
            if isinstance(error, OSError):
                raise os_problem(error, f"writing to {self.directory}") from error
            raise
        return number

    def done(self) -> None:
        """Record that the last operation of `begin` took effect."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # Not synced: until the next operation is synced, the session itself shows the effect.
            with suppress(OSError):
                os.rename(begun, begun.with_suffix(_DONE))

    def discard(self) -> None:
        """Remove the last operation of `begin`, which did not take effect."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # While the file exists, its notes are known to be without effect.
            with suppress(OSError, BsdError):
                self.entry_notes.drop(int(begun.name.partition("_")[0]))
                begun.unlink()
        with suppress(OSError):  # other files are left, or the directory does not exist
            self.directory.rmdir()

    def note_effect(self, operation: Operation, *, happened: bool) -> None:
        """Record whether a pending operation took effect."""
        self._begun = operation.path
        if happened:
            self.done()
        else:
            self.discard()

    def entries(self) -> set[str | None]:
        """Return the ids of the entries of which it has former lines."""
        return {
            line.entry_id
            for operation in self.operations()
            for line in self.lines(operation)
            if line.recipe or line.ref
        }

    def forget(self, entry_id: str | None) -> int:
        """Remove the former lines of an entry from all operations; return how many were removed.

        The history still tells that the entry was changed, and by which action. Raises
        HistoryDamaged, NotFound, Unavailable.

        Args:
            entry_id: None means all entries without an id.
        """
        forgotten = 0
        for operation in self.operations():
            lines = [
                line
                for line in self.lines(operation)
                if line.entry_id == entry_id and (line.recipe or line.ref)
            ]
            if lines:
                forgotten += len(lines)
                try:
                    _write_without(operation.path, operation.entries, entry_id)
                except OSError as error:
                    raise os_problem(error, f"writing {operation.path}") from error
        return forgotten


def _recorded(
    edit: Edit,
    about: TouchedLine,
    original: StoredOriginal | None,
    source: Readable,
    store: SessionStore,
) -> tuple[bytes, bytes, bytes]:
    """Return the record of an edit in the operation's file: JSON, kept bytes, a line end."""
    kept = b""
    if original and isinstance(original.line, FileSpan):
        # The usual case of a backlog: the stored file is the line, so it need not be read.
        hash_, recipe = original.hash, whole_file(original.size)
    else:
        was = source.read(edit.offset, edit.length)
        hash_ = digest(was)
        stored = store.load(original.ref, original.hash) if original else None
        if original and isinstance(stored, bytes):
            paths = list(paths_of(original.keys).values())
            recipe, kept = write_recipe_with(was, edit.new, stored, paths)
        else:
            recipe, kept = write_recipe(was, edit.new)
    line: dict[str, Any] = {
        "index": about.index,
        "entry_id": about.entry_id,
        "undoes": about.undoes,
        "was_size": edit.length,
        "now": digest(edit.new),
        "now_size": len(edit.new),
        "ended": edit.new.endswith(b"\n"),
        "ref": original.ref if original else None,
        "hash": original.hash if original else None,
        "was": hash_,
        "recipe": [[str(place), start, end] for place, start, end in recipe],
        "kept": len(kept),
    }
    if about.gap is not None:
        line["gap"] = about.gap.as_json()
    return _json(line), kept, b"\n"


def _recorded_alone(
    edit: Edit, about: TouchedLine, _: StoredOriginal | None, source: Readable, store: SessionStore
) -> tuple[bytes, bytes, bytes]:
    """Return the record of an edit without the data that undo needs."""
    recorded, _kept, end = _recorded(edit, about, None, source, store)
    return _json(orjson.loads(recorded) | {"recipe": [], "kept": 0}), b"", end


def _json(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _read_lines(stream: IO[bytes], count: int) -> Iterator[ChangedLine]:
    for _ in range(count):
        found = orjson.loads(stream.readline(LARGEST_RECORD))
        recipe = tuple(Piece(Place(place), start, end) for place, start, end in found["recipe"])
        gap = Gap.from_json(found["gap"]) if "gap" in found else None
        line = ChangedLine(**{**found, "recipe": recipe, "kept_at": stream.tell(), "gap": gap})
        stream.seek(line.kept, os.SEEK_CUR)
        if stream.read(1) != b"\n":
            raise ValueError("its end is missing")
        yield line


def _write_without(path: Path, count: int, entry_id: str | None) -> None:
    """Rewrite an operation's file without the former lines of an entry."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # of a killed process: the caller holds the lock
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
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))  # this time decides when it expires
    os.replace(new, path)
    sync_dir(path.parent)


# --- facts derived from the operations ---


def named_files(directory: Path) -> set[tuple[str, str]]:
    """Return the stored files, as (ref, hash), that undoing the operations may need.

    Recipes refer to them, and so do markers in the kept bytes.
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
                end = b""  # of the block before, so that no name is cut in two
                skip_hole(stream)
                while block := stream.read(_BUFFER):
                    matches = NAMED_FILE.finditer(end + block)
                    found.update((match[1].decode(), match[2].decode()) for match in matches)
                    end = (end + block)[-_LONGEST_NAMED:]
                    skip_hole(stream)
        except (FileNotFoundError, NotPlain):  # expired since the listing
            continue
        except OSError as error:
            raise os_problem(error, f"reading {path}") from error
    return found


def undone_entries(operations: Sequence[Operation]) -> dict[int, int]:
    """Return how many lines of each operation are undone now; redoing undoes an undo."""
    undone = dict.fromkeys((operation.number for operation in operations), 0)
    for operation in reversed(operations):  # an undo comes after the operation that it undoes
        if operation.act.undoes in undone:
            undone[operation.act.undoes] += operation.entries - undone[operation.number]
    return undone


def with_end(was: bytes, line: ChangedLine, now: bytes) -> bytes:
    """Return a former line, with the line end that another program has added since."""
    return was + b"\n" if not line.ended and now.endswith(b"\n") else was


def as_ended(line: ChangedLine, now: bytes) -> bytes:
    """Return a line without a line end that another program has added since the operation."""
    return now if line.ended else now.removesuffix(b"\n")
