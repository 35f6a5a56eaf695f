"""Measures the values that leave as soon as the timing allows it, for the rule in `timing`.

A survey finds these values. Where they stand in context, and what stands after them, comes from the
usage that the session records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import maxsize

from bsd.planning.survey import Survey
from bsd.planning.timing import CacheState, Cause, Cut, Timing, best_timing, timing_of
from bsd.store.state import WaitingValues
from bsd.transcripts.agents.entry import placeholder
from bsd.transcripts.agents.format import TranscriptFormat, Value
from bsd.transcripts.reader import Transcript, parse_entry


@dataclass(frozen=True, slots=True)
class _ReadyLine:
    """A line with values that are ready."""

    characters: int  # of these values, without their placeholders
    reached: int  # its position in context (`CacheSeen.reached`)


class ReadyValues:
    """The values of a survey that are ready, those before its first line included.

    Attributes:
        leave_from: the values of this line and of later ones leave now; the others wait.
    """

    def __init__(self, survey: Survey, cache: CacheState) -> None:
        self.leave_from = maxsize
        self._survey = survey
        self._cache = cache
        self._earlier = survey.waiting or WaitingValues(0, 0)
        self._places: dict[int, _ReadyLine] = {}  # by line, in order

    def find(self, source: Transcript, fmt: TranscriptFormat, warm_until: float) -> None:
        """Find the values that would wait until `warm_until`."""
        for number, outcome in enumerate(self._survey.outcomes(warm_until)):
            if not outcome.decision.waiting:
                continue
            row = outcome.row
            entry = parse_entry(source.read(row.offset, row.length))
            values = fmt.values(entry) if entry is not None else []
            found = {value.path: value for value in values if value.text is not None}
            left = len(placeholder(row.entry_id or ""))
            # Providers charge images by pixels, which their characters do not show.
            characters = sum(
                self._leaving(found[option.path], keep_chars + left)
                for option, keep_chars in outcome.decision.waiting
                if not option.shape.is_block and option.path in found
            )
            reached = self._survey.cache_seen(number).reached
            self._places[row.index] = _ReadyLine(characters, reached)

    def _leaving(self, value: Value, stay: int) -> int:
        """Return the characters that leave the context with a value of which some stay."""
        length = len(value.text or "")
        if value.type == "thinking":
            return self._survey.rate.thought(length - stay, value.length - length)
        return max(0, length - stay)

    def decide(self, when: str, now: float) -> Timing | None:
        """Decide which of the values leave now; None if no value is ready.

        Args:
            when: the setting.
            now: epoch seconds.
        """
        cuts, places = self._cuts()
        if not cuts:
            return None
        price, life = self._survey.cache.price(now), self._survey.cache.life_seen(now)
        timing = best_timing(cuts, self._cache, price, when, life)
        if not timing.waits:
            at = next(at for at, cut in enumerate(cuts) if cut is timing.cut)
            self.leave_from = places[at]
        return timing

    def _cuts(self) -> tuple[list[Cut], list[int]]:
        """Return the cuts to compare, and the line from which each one takes values.

        Beside all values, those from some place on may leave alone. The places of values that have
        become ready since the last plan are enough.
        """
        characters, cuts, places = 0, [], []
        for line, place in reversed(self._places.items()):
            characters += place.characters
            cuts.append(self._cut(characters, place.reached))
            places.append(line)
        if self._earlier.characters:
            whole = self._cut(characters + self._earlier.characters, self._earlier.reached)
            return [whole, *reversed(cuts)], [0, *reversed(places)]
        return cuts[-1:], places[-1:]

    def _cut(self, characters: int, reached: int) -> Cut:
        return cut_at(self._survey, self._survey.rate.tokens(characters), reached, self._cache)

    @property
    def leaves_all(self) -> bool:
        """True if values before the survey's first line leave."""
        return bool(self._earlier.characters) and self.leave_from == 0

    @property
    def tokens_left(self) -> int:
        """The tokens of the values that wait."""
        if self.leave_from == 0:
            return 0
        left = [place for line, place in self._places.items() if line < self.leave_from]
        characters = sum(place.characters for place in left)
        return self._survey.rate.tokens(self._earlier.characters + characters)

    def characters(self, line: int) -> int:
        """Return the characters of a line's values that wait, without their placeholders."""
        return self._places[line].characters if line in self._places else 0


def cut_at(survey: Survey, removed: int, reached: int, cache: CacheState) -> Cut:
    """Return the cut of values from a position in context on (`CacheSeen.reached`).

    If more leaves than usage shows after that position, the estimates do not fit together. Then the
    cut counts as one that changes the whole context.
    """
    after = min(survey.cache.seen.reached - reached, cache.context)
    return Cut(removed, after - removed if after >= removed else cache.context)


def timing_without_wait(
    survey: Survey, cut: Cut, cache: CacheState, when: str | None, now: float
) -> Timing:
    """Return why a cut is made that does not wait, with what it costs.

    Args:
        when: the setting; None: a user or an agent asked for the cut.
        now: epoch seconds.
    """
    price, life = survey.cache.price(now), survey.cache.life_seen(now)
    if when is None or when == "now":  # it has the figures too
        return replace(timing_of(cut, cache, price, "cold", life), cause=Cause.ASKED)
    return timing_of(cut, cache, price, when, life)
