"""Finds calls that want an earlier value again: the same tool call, or a quotation of its text.

Only text in context counts: a compaction takes older text away, with bsd and without. Of each text,
the first `_LONGEST` characters are looked at, and of a context the newest `_MOST` characters.

A quotation of 40 characters holds at least one aligned block of 20 characters of its source. The
blocks of all texts in context are in a dictionary by their hashes. Windows of 20 characters slide
over the texts of an answer; each hit is compared character by character.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bsd.planning.recorded import Want, WantKind

SHORTEST_TEXT = 40  # characters of a quotation
_BLOCK = 20  # half of it, so that each quotation has a whole block
_LONGEST = 64 << 10  # characters of a text
_MOST = 8_000_000  # characters in the dictionary
# Text with fewer different characters, such as a ruler, is no quotation.
_LEAST_DIFFERENT = 8
# Text that stands in so many places is always in sight.
_MOST_PLACES = 32
_STRIDE = 400  # characters: a long quotation is compared again after each of these
_BITS = 12  # of the number of a block in its text

Holder = tuple[int, int]  # entry and value, as in `Want`
IsInContext = Callable[[int], bool]


class _Text(NamedTuple):
    holder: Holder
    text: str


class WantedText:
    """The texts in context, and the wants that answers show."""

    def __init__(self) -> None:
        self.wants: list[Want] = []
        self.dropped = 0  # texts that were too much to be searched
        self._texts: list[_Text] = []
        self._blocks: dict[int, int | list[int]] = {}  # hash → places
        self._characters = 0
        self._fresh: list[_Text] = []  # not in the context of the present request yet
        self._results: defaultdict[int, list[Holder]] = defaultdict(list)  # call → its results
        self._fresh_results: list[tuple[int, Holder]] = []
        self._found: dict[tuple[WantKind, int], tuple[Holder, ...]] = {}  # of the present call

    # --- texts that may be wanted ---

    def add(self, holder: Holder, text: str) -> None:
        """Add a text that later requests are sent with."""
        if len(text) >= SHORTEST_TEXT:
            self._fresh.append(_Text(holder, text[:_LONGEST]))

    def add_result(self, call: int, holder: Holder) -> None:
        """Add the result of a call.

        Args:
            call: hash of the tool and its arguments.
            holder: the largest value of the result.
        """
        self._fresh_results.append((call, holder))

    def begin_call(self, number: int) -> None:
        """End the answer before; the next texts that are looked for belong to call `number`."""
        self._emit(number - 1)
        for text in self._fresh:
            self._index(text)
        for call, holder in self._fresh_results:
            self._results[call].append(holder)
        self._fresh.clear()
        self._fresh_results.clear()

    def keep_only(self, is_in_context: IsInContext) -> None:
        """Forget the texts that are not in context any more."""
        self._rebuild([text for text in self._texts if is_in_context(text.holder[0])])
        for call, holders in list(self._results.items()):
            self._results[call] = [one for one in holders if is_in_context(one[0])]
            if not self._results[call]:
                del self._results[call]

    def _rebuild(self, texts: list[_Text]) -> None:
        self._texts, self._characters = [], 0
        self._blocks = {}
        for text in texts:
            self._index(text)

    def _index(self, one: _Text) -> None:
        text = one.text
        if self._characters + len(text) > _MOST:
            half = len(self._texts) // 2 + 1
            self.dropped += half
            self._rebuild(self._texts[half:])
        first = len(self._texts) << _BITS
        self._texts.append(one)
        self._characters += len(text)
        blocks = self._blocks
        for place, start in enumerate(range(0, len(text) - _BLOCK + 1, _BLOCK), first):
            key = hash(text[start : start + _BLOCK])
            if key not in blocks:
                blocks[key] = place
            else:
                self._add_place(key, place)

    def _add_place(self, key: int, place: int) -> None:
        places = self._blocks[key]
        if isinstance(places, int):
            self._blocks[key] = [places, place]
        elif len(places) <= _MOST_PLACES:
            places.append(place)

    # --- answers ---

    def look_for_call(self, call: int, is_in_context: IsInContext) -> None:
        """Look for earlier results of a call that an answer makes."""
        self._note(WantKind.CALL, self._results.get(call, ()), is_in_context)

    def look_for_text(self, text: str, is_in_context: IsInContext) -> None:
        """Look for quotations in a text of an answer."""
        text = text[:_LONGEST]
        if len(text) < SHORTEST_TEXT:
            return
        keys = [hash(text[at : at + _BLOCK]) for at in range(len(text) - _BLOCK + 1)]
        blocks = self._blocks
        if blocks.keys().isdisjoint(keys):
            return
        at, end = 0, len(keys)
        while at < end:
            if keys[at] not in blocks:
                at += 1
                continue
            start, until = self._longest(text, at, keys[at])
            if until - start < SHORTEST_TEXT:
                at += 1
                continue
            quotation = text[start : start + SHORTEST_TEXT]
            if len(set(quotation)) >= _LEAST_DIFFERENT:
                holders = self._holders(quotation, keys[start : start + _BLOCK + 1])
                self._note(WantKind.QUOTATION, holders, is_in_context)
            at = max(at + 1, min(until - _BLOCK + 1, start + _STRIDE))

    def _places(self, key: int) -> Sequence[int]:
        places = self._blocks.get(key, ())
        return (places,) if isinstance(places, int) else places

    def _longest(self, text: str, at: int, key: int) -> tuple[int, int]:
        """Return the longest part of a text, around `at`, that stands in a text in context."""
        best = (at, at)
        for place in self._places(key):
            source = self._texts[place >> _BITS].text
            there = (place & ((1 << _BITS) - 1)) * _BLOCK
            if source[there : there + _BLOCK] != text[at : at + _BLOCK]:
                continue
            back = 0
            while back < min(at, there, _BLOCK) and source[there - back - 1] == text[at - back - 1]:
                back += 1
            until = at + _common(text, at, source, there)
            if until - at + back > best[1] - best[0]:
                best = at - back, until
        return best

    def _holders(self, quotation: str, keys: Iterable[int]) -> list[Holder]:
        """Return the holders of all texts that contain a quotation; none if these are too many.

        Args:
            quotation: 40 characters.
            keys: the hashes of its blocks at all places.
        """
        found: dict[int, Holder] = {}
        for back, key in enumerate(keys):
            places = self._places(key)
            if len(places) > _MOST_PLACES:
                return []
            for place in places:
                number = place >> _BITS
                there = (place & ((1 << _BITS) - 1)) * _BLOCK - back
                holder, text = self._texts[number]
                if number not in found and there >= 0 and text.startswith(quotation, there):
                    found[number] = holder
        return list(found.values())

    def _note(self, kind: WantKind, holders: Iterable[Holder], is_in_context: IsInContext) -> None:
        """Note a want of the present call, if a value in context may have left."""
        found = tuple(sorted({one for one in holders if is_in_context(one[0])}))
        values = [value for _, value in found if value >= 0]
        if not values:
            return
        key = kind, max(values)
        known = self._found.get(key)
        if known is None or len(found) < len(known):
            self._found[key] = found

    def _emit(self, call: int) -> None:
        """Add the wants of the call that is over."""
        for (kind, _), holders in self._found.items():
            self.wants.append(Want(call, kind, holders, 0))
        self._found.clear()

    def finish(self, calls: int) -> list[Want]:
        """Return all wants, after the last of `calls` calls."""
        self._emit(calls - 1)
        return self.wants


def _common(one: str, at: int, other: str, there: int) -> int:
    """Return the number of equal characters from two places on."""
    most = min(len(one) - at, len(other) - there)
    length, step = 0, _BLOCK
    while length < most and step:
        size = min(step, most - length)
        if one[at + length : at + length + size] == other[there + length : there + length + size]:
            length += size
            step *= 2
        elif size == 1:
            break
        else:
            step = size // 2
    return length
