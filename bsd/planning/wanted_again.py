"""Finds calls that want an earlier value again: the same tool call, or a quotation of its text.

Only text in context counts: a compaction takes older text away, with bsd and without. Of each text,
the first 64 thousand characters are looked at, of a text in an answer the first 16 thousand, and of
a context the newest five million.

A quotation of 40 characters holds at least one aligned block of 20 characters of its source. The
blocks of all texts in context are in a dictionary. Windows of 20 characters slide over the texts of
an answer; around each window that is such a block, the texts are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bsd.planning.recorded import Want, WantKind

SHORTEST_TEXT = 40  # characters of a quotation
_BLOCK = 20  # half of it, so that each quotation has a whole block
_LONGEST, _LONGEST_IN_ANSWER = 64 << 10, 16 << 10  # characters of a text
_MOST = 5_000_000  # characters in the dictionary, about ten bytes for each
# Text with fewer different characters, such as a ruler, is no quotation.
_LEAST_DIFFERENT = 8
# Text that stands in so many places is always in sight.
_MOST_PLACES = 32
_STRIDE = 1000  # characters: a long quotation is compared again after each of these
_BITS = 12  # of the number of a block in its text
_WINDOWS = [slice(at, at + _BLOCK) for at in range(_LONGEST_IN_ANSWER)]
_BLOCKS = [slice(at, at + _BLOCK) for at in range(0, _LONGEST, _BLOCK)]

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
        self._blocks: dict[str, int | list[int]] = {}  # block → its places
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
        aligned = _BLOCKS[: len(text) // _BLOCK]
        for place, block in enumerate(map(text.__getitem__, aligned), first):
            if blocks.setdefault(block, place) != place:
                self._add_place(block, place)

    def _add_place(self, block: str, place: int) -> None:
        places = self._blocks[block]
        if isinstance(places, int):
            self._blocks[block] = [places, place]
        elif len(places) <= _MOST_PLACES:
            places.append(place)

    # --- answers ---

    def look_for_call(self, call: int, is_in_context: IsInContext) -> None:
        """Look for earlier results of a call that an answer makes."""
        self._note(WantKind.CALL, self._results.get(call, ()), is_in_context)

    def look_for_text(self, text: str, is_in_context: IsInContext) -> None:
        """Look for quotations in a text of an answer."""
        text = text[:_LONGEST_IN_ANSWER]
        if len(text) < SHORTEST_TEXT:
            return
        windows = list(map(text.__getitem__, _WINDOWS[: len(text) - _BLOCK + 1]))
        blocks = self._blocks
        after = 0  # the last quotation, or of a part of it
        for at in [at for at, window in enumerate(windows) if window in blocks]:
            if at < after:
                continue
            start, until = self._quotation(text, at, windows[at])
            if start < 0:
                continue
            quotation = text[start : start + SHORTEST_TEXT]
            if len(set(quotation)) >= _LEAST_DIFFERENT:
                holders = self._holders(quotation, windows[start : start + _BLOCK + 1])
                self._note(WantKind.QUOTATION, holders, is_in_context)
            after = min(until - _BLOCK + 1, start + _STRIDE)

    def _quotation(self, text: str, at: int, block: str) -> tuple[int, int]:
        """Return a part of a text, around its window `at`, that a text in context has too.

        It has at least 40 characters; (-1, -1) if there is none.
        """
        found = self._blocks[block]
        places = [found] if isinstance(found, int) else found
        for place in places if len(places) <= _MOST_PLACES else ():
            source = self._texts[place >> _BITS].text
            there = (place & ((1 << _BITS) - 1)) * _BLOCK
            back = 0
            if not source.startswith(text[at : at + SHORTEST_TEXT], there):
                most = min(at, there, _BLOCK)
                while back < most and source[there - back - 1] == text[at - back - 1]:
                    back += 1
            quotation = text[at - back : at - back + SHORTEST_TEXT]
            is_whole = len(quotation) == SHORTEST_TEXT
            if is_whole and source.startswith(quotation, there - back):
                return at - back, at + _common(text, at, source, there)
        return -1, -1

    def _holders(self, quotation: str, blocks: Iterable[str]) -> list[Holder]:
        """Return the holders of all texts that contain a quotation; none if these are too many.

        Args:
            quotation: 40 characters.
            blocks: its parts of 20 characters.
        """
        found: dict[int, Holder] = {}
        for back, block in enumerate(blocks):
            if (places := self._blocks.get(block)) is None:
                continue
            if isinstance(places, int):
                places = [places]
            elif len(places) > _MOST_PLACES:
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
    length, step = 0, 4 * _BLOCK
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
