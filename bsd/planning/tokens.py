"""How many characters of a session are a token of its model's context: an estimate.

Answers record how many tokens were sent with them. The difference between two answers is the text
that stands between them, so characters and tokens of one session tell how many of its characters
are a token, in any language and for any model and provider.
"""

from __future__ import annotations

from collections.abc import Iterable

from bsd.planning.plan import Rate
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import MARKER, Entry, Sent, answer_of, sent_tokens
from bsd.transcripts.agents.format import EntryInfo, Value

_UNCHARGED = frozenset(("user", "toolResult", "tool"))  # roles whose messages count no tokens
# Between two answers: less than this is rather the program's own additions than text.
_LEAST_CHARACTERS = 500
_LEAST_IN_ALL = 4000
_SANE = (0.5, 10.0)  # characters a token; a rate beyond was not counted as bsd counts


class Meter:
    """Follows a session, and compares the characters it holds with the tokens it was charged for.

    The rate is the median, weighted by characters: text that a program sends without recording it
    (reminders, files it looks at by itself) falls between some answers and not between others.
    """

    def __init__(self, since: Checkpoint | None = None) -> None:
        self._known = since.characters_per_token if since else 0.0
        self._compared: list[tuple[float, int]] = []  # characters a token, characters
        self._characters = 0  # since the answer before
        self._tokens: int | None = None  # that were sent with it; None: they tell nothing
        self._answer: str | None = None

    def follow(self, entry: Entry, info: EntryInfo, values: Iterable[Value]) -> None:
        """Note the next entry."""
        usage = None if info.role in _UNCHARGED else self._usage(entry)
        if usage and not usage.with_answer:
            self._compare(usage.tokens)
        for value in values:
            if value.display or value.type == "thinking":
                continue  # thinking of earlier turns is not sent to some models
            if value.text is None:
                self._tokens = None  # an image is paid by its pixels
            else:
                self._characters += len(value.text)
        if usage and usage.with_answer:
            self._compare(usage.tokens)
        if info.is_compaction or info.rolls_back or MARKER in entry:
            self._tokens = None  # the next answer is not sent with the text that stands here

    def _usage(self, entry: Entry) -> Sent | None:
        """The tokens that an answer was charged for; of one in several entries, the first tells."""
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
        """Return the rate of all that was followed."""
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
