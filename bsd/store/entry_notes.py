"""What is noted of entries as long as their session is there, and who else under the root knows.

Beside the history of a session, `undone.json` names the entries whose extraction somebody has taken
back: they stay inline until they are extracted by hand or freed. `restored.json` holds each
`_restored` that bsd has set, and what stood in its place before bsd did.

A copy of a session (a fork, a rename, a session that was begun anew under its old lines) has
neither; what is kept of the session that it was copied from speaks for it, too: original lines in
all stores, notes of all sessions.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson
import structlog

from bsd.core.errors import BsdError, Unavailable, os_problem
from bsd.core.files import LARGEST_RECORD, read_plain, sync_dir, write_private
from bsd.core.layout import Layout, SessionName
from bsd.store.extracted import Missing, SessionStore

UNDONE, RESTORED = "undone.json", "restored.json"
DAMAGED = ".damaged"  # what one that cannot be read is called once another has taken its place

_VERSION = 1
_log = structlog.stdlib.get_logger(module="history")
_Told = TypeVar("_Told")

# Of each entry: every `_restored` that bsd has set, and what stood there before bsd (None:
# nothing). Values are JSON as it stands in the line.
Stamps = dict[str, dict[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """A `_restored` that a restoration sets. Values are JSON as it stands in a line."""

    entry_id: str
    value: bytes
    present: bytes | None  # what it takes the place of; None: there is none
    original: bytes | None  # what the original line has that is kept; None: it has none


@dataclass(frozen=True, slots=True)
class Noting:
    """What a plan wants to be known of entries from then on, whatever expires."""

    stamps: tuple[Stamp, ...] = ()
    undone: tuple[str, ...] = ()  # their extraction is taken back
    freed: tuple[str, ...] = ()  # if it was, that is over

    def __bool__(self) -> bool:
        return bool(self.stamps or self.undone or self.freed)

    def __add__(self, other: Noting) -> Noting:
        return Noting(
            self.stamps + other.stamps, self.undone + other.undone, self.freed + other.freed
        )


NOTHING = Noting()


def learn(known: Stamps, stamps: Iterable[Stamp]) -> None:
    """Add stamps to what is known: each stands for what stood there before the first one."""
    for stamp in stamps:
        of_entry = known.setdefault(stamp.entry_id, {})
        before = stamp.original
        for earlier in (stamp.original, stamp.present):
            if earlier is not None and earlier in of_entry:
                before = of_entry[earlier]
        of_entry[stamp.value] = before


class EntryNotes:
    """Both files of one session. Whoever writes holds bsd's own lock of the session."""

    def __init__(self, directory: Path, name: SessionName) -> None:
        self.undone = UndoneNotes(directory / UNDONE, name)
        self.restored = RestoredNotes(directory / RESTORED, name)

    def note(self, number: int, noting: Noting) -> None:
        """Make durable what an operation wants noted before it takes effect; raises BsdError.

        Of all operations before it must be known whether they took effect.
        """
        if noting.stamps:
            self.restored.add(noting.stamps)
        if noting.undone or noting.freed:
            self.undone.note(number, noting.undone, noting.freed)

    def drop(self, number: int) -> None:
        """An operation did not take effect. Its stamps stand in no line: they may stay."""
        self.undone.drop(number)

    def join(self, other: EntryNotes) -> None:
        """Take over what the files of another directory say, and remove them."""
        self.undone.join(other.undone)
        self.restored.join(other.restored)


class _Damaged(Unavailable):
    """A file cannot be understood."""


class _Document(ABC, Generic[_Told]):
    """A JSON file that tells something of entries."""

    def __init__(self, path: Path, name: SessionName) -> None:
        self.path = path
        self._name = name

    @property
    def is_there(self) -> bool:
        return os.path.lexists(self.path)

    @abstractmethod
    def _understand(self, told: Any) -> _Told:
        """What the file tells, from its JSON; None where there is no file."""

    def _read(self) -> _Told:
        """What it tells; raises Unavailable if it cannot be read."""
        try:
            return self._understand(orjson.loads(read_plain(self.path, LARGEST_RECORD))["entries"])
        except (FileNotFoundError, NotADirectoryError):
            return self._understand(None)
        except OSError as error:
            raise os_problem(error, f"reading {self.path}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _Damaged(
                f"{self.path} is damaged ({error})",
                hint="bring it back from a backup, or delete it: what it says is forgotten then",
            ) from error

    def _read_or_begin_anew(self) -> _Told:
        """The same for who goes on to write: a damaged file keeps nobody from his content."""
        try:
            return self._read()
        except _Damaged as problem:
            aside = self.path.with_suffix(DAMAGED)
            try:
                os.replace(self.path, aside)
            except OSError as error:
                raise os_problem(error, f"renaming {self.path}") from error
            _log.warning("A damaged file is put aside", problem=problem.message, aside=str(aside))
            return self._understand(None)

    def _write(self, told: list[Any] | dict[str, Any]) -> None:
        try:
            if told:
                head = {"version": _VERSION, "session": str(self._name), "entries": told}
                write_private(self.path, orjson.dumps(head))
            elif self.is_there:
                self.path.unlink()
                sync_dir(self.path.parent)
        except OSError as error:
            raise os_problem(error, f"writing {self.path}") from error


# What operations said, one after the other: the number of each (negative: it is over), and of
# which entries. So what one said goes with it if it does not take effect.
_Said = list[tuple[int, list[str]]]


class UndoneNotes(_Document[_Said]):
    """The entries whose extraction is taken back."""

    def entries(self, in_vain: Collection[int] = ()) -> frozenset[str]:
        """Their ids; operations that were `in_vain` said nothing."""
        return frozenset(_sum(self._read(), in_vain))

    def note(self, number: int, undone: Collection[str], freed: Collection[str]) -> None:
        """Note what an operation says, that is about to take effect."""
        before = self._read_or_begin_anew()
        known = _sum(before)
        latest = max((abs(one) for one, _ in before), default=0)
        said = [(latest, sorted(known)), (number, sorted(undone))]
        said.append((-number, sorted(known.intersection(freed))))
        self._replace(before, [one for one in said if one[1]])

    def free(self, entry_ids: Collection[str]) -> bool:
        """Forget entries at once, since nothing else changes; whether one was known."""
        before = self._read_or_begin_anew() if self.is_there else []
        left = [(number, [one for one in ids if one not in entry_ids]) for number, ids in before]
        return self._replace(before, [one for one in left if one[1]])

    def drop(self, number: int) -> None:
        """Forget what one operation said."""
        before = self._read_or_begin_anew() if self.is_there else []
        self._replace(before, [one for one in before if abs(one[0]) != number])

    def join(self, other: UndoneNotes) -> None:
        """Take over what another file says, and remove it."""
        if other.is_there:
            mine, theirs = self._read_or_begin_anew(), other._read_or_begin_anew()
            self._replace(mine, [*theirs, *mine])
            other.path.unlink(missing_ok=True)

    def _replace(self, before: _Said, said: _Said) -> bool:
        """Write what is said now, if that is something else than before; whether it is."""
        if said != before:
            self._write(said)
        return said != before

    def _understand(self, told: Any) -> _Said:
        return [(int(number), list(ids)) for number, ids in told or ()]


def _sum(said: _Said, in_vain: Collection[int] = ()) -> set[str]:
    found: set[str] = set()
    for number, entry_ids in said:
        if abs(number) not in in_vain:
            (found.update if number > 0 else found.difference_update)(entry_ids)
    return found


class RestoredNotes(_Document[Stamps]):
    """Each `_restored` that bsd has set."""

    def stamps(self) -> Stamps:
        """All that is known; raises Unavailable."""
        return self._read()

    def add(self, stamps: Iterable[Stamp]) -> None:
        """Note stamps that are about to be set."""
        known = self._read_or_begin_anew()
        learn(known, stamps)
        self._write(_as_json(known))

    def join(self, other: RestoredNotes) -> None:
        """Take over what another file says, and remove it."""
        if other.is_there:
            known = self._read_or_begin_anew()
            for entry_id, values in other._read_or_begin_anew().items():
                known[entry_id] = {**values, **known.get(entry_id, {})}
            self._write(_as_json(known))
            other.path.unlink(missing_ok=True)

    def _understand(self, told: Any) -> Stamps:
        return {
            entry_id: {_bytes(value): before and _bytes(before) for value, before in values.items()}
            for entry_id, values in (told or {}).items()
        }


def _as_json(known: Stamps) -> dict[str, Any]:
    return {
        entry_id: {_text(value): before and _text(before) for value, before in values.items()}
        for entry_id, values in known.items()
    }


def _text(value: bytes) -> str:
    """As text that any bytes can be."""
    return value.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


# --- who else knows ---


@dataclass(frozen=True, slots=True)
class KeptLine:
    """The original line of an entry, as it was kept."""

    entry_id: str
    line: bytes
    keys: tuple[str, ...]  # paths of the values that left
    own: bool  # it lies in the session's own store


class RootRecords:
    """Everything under one root, as it is asked about one session."""

    def __init__(self, layout: Layout, store: SessionStore, notes: EntryNotes) -> None:
        self._layout = layout
        self._store = store
        self._notes = notes

    def stamps(self) -> Stamps:
        """What is noted of this session."""
        return _stamps(self._notes.restored)

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        """What is noted of others, session by session."""
        for directory in (*_in(self._layout.history), *_in(self._layout.trash, "_history_")):
            others = EntryNotes(directory, self._store.name).restored
            if others.path != self._notes.restored.path and others.is_there:
                yield _stamps(others)

    def originals(self, entry_ids: Collection[str]) -> Iterator[KeptLine]:
        """The lines that are kept of entries with these ids in any store, the oldest first."""
        stores: dict[Path, SessionStore] = {}
        for entry_id in entry_ids:
            for place in reversed(self._store.of_entry(entry_id)):
                line = self._store.load(place.ref, place.hash)
                if isinstance(line, Missing):
                    continue  # this one tells nothing
                at, archive = place.directory, self._store.archive
                if place.pack:
                    record = place.record()
                else:
                    other = SessionStore(self._layout, self._store.name, at)
                    store = stores.setdefault(at, other)
                    record = store.index.records.get(f"{place.ref}.json")
                keys = record.keys if record else ()
                own = {self._store.directory, archive.directory if archive else None}
                yield KeptLine(entry_id, line, keys, own=at in own)


def _stamps(restored: RestoredNotes) -> Stamps:
    try:
        return restored.stamps()
    except BsdError as problem:  # what else is kept may tell as much
        _log.warning(f"{RESTORED} tells nothing", problem=problem.message)
        return {}


def _in(directory: Path, word: str = "") -> list[Path]:
    """What lies in a directory and has a word in its name."""
    try:
        return [directory / name for name in sorted(os.listdir(directory)) if word in name]
    except OSError:  # there is nothing, or nobody may look
        return []
