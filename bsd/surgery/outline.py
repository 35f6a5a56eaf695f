"""Where the entries of a session stand, so that a page of them costs its own bytes. Pure.

Positions and short hashes depend on all other lines; an outline keeps just that of each line, some
twenty bytes, and grows with what is appended.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bsd.agents.dialect import Format
from bsd.agents.marker import Marker
from bsd.surgery.hashes import SHORTEST, line_hash
from bsd.surgery.plan import Source
from bsd.surgery.view import EntryView, view_of
from bsd.text.change import Identity
from bsd.text.reader import Line, parse_entry

_MESSAGE, _EXTRACTED = 1, 2
_NO_ENTRY, _MOST_TYPES = 255, 254
_GUARDED = 4096  # bytes before the end that must be what they were
# Of an entry that is called by one of very many types: it is looked at when it is asked for.
_OTHER = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """All lines of a session as it was; never changed, `grown` makes another one."""

    identity: Identity
    offsets: array[int]
    kinds: bytes  # of each line: number of its type
    flags: bytes
    types: tuple[str, ...]
    shorts: array[int]  # the first digits of all hashes, sorted
    longs: array[int]  # twice as many digits
    end: int  # behind the last line that is complete
    complete: int  # so many of them
    guard: bytes

    @property
    def lines(self) -> int:
        """How many there are."""
        return len(self.offsets)

    @property
    def memory(self) -> int:
        """About how many bytes it holds."""
        return 22 * len(self.offsets)

    def is_of(self, source: Source) -> bool:
        """Whether it tells of just this file, as it is."""
        return self.identity == source.identity

    def is_begun_of(self, source: Source) -> bool:
        """Whether the file is the same one, and something was appended to it."""
        now, was = source.identity, self.identity
        if (now.dev, now.ino) != (was.dev, was.ino) or now.size <= was.size:
            return False
        return _guard(source, self.end) == self.guard

    def entries(
        self,
        lines: range,
        *,
        types: frozenset[str] = frozenset(),
        extracted: bool | None = None,
    ) -> Iterator[int]:
        """Those of these lines, in their order, that hold entries of such a kind."""
        wanted = {number for number, name in enumerate(self.types) if not types or name in types}
        flag = None if extracted is None else _EXTRACTED * extracted
        for number in lines:
            if self.kinds[number] not in wanted:
                continue
            if flag is None or self.flags[number] & _EXTRACTED == flag:
                yield number

    def views(self, source: Source, fmt: Format, numbers: Iterable[int]) -> Iterator[EntryView]:
        """The entries that stand in these lines."""
        for number in numbers:
            start, after = self.offsets[number], number + 1
            stop = self.offsets[after] if after < len(self.offsets) else self.identity.size
            line = Line(number, start, source.read(start, stop - start))
            if (entry := parse_entry(line.raw)) is not None:
                digits = self._shortest(line_hash(line.raw))
                yield view_of(line, entry, fmt, self._messages_from(after), digits)

    def _messages_from(self, line: int) -> int:
        one, away = bytes([_MESSAGE]), bytes([_MESSAGE | _EXTRACTED])
        return self.flags.count(one, line) + self.flags.count(away, line)

    def _shortest(self, digest: str) -> str:
        for digits, known in ((SHORTEST, self.shorts), (2 * SHORTEST, self.longs)):
            number = int(digest[:digits], 16)
            if bisect_right(known, number) - bisect_left(known, number) == 1:
                return digest[:digits]
        return digest


def outline_of(source: Source, fmt: Format, begun: Outline | None = None) -> Outline:
    """Read a session, or only what was appended to the one that `begun` is of."""
    sketch = _Sketch(begun)
    lines = source.lines(begun.end, begun.complete) if begun else source.lines()
    for line in lines:
        sketch.take(line, fmt)
    return Outline(
        source.identity,
        sketch.offsets,
        bytes(sketch.kinds),
        bytes(sketch.flags),
        tuple(sketch.types),
        array("I", sorted(sketch.shorts)),
        array("Q", sorted(sketch.longs)),
        sketch.end,
        sketch.complete,
        _guard(source, sketch.end),
    )


class _Sketch:
    """An outline that is being made."""

    def __init__(self, begun: Outline | None) -> None:
        known = begun.complete if begun else 0
        self.offsets = array("Q", begun.offsets[:known] if begun else ())
        self.kinds = bytearray(begun.kinds[:known] if begun else b"")
        self.flags = bytearray(begun.flags[:known] if begun else b"")
        self.types = {name: number for number, name in enumerate(begun.types if begun else ())}
        # A line that was not complete is read again; its hash, which no line has, does no harm.
        self.shorts = array("I", begun.shorts if begun else ())
        self.longs = array("Q", begun.longs if begun else ())
        self.end, self.complete = (begun.end, known) if begun else (0, 0)

    def take(self, line: Line, fmt: Format) -> None:
        kind, flags = _NO_ENTRY, 0
        entry = parse_entry(line.raw)
        if entry is not None:
            facts = fmt.facts(entry)
            marker = Marker.of(entry)
            kind = self._number(facts.kind)
            flags = _MESSAGE * facts.is_message | _EXTRACTED * bool(marker and marker.keys)
            digest = line_hash(line.raw)
            self.shorts.append(int(digest[:SHORTEST], 16))
            self.longs.append(int(digest[: 2 * SHORTEST], 16))
        self.offsets.append(line.offset)
        self.kinds.append(kind)
        self.flags.append(flags)
        if line.raw.endswith(b"\n"):
            self.end, self.complete = line.offset + len(line.raw), line.index + 1

    def _number(self, kind: str) -> int:
        if kind not in self.types and len(self.types) >= _MOST_TYPES:
            kind = _OTHER
        return self.types.setdefault(kind, len(self.types))


def _guard(source: Source, end: int) -> bytes:
    start = max(0, end - _GUARDED)
    return hashlib.sha256(source.read(start, end - start)).digest()
