"""Elements of an array in one raw JSON line: taken out with their commas, or put in front."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bsd.foundation.value_path import ValuePath
from bsd.text.splice import Span, find


def elements(raw: bytes, path: ValuePath, count: int) -> list[bytes]:
    """The bytes of an array's first `count` elements; raises NoSuchValue, SpliceError."""
    spans = find(raw, [(*path, at) for at in range(count)])
    return [raw[slice(*spans[*path, at])] for at in range(count)]


def remove_elements(raw: bytes, path: ValuePath, count: int, gone: Collection[int]) -> bytes:
    """Take some of an array's `count` elements out; all other bytes stay. Raises SpliceError."""
    if not gone:
        return raw
    found = find(raw, [path, *((*path, at) for at in range(count))])
    spans = [found[*path, at] for at in range(count)]
    array = found[path]
    kept = [at for at in range(count) if at not in gone]
    pieces = [raw[: array.start + 1]]
    for turn, at in enumerate(kept):
        # What separates it from its successor goes with it only if there is none any more.
        last = turn == len(kept) - 1
        end = spans[at].end if last else spans[at + 1].start
        pieces.append(raw[_start(spans, array, at, first=turn == 0) : end])
    tail = spans[-1].end
    return b"".join([*pieces, raw[tail:]])


def prepend_elements(raw: bytes, path: ValuePath, new: Sequence[bytes], *, empty: bool) -> bytes:
    """Put elements in front of an array's; `empty` says that it has none yet."""
    if not new:
        return raw
    at = find(raw, [path])[path].start + 1
    return raw[:at] + b",".join(new) + (b"" if empty else b",") + raw[at:]


def _start(spans: Sequence[Span], array: Span, at: int, *, first: bool) -> int:
    """Where an element's bytes begin; the white space at the array's start stays."""
    if first and at == 0:
        return array.start + 1
    return spans[at].start
