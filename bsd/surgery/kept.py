"""A marked line and the original that is kept of it: what is away, and how it comes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from sys import maxsize

from bsd.agents.dialect import Format
from bsd.agents.entry import Entry
from bsd.agents.marker import RESTORED, Marker
from bsd.foundation.errors import Conflict
from bsd.foundation.immutable import immutable
from bsd.foundation.value_path import ValuePath, is_present
from bsd.store.extracted import Missing, Stored, digest
from bsd.store.markers import source_paths, stored_line
from bsd.text.reader import parse_kept
from bsd.text.splice import SpliceError, edit, find, text_size


def nothing_away(hint: str = "`bsd context AGENT/SESSION` lists what is extracted") -> Conflict:
    """The answer to whoever asks for what was taken out of an entry that is whole."""
    return Conflict("Entry exists but has no extracted content", hint=hint)


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
        if RESTORED in (parse_kept(now) or {}):
            candidates.append(edit(now, remove=[(RESTORED,)]))
        if (before := member_of(was, parse_kept(was) or {}, RESTORED)) is not None:
            candidates.append(edit(now, put={RESTORED: before}))
    except SpliceError:
        pass
    return next((line for line in candidates if digest(line) == hash), None)


@immutable
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


def original_of(
    raw: bytes, entry: Entry, marker: Marker, fmt: Format, stored: Stored
) -> OriginalLine | Missing:
    """The original that a marker of this entry names; see `stored_line`."""
    line = stored_line(raw, entry, marker, fmt, stored)
    return line if isinstance(line, Missing) else OriginalLine.of(line) or Missing.CORRUPT


@immutable
class Return:
    """What brings values back into the line that they left."""

    original: bytes
    replace: Mapping[ValuePath, bytes]
    reinsert: tuple[ValuePath, ...]
    sizes: Mapping[ValuePath, int]  # of each value's text, in UTF-8

    @classmethod
    def of(
        cls, entry: Entry, original: OriginalLine, fmt: Format, paths: Collection[ValuePath]
    ) -> Return:
        """Plan the return of those of these values that the original has."""
        sources = source_paths(entry, original.entry, fmt, list(paths))
        kept = original.values(sources.values())
        values = {path: kept[source] for path, source in sources.items() if source in kept}
        companions = original.companions(fmt, values.keys())
        sizes = {path: text_size(value) for path, value in values.items()}
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
