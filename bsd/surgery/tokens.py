"""How many tokens of a model's context a value takes: an estimate, always called one.

Answers say how many tokens were sent with them. What stands between two answers makes the
difference, so characters and tokens of one session tell how many of its characters are a token,
whatever its language, model and provider. Where no usage is recorded, four characters are one: the
usual rule of thumb for English and code.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from bsd.agents.dialect import Facts, Value
from bsd.agents.entry import Entry, Sent, answer_of, sent_tokens
from bsd.agents.marker import MARKER
from bsd.foundation.immutable import immutable
from bsd.store.state import Checkpoint

_RULE_OF_THUMB = 4.0
_UNCHARGED = frozenset(("user", "toolResult", "tool"))  # whose messages count no tokens
# Between two answers: what is less says more of the program's own additions than of texts.
_LEAST_CHARACTERS = 500
_LEAST_IN_ALL = 4000
_SANE = (0.5, 10.0)  # characters a token; what is beyond was not counted as we do


def is_charged(value: Value) -> bool:
    """Whether a value's characters cost tokens, as long as it is sent at all.

    What is only shown is never sent. An image is paid by its pixels, which its characters do not
    tell, so it counts as nothing rather than as text.
    """
    return not (value.display or value.shape.is_block)


@immutable
class Rate:
    """How many characters are a token, and how that is known."""

    characters: float = _RULE_OF_THUMB
    measured: bool = False  # by the usage that the session itself has recorded

    def tokens(self, value: Value, characters: int) -> int:
        """Estimate what so many characters of a value cost in tokens.

        A signature that leaves with its thinking is not text: leave it out.
        """
        return self.of(characters) if is_charged(value) else 0

    def of(self, characters: int) -> int:
        """So many tokens are so many characters of text."""
        return int(max(0, characters) / self.characters)


class Meter:
    """Follows a session, and compares the characters it holds with the tokens it was charged for.

    The median counts, weighted by characters: what a program sends without noting it (reminders,
    files it looks at by itself) falls between some answers, and not between others.
    """

    def __init__(self, since: Checkpoint | None = None) -> None:
        self._known = since.characters_per_token if since else 0.0
        self._rates, self._weights = array("d"), array("d")
        self._characters = 0  # since the answer before
        self._tokens: int | None = None  # that were sent with it; None: it tells nothing
        self._answer: str | None = None

    def follow(self, entry: Entry, facts: Facts, values: Iterable[Value]) -> None:
        """Note the next entry."""
        usage = None if facts.role in _UNCHARGED else self._usage(entry)
        if usage and not usage.with_answer:
            self._compare(usage.tokens)
        for value in values:
            if value.display or value.type == "thinking":
                continue  # thinking of earlier turns is not sent to some models
            if value.text is None:
                self._tokens = None  # an image, paid by its pixels
            else:
                self._characters += len(value.text)
        if usage and usage.with_answer:
            self._compare(usage.tokens)
        if facts.is_compaction or facts.rolls_back or MARKER in entry:
            self._tokens = None  # what is sent with the next answer is not what stands here

    def _usage(self, entry: Entry) -> Sent | None:
        """What an answer was charged for; of one in several entries, the first tells."""
        before, answer = self._answer, answer_of(entry)
        self._answer = answer or before
        return None if answer is not None and answer == before else sent_tokens(entry)

    def _compare(self, tokens: int) -> None:
        if self._tokens is not None and self._characters >= _LEAST_CHARACTERS:
            more = tokens - self._tokens
            if more > 0:
                self._rates.append(self._characters / more)
                self._weights.append(self._characters)
        if self._tokens != tokens:
            self._tokens, self._characters = tokens, 0

    def rate(self) -> Rate:
        """What has come out."""
        half = sum(self._weights) / 2
        if 2 * half >= _LEAST_IN_ALL:
            for rate, weight in sorted(zip(self._rates, self._weights, strict=True)):
                half -= weight
                if half <= 0:
                    if _SANE[0] <= rate <= _SANE[1]:
                        return Rate(rate, measured=True)
                    break
        return Rate(self._known, measured=True) if self._known else Rate()
