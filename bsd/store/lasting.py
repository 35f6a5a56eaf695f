"""What is known of entries for as long as their session is there, beside its history.

`undone.json` names the entries whose extraction somebody has taken back: they stay inline until
they are extracted by hand or freed. `restored.json` holds each `_restored` that bsd has set, and
what stood in its place before bsd did.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from bsd.foundation.atomic import read_plain, sync_dir, write_private
from bsd.foundation.errors import Unavailable, os_problem
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger

UNDONE, RESTORED = "undone.json", "restored.json"
DAMAGED = ".damaged"  # what one that cannot be read is called once another has taken its place

_VERSION = 1
_log = get_logger("history")

# Of each entry: every `_restored` that bsd has set, and what stood there before bsd (None:
# nothing). Values are JSON as it stands in the line.
Stamps = dict[str, dict[bytes, bytes | None]]


@immutable
class Stamp:
    """A `_restored` that a restoration sets. Values are JSON as it stands in a line."""

    entry_id: str
    value: bytes
    present: bytes | None  # what it takes the place of; None: there is none
    original: bytes | None  # what the original line has that is kept; None: it has none


@immutable
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


class Lasting:
    """Both files of one session. Whoever writes holds bsd's own lock of the session."""

    def __init__(self, directory: Path, name: SessionName) -> None:
        self.undone = Undone(directory / UNDONE, name)
        self.restored = Restored(directory / RESTORED, name)

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

    def join(self, other: Lasting) -> None:
        """Take over what the files of another directory say, and remove them."""
        self.undone.join(other.undone)
        self.restored.join(other.restored)


class _Document:
    """A JSON file that says something of entries, by their ids."""

    def __init__(self, path: Path, name: SessionName) -> None:
        self.path = path
        self._name = name

    @property
    def is_there(self) -> bool:
        return os.path.lexists(self.path)

    def _read(self) -> dict[str, Any]:
        """What it says; raises Unavailable if it cannot be read."""
        try:
            entries = orjson.loads(read_plain(self.path))["entries"]
            if not isinstance(entries, dict):
                raise TypeError("no entries")  # noqa: TRY301 - as damaged as the rest
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise os_problem(error, f"reading {self.path}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                f"{self.path} is damaged ({error})",
                hint="bring it back from a backup, or delete it: what it says is forgotten then",
            ) from error
        return entries

    def _read_or_begin_anew(self) -> dict[str, Any]:
        """The same for who goes on to write: nothing is restored later for a damaged file."""
        try:
            return self._read()
        except Unavailable as problem:
            aside = self.path.with_suffix(DAMAGED)
            _log.warning("A damaged file is put aside", problem=problem.message, aside=str(aside))
            os.replace(self.path, aside)
            return {}

    def _write(self, entries: Mapping[str, Any]) -> None:
        try:
            if entries:
                head = {"version": _VERSION, "session": str(self._name), "entries": entries}
                write_private(self.path, orjson.dumps(head))
            elif self.is_there:
                self.path.unlink()
                sync_dir(self.path.parent)
        except OSError as error:
            raise os_problem(error, f"writing {self.path}") from error


class Undone(_Document):
    """The entries whose extraction is taken back.

    Each has the numbers of the operations that said so, negative where they said that it is over:
    so what one said goes with it if it does not take effect.
    """

    def entries(self, in_vain: Collection[int] = ()) -> frozenset[str]:
        """Their ids; operations that were `in_vain` said nothing."""
        found = set()
        for entry_id, numbers in self._read().items():
            told = [number for number in numbers if abs(number) not in in_vain]
            if told and told[-1] > 0:
                found.add(entry_id)
        return frozenset(found)

    def note(self, number: int, undone: Iterable[str], freed: Iterable[str]) -> None:
        """Note what an operation says, that is about to take effect."""
        before = self._read_or_begin_anew()
        events = {one: told[-1:] for one, told in before.items() if told and told[-1] > 0}
        for entry_id in undone:
            events[entry_id] = [*events.get(entry_id, ()), number]
        for entry_id in freed:
            if entry_id in events:
                events[entry_id] = [*events[entry_id], -number]
        if events != before:
            self._write(events)

    def free(self, entry_ids: Collection[str]) -> bool:
        """Forget entries at once, since nothing else changes; whether one was known."""
        events = self._read_or_begin_anew() if self.is_there else {}
        left = {one: told for one, told in events.items() if one not in entry_ids}
        if len(left) < len(events):
            self._write(left)
        return len(left) < len(events)

    def drop(self, number: int) -> None:
        """Forget what one operation said."""
        if not self.is_there:
            return
        events = self._read_or_begin_anew()
        told = {one: [n for n in numbers if abs(n) != number] for one, numbers in events.items()}
        left = {one: numbers for one, numbers in told.items() if numbers}
        if left != events:
            self._write(left)

    def join(self, other: Undone) -> None:
        """Take over what another file says, and remove it: both are settled."""
        if other.is_there:
            self._write({**other._read_or_begin_anew(), **self._read_or_begin_anew()})
            other.path.unlink(missing_ok=True)


class Restored(_Document):
    """Each `_restored` that bsd has set."""

    def stamps(self) -> Stamps:
        """All that is known; raises Unavailable."""
        return _stamps_of(self._read())

    def add(self, stamps: Iterable[Stamp]) -> None:
        """Note stamps that are about to be set."""
        known = _stamps_of(self._read_or_begin_anew())
        learn(known, stamps)
        self._write(_as_json(known))

    def join(self, other: Restored) -> None:
        """Take over what another file says, and remove it."""
        if other.is_there:
            known = _stamps_of(self._read_or_begin_anew())
            for entry_id, values in _stamps_of(other._read_or_begin_anew()).items():
                known[entry_id] = {**values, **known.get(entry_id, {})}
            self._write(_as_json(known))
            other.path.unlink(missing_ok=True)


def _stamps_of(entries: Mapping[str, Any]) -> Stamps:
    return {
        entry_id: {
            value.encode("latin-1"): None if before is None else before.encode("latin-1")
            for value, before in values.items()
        }
        for entry_id, values in entries.items()
    }


def _as_json(known: Stamps) -> dict[str, Any]:
    # As text that any bytes can be.
    return {
        entry_id: {
            value.decode("latin-1"): None if before is None else before.decode("latin-1")
            for value, before in values.items()
        }
        for entry_id, values in known.items()
    }


def session_of(path: Path) -> SessionName | None:
    """Whose file one is, as it says; None if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return SessionName.parse(str(orjson.loads(read_plain(path))["session"]))
    return None
