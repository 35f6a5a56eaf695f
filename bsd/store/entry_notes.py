"""Notes about entries that last as long as their session: three files beside its history.

`undone.json` lists the entries whose extraction a user has undone: they stay inline until they are
extracted by hand or freed. `restored.json` holds each `_restored` that bsd has set, and the value
before it. `forgotten.json` holds the hashes of lines that the session has forgotten, without their
text: copies in other sessions do not restore these lines (SPEC §7a).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
import structlog

from bsd.core.errors import Unavailable, os_problem
from bsd.core.files import LARGEST_RECORD, read_plain, sync_dir, write_private
from bsd.core.layout import SessionName

UNDONE, RESTORED, FORGOTTEN = "undone.json", "restored.json", "forgotten.json"
DAMAGED = ".damaged"  # ending of a damaged file after it was renamed

_VERSION = 1
_log = structlog.stdlib.get_logger(module="history")
_T = TypeVar("_T")

# By entry id: each `_restored` that bsd has set, and the value before it (None: no value). Values
# are JSON as it stands in the line.
Stamps = dict[str, dict[bytes, bytes | None]]
# Operation numbers (negative: the operation frees the entries) with entry ids, so that the note of
# an operation that did not take effect can be dropped.
_Undone = list[tuple[int, list[str]]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """A `_restored` that a restore sets. Values are JSON as it stands in a line."""

    entry_id: str
    value: bytes
    present: bytes | None  # the value that it replaces; None: no value
    original: bytes | None  # the value in the stored original line; None: no value


@dataclass(frozen=True, slots=True)
class Noting:
    """The notes of a plan about entries; they are kept after the history has expired."""

    stamps: tuple[Stamp, ...] = ()
    undone: tuple[str, ...] = ()  # entries whose extraction is undone
    freed: tuple[str, ...] = ()  # entries that may be extracted again

    def __bool__(self) -> bool:
        return bool(self.stamps or self.undone or self.freed)

    def __add__(self, other: Noting) -> Noting:
        return Noting(
            self.stamps + other.stamps, self.undone + other.undone, self.freed + other.freed
        )


NOTHING = Noting()


def latest(stamps: Stamps) -> dict[str, Any]:
    """Return the newest `_restored` that bsd has set, by entry id."""
    return {entry_id: orjson.loads(max(of_entry)) for entry_id, of_entry in stamps.items()}


def learn(known: Stamps, stamps: Iterable[Stamp]) -> None:
    """Add stamps to `known`; of several for an entry, the value before the first stamp counts."""
    for stamp in stamps:
        of_entry = known.setdefault(stamp.entry_id, {})
        before = stamp.original
        for earlier in (stamp.original, stamp.present):
            if earlier is not None and earlier in of_entry:
                before = of_entry[earlier]
        of_entry[stamp.value] = before


class EntryNotes:
    """`undone.json` and `restored.json` of a session; a writer holds the session's own lock.

    Reading a damaged file raises Unavailable. Writers rename a damaged file and begin a new one, so
    that it does not block access to the content.
    """

    def __init__(self, directory: Path, name: SessionName) -> None:
        self.directory = directory
        self._name = name
        self._undone_file = directory / UNDONE
        self._restored_file = directory / RESTORED

    @property
    def has_undone(self) -> bool:
        """Whether `undone.json` exists."""
        return os.path.lexists(self._undone_file)

    def undone(self, without_effect: Collection[int] = ()) -> frozenset[str]:
        """Return the ids of entries whose extraction was undone.

        Args:
            without_effect: numbers of operations to ignore, since they did not take effect.
        """
        return frozenset(_sum(_read(self._undone_file, _parse_undone), without_effect))

    def stamps(self) -> Stamps:
        """Return each `_restored` that bsd has set, by entry id."""
        return _read(self._restored_file, _parse_stamps)

    def note(self, number: int, noting: Noting) -> None:
        """Make the notes of an operation durable before it takes effect.

        No earlier operation may still be pending.
        """
        if noting.stamps:
            known = _read_or_begin(self._restored_file, _parse_stamps)
            learn(known, noting.stamps)
            self._write_stamps(known)
        if noting.undone or noting.freed:
            before = _read_or_begin(self._undone_file, _parse_undone)
            known_ids = _sum(before)
            latest = max((abs(earlier) for earlier, _ in before), default=0)
            after = [(latest, sorted(known_ids)), (number, sorted(noting.undone))]
            after.append((-number, sorted(known_ids.intersection(noting.freed))))
            self._write_undone(before, after)

    def free(self, entry_ids: Collection[str]) -> bool:
        """Drop undone entries at once, without an operation; return whether any was dropped."""
        if not self.has_undone:
            return False
        before = _read_or_begin(self._undone_file, _parse_undone)
        after = [(number, [id_ for id_ in ids if id_ not in entry_ids]) for number, ids in before]
        return self._write_undone(before, after)

    def drop(self, number: int) -> None:
        """Drop the notes of an operation without effect; its stamps are in no line, and stay."""
        if self.has_undone:
            before = _read_or_begin(self._undone_file, _parse_undone)
            self._write_undone(before, [each for each in before if abs(each[0]) != number])

    def join(self, other: EntryNotes) -> None:
        """Take over the later notes of another directory, and remove them there."""
        if other.has_undone:
            mine = _read_or_begin(self._undone_file, _parse_undone)
            theirs = _read_or_begin(other._undone_file, _parse_undone)
            self._write_undone(mine, [*mine, *theirs])
            other._undone_file.unlink(missing_ok=True)
        if os.path.lexists(other._restored_file):
            known = _read_or_begin(self._restored_file, _parse_stamps)
            for entry_id, values in _read_or_begin(other._restored_file, _parse_stamps).items():
                known[entry_id] = {**known.get(entry_id, {}), **values}
            self._write_stamps(known)
            other._restored_file.unlink(missing_ok=True)

    def _write_undone(self, before: _Undone, after: _Undone) -> bool:
        after = [(number, ids) for number, ids in after if ids]
        if after != before:
            self._write(self._undone_file, after)
        return after != before

    def _write_stamps(self, known: Stamps) -> None:
        self._write(
            self._restored_file,
            {
                entry_id: {_text(value): before and _text(before) for value, before in of.items()}
                for entry_id, of in known.items()
            },
        )

    def _write(self, path: Path, entries: list[Any] | dict[str, Any]) -> None:
        try:
            if entries:
                document = {"version": _VERSION, "session": str(self._name), "entries": entries}
                write_private(path, orjson.dumps(document))
            elif os.path.lexists(path):
                path.unlink()
                sync_dir(path.parent)
        except OSError as error:
            raise os_problem(error, f"writing {path}") from error


class _Damaged(Unavailable):
    """The content of a file is not valid."""


def _read(path: Path, parse: Callable[[Any], _T]) -> _T:
    """Call `parse` with the `entries` of a file, or with None if it is missing.

    Raises Unavailable.
    """
    try:
        return parse(orjson.loads(read_plain(path, LARGEST_RECORD))["entries"])
    except (FileNotFoundError, NotADirectoryError):
        return parse(None)
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _Damaged(
            f"{path} is damaged ({error})",
            hint="restore it from a backup, or delete it; its notes are then lost",
        ) from error


def _read_or_begin(path: Path, parse: Callable[[Any], _T]) -> _T:
    """Read a file before writing it: a damaged file is renamed and counts as empty."""
    try:
        return _read(path, parse)
    except _Damaged as problem:
        aside = path.with_suffix(DAMAGED)
        try:
            os.replace(path, aside)
        except OSError as error:
            raise os_problem(error, f"renaming {path}") from error
        _log.warning("A damaged file was renamed", problem=problem.message, aside=str(aside))
        return parse(None)


def _parse_undone(entries: Any) -> _Undone:
    return [(int(number), list(ids)) for number, ids in entries or ()]


def _sum(undone: _Undone, without_effect: Collection[int] = ()) -> set[str]:
    found: set[str] = set()
    for number, entry_ids in undone:
        if abs(number) not in without_effect:
            (found.update if number > 0 else found.difference_update)(entry_ids)
    return found


def _parse_stamps(entries: Any) -> Stamps:
    return {
        entry_id: {_bytes(value): before and _bytes(before) for value, before in values.items()}
        for entry_id, values in (entries or {}).items()
    }


def _text(value: bytes) -> str:
    """Return arbitrary bytes as text."""
    return value.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


# --- lines that a session has forgotten ---


def forgotten_in(history: Path) -> frozenset[str]:
    """Return the hashes (`sha256:…`) that the session with this history directory has forgotten.

    A damaged file is logged and counts as empty. Raises BsdError if the file cannot be read.
    """
    path = history / FORGOTTEN
    try:
        return frozenset(map(str, orjson.loads(read_plain(path, LARGEST_RECORD))["hashes"]))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    except (ValueError, LookupError, TypeError) as error:
        _log.warning("Forgotten lines cannot be read", path=str(path), problem=str(error))
        return frozenset()


def note_forgotten(history: Path, name: SessionName, hashes: Collection[str]) -> None:
    """Add hashes to `forgotten.json`, durably; raises OSError, BsdError."""
    known = forgotten_in(history)
    if not known.issuperset(hashes):
        document = {
            "version": _VERSION,
            "session": str(name),
            "hashes": sorted(known.union(hashes)),
        }
        write_private(history / FORGOTTEN, orjson.dumps(document))


def join_forgotten(history: Path, other: Path, name: SessionName) -> None:
    """Take over the hashes of another directory, and remove them there; raises OSError."""
    note_forgotten(history, name, forgotten_in(other))
    (other / FORGOTTEN).unlink(missing_ok=True)
