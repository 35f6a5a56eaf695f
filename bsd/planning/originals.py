"""The original line of an entry with extracted values, and the return of these values."""

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


def nothing_away(hint: str = "`bsd context AGENT/SESSION` lists the extracted entries") -> Conflict:
    """Return the error for a request of extracted values if the entry is whole."""
    return Conflict("Entry exists but has no extracted content", hint=hint)


def restored_of(raw: bytes, entry: Entry) -> bytes | None:
    """Return the JSON of a line's `_restored`; None if it is absent or occurs twice."""
    if RESTORED not in entry:
        return None
    try:
        return raw[slice(*find(raw, [(RESTORED,)])[(RESTORED,)])]
    except SpliceError:
        return None


def made_again(now: bytes, was: bytes, hash: str) -> bytes | None:
    """Return the original of a line whose values have all come back; None if the line has changed.

    Content that is no longer stored can be stored again this way.

    Args:
        now: the present line, with all values inline.
        was: the line before its values came back; it tells whether the entry had been restored
            before.
        hash: the hash of the original, which proves the result.
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
    """A parsed original line."""

    raw: bytes
    entry: Entry

    @classmethod
    def of(cls, raw: bytes) -> OriginalLine | None:
        """Parse a stored line; return None if it is not an entry."""
        entry = parse_kept(raw)
        return None if entry is None else cls(raw, entry)

    def values(self, paths: Collection[ValuePath]) -> dict[ValuePath, bytes]:
        """Return the JSON of these values; missing ones are left out."""
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
        """Return the members that left with these values: member's path → value's path.

        Such members have no placeholder. Only values that are not leaves have them.
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
    """Return the original that a marker of this entry names, or why it is missing."""
    line = stored_line(raw, entry, marker, fmt, stored)
    return line if isinstance(line, Missing) else OriginalLine.of(line) or Missing.CORRUPT


@dataclass(frozen=True, slots=True)
class Return:
    """The changes that bring extracted values back into their line."""

    original: bytes
    replace: Mapping[ValuePath, bytes]
    reinsert: tuple[ValuePath, ...]
    sizes: Mapping[ValuePath, int]  # bytes of each value's text in UTF-8

    @classmethod
    def of(
        cls,
        entry: Entry,
        original: OriginalLine,
        fmt: TranscriptFormat,
        paths: Collection[ValuePath],
    ) -> Return:
        """Prepare the return of those of these values that the original has."""
        sources = source_paths(entry, original.entry, fmt, list(paths))
        kept = original.values(sources.values())
        values = {path: kept[source] for path, source in sources.items() if source in kept}
        companions = original.companions(fmt, values.keys())
        sizes = {path: text_size(value) for path, value in values.items()}
        # A member added since stays: bsd did not write it.
        missing = tuple(member for member in companions if not is_present(entry, member))
        return cls(original.raw, values, missing, sizes)

    def apply(
        self,
        raw: bytes,
        *,
        remove: Collection[ValuePath] = (),
        put: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """Return the line with the values inline, and with members removed and put as given."""
        return edit(
            raw,
            replace=self.replace,
            remove=remove,
            reinsert=self.reinsert,
            original=self.original,
            put=put,
        )


def same_values(one: bytes, other: bytes, paths: Collection[ValuePath]) -> bool:
    """Return whether two lines hold the same bytes at all these paths."""
    try:
        here, there = find(one, paths), find(other, paths)
    except SpliceError:
        return False
    return all(one[slice(*here[path])] == other[slice(*there[path])] for path in paths)
