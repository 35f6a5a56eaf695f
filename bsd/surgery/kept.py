"""A marked line and the original that is kept of it: what is away, and how it comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from sys import maxsize
from typing import Any

from bsd.formats.base import Entry, Format
from bsd.formats.marker import RESTORED, placeholder
from bsd.foundation.errors import Conflict
from bsd.foundation.value_path import ValuePath, parse_path
from bsd.store.extracted import digest
from bsd.transcript.reader import parse_entry
from bsd.transcript.splice import SpliceError, edit, find

_ABSENT = object()


def value_at(entry: Entry, path: ValuePath) -> Any:
    """Return the value at a path, or a mark of its own if there is none: see `is_present`."""
    value: Any = entry
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value


def nothing_away(hint: str = "`bsd context AGENT/SESSION` lists what is extracted") -> Conflict:
    """The answer to whoever asks for what was taken out of an entry that is whole."""
    return Conflict("Entry exists but has no extracted content", hint=hint)


def is_present(entry: Entry, path: ValuePath) -> bool:
    """Whether there is a value at a path, `null` included."""
    return value_at(entry, path) is not _ABSENT


def is_away(entry: Entry, path: ValuePath, entry_id: str) -> bool:
    """Whether this entry's placeholder still stands where the value was.

    In a text that ends with it, or, for a block, in the text block that took its place. If not,
    somebody has changed the value since, and what is there now is theirs.
    """
    value = value_at(entry, path)
    if isinstance(value, dict) and str(value.get("type")).endswith("text"):
        value = value.get("text")
    return isinstance(value, str) and value.endswith(placeholder(entry_id))


def paths_of(keys: Iterable[str]) -> dict[str, ValuePath]:
    """Read a marker's keys; those that are no paths are left out."""
    paths = {}
    for key in keys:
        try:
            paths[key] = parse_path(key)
        except ValueError:  # somebody edited the marker: what it names is nowhere
            continue
    return paths


def member_of(raw: bytes, entry: Entry, key: str) -> bytes | None:
    """A line's own member as it stands there; None if it has none, or has it twice."""
    if key not in entry:
        return None
    try:
        return raw[slice(*find(raw, [(key,)])[(key,)])]
    except SpliceError:
        return None


def made_again(now: bytes, was: bytes, hash: str) -> bytes | None:
    """The original of a line whose values have all come back, if nothing else of it changed.

    `was` is the line before they did, which tells whether it had been restored before. The hash
    proves it; so content that is stored no longer can be stored anew.
    """
    candidates = [now]
    try:
        if RESTORED in (parse_entry(now) or {}):
            candidates.append(edit(now, remove=[(RESTORED,)]))
        if (before := member_of(was, parse_entry(was) or {}, RESTORED)) is not None:
            candidates.append(edit(now, put={RESTORED: before}))
    except SpliceError:
        pass
    return next((line for line in candidates if digest(line) == hash), None)


@dataclass(frozen=True, slots=True)
class Original:
    """An original line, read."""

    raw: bytes
    entry: Entry

    @classmethod
    def of(cls, raw: bytes) -> Original | None:
        """Read a stored line; None if it is no entry."""
        entry = parse_entry(raw)
        return None if entry is None else cls(raw, entry)

    def values(self, paths: Collection[ValuePath]) -> dict[ValuePath, bytes]:
        """Return the bytes of those of these values that it has."""
        try:
            return {
                path: self.raw[start:end] for path, (start, end) in find(self.raw, paths).items()
            }
        except SpliceError:
            if len(paths) <= 1:
                return {}
        return {found: value for path in paths for found, value in self.values([path]).items()}

    def companions(self, fmt: Format, paths: Collection[ValuePath]) -> dict[ValuePath, ValuePath]:
        """Members that left together with values, without a placeholder: member → its value.

        Only values that are no leaves have any, so no leaf needs to be listed.
        """
        return {
            member: value.path
            for value in fmt.values(self.entry, maxsize)
            if value.path in paths
            for member in value.removes
        }


@dataclass(frozen=True, slots=True)
class Return:
    """What brings values back into the line that they left."""

    original: bytes
    replace: Mapping[ValuePath, bytes]
    reinsert: tuple[ValuePath, ...]
    sizes: Mapping[ValuePath, int]  # bytes of each value, its companions included

    @classmethod
    def of(
        cls, entry: Entry, original: Original, fmt: Format, paths: Collection[ValuePath]
    ) -> Return:
        """Plan the return of those of these values that the original has."""
        values = original.values(paths)
        companions = original.companions(fmt, values.keys())
        sizes = {path: len(value) for path, value in values.items()}
        for member, raw in original.values(companions.keys()).items():
            sizes[companions[member]] += len(raw)
        # What somebody has put there since stays; it is theirs.
        missing = tuple(member for member in companions if not is_present(entry, member))
        return cls(original.raw, values, missing, sizes)

    def apply(
        self,
        raw: bytes,
        *,
        remove: Collection[ValuePath] = (),
        put: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """Return the line with the values inline, and what else changes with that."""
        return edit(
            raw,
            replace=self.replace,
            remove=remove,
            reinsert=self.reinsert,
            original=self.original,
            put=put,
        )


def same_values(one: bytes, other: bytes, paths: Collection[ValuePath]) -> bool:
    """Whether two lines hold the same bytes at all these paths."""
    try:
        here, there = find(one, paths), find(other, paths)
    except SpliceError:
        return False
    return all(one[slice(*here[path])] == other[slice(*there[path])] for path in paths)
