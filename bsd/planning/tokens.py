"""Estimates the number of characters per token of the model's context.

Answers record how many tokens were sent with them. The difference between two answers belongs to
the text between them. From this, each session yields its own rate, for any language, model and
provider.
"""

from __future__ import annotations

from collections.abc import Iterable

from bsd.planning.plan import Rate
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import MARKER, Entry, Sent, answer_of, sent_tokens
from bsd.transcripts.agents.format import EntryInfo, Value

_UNCHARGED = frozenset(("user", "toolResult", "tool"))  # roles without recorded usage
# Least characters between two answers: below, the program's own additions distort the rate.
_LEAST_CHARACTERS = 500
_LEAST_IN_ALL = 4000
_SANE = (0.5, 10.0)  # characters per token; other rates are not comparable


class Meter:
    """Compares the characters of a session with the tokens that its answers report.

    The rate is the median, weighted by characters. The median ignores text that a program sends
    without recording it (reminders, files that it reads by itself) between some of the answers.
    """

    def __init__(self, since: Checkpoint | None = None) -> None:
        self._known = since.characters_per_token if since else 0.0
        self._compared: list[tuple[float, int]] = []  # (characters per token, characters)
        self._characters = 0  # since the previous answer
        self._tokens: int | None = None  # sent with the previous answer; None: not comparable
        self._answer: str | None = None

    def follow(self, entry: Entry, info: EntryInfo, values: Iterable[Value]) -> None:
        """Add the next entry."""
        usage = None if info.role in _UNCHARGED else self._usage(entry)
        if usage and not usage.with_answer:
            self._compare(usage.tokens)
        for value in values:
            if value.display or value.type == "thinking":
                continue  # some models are not sent the thinking of earlier turns
            if value.text is None:
                self._tokens = None  # providers charge images by pixels
            else:
                self._characters += len(value.text)
        if usage and usage.with_answer:
            self._compare(usage.tokens)
        if info.is_compaction or info.rolls_back or MARKER in entry:
            self._tokens = None  # the next answer is sent with other text

    def _usage(self, entry: Entry) -> Sent | None:
        """Return the usage that an answer reports.

        If an answer has several entries, the first counts.
        """
        before, answer = self._answer, answer_of(entry)
        self._answer = answer or before
        return None if answer is not None and answer == before else sent_tokens(entry)

    def _compare(self, tokens: int) -> None:
        more = tokens - (tokens if self._tokens is None else self._tokens)
        if more > 0 and self._characters >= _LEAST_CHARACTERS:
            self._compared.append((self._characters / more, self._characters))
        if self._tokens != tokens:
            self._tokens, self._characters = tokens, 0

    def rate(self) -> Rate:
        """Return the rate of all entries so far."""
        total = sum(characters for _, characters in self._compared)
        if total >= _LEAST_IN_ALL:
            passed = 0
            for rate, characters in sorted(self._compared):
                passed += characters
                if 2 * passed >= total:
                    if _SANE[0] <= rate <= _SANE[1]:
                        return Rate(rate, measured=True)
                    break
        return Rate(self._known, measured=True) if self._known else Rate()
