"""The original line of an entry from which values are away, and how they come back into it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from sys import maxsize

from bsd.core.errors import Conflict
from bsd.store.markers import source_paths, stored_line
from bsd.store.originals import Missing, OriginalStore, digest
from bsd.transcripts.agents.entry import RESTORED, Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import parse_kept
from bsd.transcripts.spans import ValuePath, is_present
from bsd.transcripts.splice import SpliceError, edit, find, text_size


def nothing_away(hint: str = "`bsd context AGENT/SESSION` lists what is extracted") -> Conflict:
    """The error of a request for values that were taken out of an entry that is whole."""
    return Conflict("Entry exists but has no extracted content", hint=hint)


def restored_of(raw: bytes, entry: Entry) -> bytes | None:
    """A line's own `_restored` as it stands there; None if it has none, or has it twice."""
    if RESTORED not in entry:
        return None
    try:
        return raw[slice(*find(raw, [(RESTORED,)])[(RESTORED,)])]
    except SpliceError:
        return None


def made_again(now: bytes, was: bytes, hash: str) -> bytes | None:
    """Return the original of a line whose values have all come back, if nothing else changed in it.

    So content that is stored no longer can be stored anew; its `hash` proves it. `was` is the line
    before its values came back, which tells whether it had been restored before.
    """
    candidates = [now]
    try:
        if RESTORED in (parse_kept(now) or {}):
            candidates.append(edit(now, remove=[(RESTORED,)]))
        if (before := restored_of(was, parse_kept(was) or {})) is not None:
            candidates.append(edit(now, put={RESTORED: before}))
    except SpliceError:
        pass
    return next((line for line in candidates if digest(line) == hash), None)


@dataclass(frozen=True, slots=True)
class OriginalLine:
    """An original line, read."""

    raw: bytes
    entry: Entry

    @classmethod
    def of(cls, raw: bytes) -> OriginalLine | None:
        """Read a stored line; None if it is no entry."""
        entry = parse_kept(raw)
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

    def companions(
        self, fmt: TranscriptFormat, paths: Collection[ValuePath]
    ) -> dict[ValuePath, ValuePath]:
        """Members that left together with values, without a placeholder: member → its value.

        Only values that are no leaves have any, so no leaf needs to be listed.
        """
        return {
            member: value.path
            for value in fmt.values(self.entry, maxsize)
            if value.path in paths
            for member in value.removes
        }


def original_of(
    raw: bytes, entry: Entry, marker: Marker, fmt: TranscriptFormat, stored: OriginalStore
) -> OriginalLine | Missing:
    """The original that a marker of this entry names; see `stored_line`."""
    line = stored_line(raw, entry, marker, fmt, stored)
    return line if isinstance(line, Missing) else OriginalLine.of(line) or Missing.CORRUPT


@dataclass(frozen=True, slots=True)
class Return:
    """The changes that bring values back into the line that they left."""

    original: bytes
    replace: Mapping[ValuePath, bytes]
    reinsert: tuple[ValuePath, ...]
    sizes: Mapping[ValuePath, int]  # of each value's text, in UTF-8

    @classmethod
    def of(
        cls,
        entry: Entry,
        original: OriginalLine,
        fmt: TranscriptFormat,
        paths: Collection[ValuePath],
    ) -> Return:
        """Plan the return of those of these values that the original has."""
        sources = source_paths(entry, original.entry, fmt, list(paths))
        kept = original.values(sources.values())
        values = {path: kept[source] for path, source in sources.items() if source in kept}
        companions = original.companions(fmt, values.keys())
        sizes = {path: text_size(value) for path, value in values.items()}
        # A member that was put there since stays: bsd did not write it.
        missing = tuple(member for member in companions if not is_present(entry, member))
        return cls(original.raw, values, missing, sizes)

    def apply(
        self,
        raw: bytes,
        *,
        remove: Collection[ValuePath] = (),
        put: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """Return the line with the values inline, and the other changes that come with that."""
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
