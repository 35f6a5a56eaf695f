"""Estimates tokens: the one estimate for every figure of tokens that no provider has reported.

Answers record how many tokens were sent with them. The difference between two answers belongs to
the content between them. From these differences, each session yields its own rate, for any
language, model and provider. Without them, the rate of the model's family applies.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import add, sub
from statistics import median
from typing import NamedTuple

from bsd.planning.plan import Rate
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import (
    MARKER,
    Entry,
    Usage,
    model_of,
    proof_size,
    usage_of,
)
from bsd.transcripts.agents.format import EntryInfo, Turn, Value
from bsd.transcripts.agents.values import compact_json
from bsd.transcripts.spans import value_at

# Least characters between two answers: below, the program's own additions distort the rate.
_LEAST_CHARACTERS = 500
_LEAST_IN_ALL = 4000
_SANE = (0.5, 10.0)  # characters per token; other rates are not comparable
# Share by which the estimate of a usual difference may be wrong. Otherwise the recorded tokens are
# not those of this content.
_MOST_MISSED = 0.5
_FEW = 1500  # characters: differences below show the tokens of a message beside its text
_LEAST_FEW = 5  # such differences
_MOST_PER_MESSAGE = 60.0  # tokens
_MOST_COMPARED = 400  # differences; the newest
_ROUNDS = 4
# Another treatment of thinking than the usual one of the model must explain this much better.
_BETTER = 0.8
_TOKENS_OF_AN_IMAGE = 1500  # about a million pixels; providers charge 85 to 5,000
_ROLES_OF_MODELS = frozenset(("assistant", "ai", "agent"))


class TextSize(NamedTuple):
    """Size of content that a model reads: characters of its parts, and numbers of others."""

    text: int = 0
    thinking: int = 0
    proof: int = 0  # signatures and encrypted thinking
    images: int = 0
    messages: int = 0  # 1 for an entry with content

    def plus(self, other: TextSize) -> TextSize:
        """Return the size of both."""
        return TextSize(*map(add, self, other))

    def less(self, other: TextSize) -> TextSize:
        """Return the size of this without the other."""
        return TextSize(*map(sub, self, other))


NO_SIZE = TextSize()


class Sizes:
    """Sizes of entries, values or answers: a column for each part."""

    def __init__(self, *, sums: bool = False) -> None:
        self._columns = [array("Q" if sums else "I") for _ in NO_SIZE]

    def append(self, size: TextSize) -> None:
        """Add the next size."""
        for column, number in zip(self._columns, size, strict=True):
            column.append(number)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, at: int) -> TextSize:
        return TextSize(*(column[at] for column in self._columns))

    def any(self, start: int, end: int | None = None) -> bool:
        """Return whether an entry has content, or an entry of a range."""
        return any(self._columns[-1][start : start + 1 if end is None else end])

    def sum(self, start: int, end: int) -> TextSize:
        """Return the size of a range."""
        return TextSize(*(sum(column[start:end]) for column in self._columns))


def size_of(entry: Entry, info: EntryInfo, values: Iterable[Value]) -> TextSize:
    """Return the size of an entry's content in context.

    Args:
        entry: the parsed line.
        info: its properties.
        values: its values, without short strings in objects.
    """
    text = thinking = images = 0
    calls = info.calls
    is_empty = True
    for value in values:
        is_empty = False
        if value.display or (calls and value.leaf):
            continue  # arguments count as a whole, below
        if value.text is None:
            if value.shape.is_block:
                images += 1
            else:
                text += value.length
        elif value.type == "thinking":
            thinking += len(value.text)
        else:
            text += len(value.text)
    for call in calls:
        text += len(call.name)
        if call.arguments is not None:
            arguments = value_at(entry, call.arguments)
            text += len(arguments) if isinstance(arguments, str) else len(compact_json(arguments))
    if (info.is_compaction or is_empty) and not info.is_note:
        summary = entry.get("summary")
        text += len(summary) if isinstance(summary, str) else 0
    proof = proof_size(entry)
    return TextSize(text, thinking, proof, images, 1 if text or thinking or proof or images else 0)


def size_of_value(value: Value) -> TextSize:
    """Return the size of a value that leaves the context as a whole."""
    if value.display:
        return NO_SIZE
    if value.text is None and value.shape.is_block:
        return TextSize(images=1)
    if value.type == "thinking":
        length = len(value.text or "")
        return TextSize(thinking=length, proof=value.length - length)
    return TextSize(text=value.length)


# --- how models are charged ---


class Thinking(NamedTuple):
    """How much of earlier thinking a provider counts, in characters of text for each character."""

    text: float
    proof: float  # for a signature, or encrypted thinking
    in_turn: bool  # it is dropped when the next turn begins

    def characters(self, size: TextSize) -> float:
        """Return the characters of text that the thinking in content counts as."""
        return self.text * size.thinking + self.proof * size.proof


_KEPT = Thinking(1.0, 0.5, in_turn=False)
_ENCRYPTED = Thinking(0.0, 0.5, in_turn=True)
_TREATMENTS = (
    _KEPT,
    _ENCRYPTED,
    Thinking(1.0, 0.0, in_turn=False),
    Thinking(1.0, 1.0, in_turn=False),
    Thinking(1.0, 0.0, in_turn=True),
    Thinking(0.0, 0.0, in_turn=False),
)


class Family(NamedTuple):
    """The estimate for models of one family, for sessions that record too little."""

    characters: float  # of text per token
    message: float  # tokens of a message beside its text
    thinking: Thinking


# Measured on recorded sessions of coding agents.
_FAMILIES = (
    # Since Opus 4.5, thinking of earlier turns stays in context.
    (r"claude|fable", Family(3.2, 35.0, _KEPT)),
    # The text of reasoning is not sent back. The encrypted one counts until the turn ends.
    (r"gpt|codex|(^|/)o[1-9]", Family(3.6, 5.0, _ENCRYPTED)),
)
_OTHERS = Family(Rate().characters, 5.0, Thinking(1.0, 0.0, in_turn=True))
_LONGEST_MODEL = 128  # characters of a model's name that are searched


@lru_cache(maxsize=128)
def family_of(model: str | None) -> Family:
    """Return the estimate for a model of which a session records no tokens."""
    name = (model or "")[:_LONGEST_MODEL]
    found = (family for models, family in _FAMILIES if re.search(models, name, re.IGNORECASE))
    return next(found, _OTHERS)


class Estimate(NamedTuple):
    """The tokens of content for a model, and the tokens that its program sends beside."""

    characters: float  # of text per token
    message: float  # tokens of a message beside its text
    thinking: Thinking
    constant: float = 0.0  # tokens of the system prompt and the tools, and other unseen text
    measured: bool = False  # from the tokens that the session records

    @property
    def rate(self) -> Rate:
        """The characters of text per token."""
        return _rate(self.characters, self.thinking, measured=self.measured)

    def tokens(self, size: TextSize) -> float:
        """Return the tokens of content for as long as it is in context."""
        kept = not self.thinking.in_turn
        text = size.text + kept * self.thinking.characters(size)
        return text / self.characters + self._beside(size)

    def tokens_in_turn(self, size: TextSize) -> float:
        """Return the tokens that content has in addition until its turn is over."""
        return self.thinking.in_turn * self.thinking.characters(size) / self.characters

    def _beside(self, size: TextSize) -> float:
        return self.message * size.messages + _TOKENS_OF_AN_IMAGE * size.images


def _rate(characters: float, thinking: Thinking, *, measured: bool) -> Rate:
    stays = not thinking.in_turn
    return Rate(characters, measured, stays * thinking.text, stays * thinking.proof)


class Request(NamedTuple):
    """A request of which the tokens are recorded."""

    tokens: int
    stretch: int  # requests of the same number have growing contexts
    context: TextSize  # of a stretch: of all content, or of the content since a place
    turn: TextSize  # the part of it that belongs to the last turn


class Requests:
    """The requests of a session, in order."""

    def __init__(self) -> None:
        self._columns = [array("q") for _ in range(2 + 2 * len(NO_SIZE))]

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, request: Request) -> None:
        """Add the next request."""
        row = (request.tokens, request.stretch, *request.context, *request.turn)
        for column, number in zip(self._columns, row, strict=True):
            column.append(number)

    def __getitem__(self, at: int) -> Request:
        tokens, stretch, *rest = (column[at] for column in self._columns)
        width = len(NO_SIZE)
        return Request(tokens, stretch, TextSize(*rest[:width]), TextSize(*rest[width:]))

    def rows(self, start: int, end: int) -> Iterator[Request]:
        """Yield the requests of a range."""
        return map(self.__getitem__, range(start, end))


class _Difference(NamedTuple):
    """The content and the tokens by which a request is larger than the one before it."""

    tokens: int
    content: TextSize
    turn: TextSize


def fit(requests: Requests, model: str | None, start: int = 0, end: int | None = None) -> Estimate:
    """Return the estimate that fits the requests of a range best; its constant is not fitted.

    The rate is the median, weighted by characters. The median ignores text that a program sends
    without recording it (reminders, files that it reads by itself) before some of the answers.
    """
    family = family_of(model)
    guess = Estimate(family.characters, family.message, family.thinking)
    end = len(requests) if end is None else end
    differences = list(_differences(requests, max(start, end - _MOST_COMPARED), end))
    best = _fit_one(differences, family.thinking)
    if best is None:
        return guess
    least = _BETTER * _error(differences, best)
    if any(one.content.thinking or one.content.proof for one in differences):
        for thinking in _TREATMENTS:
            other = _fit_one(differences, thinking)
            if other is not None and (error := _error(differences, other)) < least:
                best, least = other, error
    return best


def _differences(requests: Requests, start: int, end: int) -> Iterator[_Difference]:
    before: Request | None = None
    for request in requests.rows(start, end):
        if before is not None and before.stretch == request.stretch:
            yield _Difference(
                request.tokens - before.tokens,
                request.context.less(before.context),
                request.turn.less(before.turn),
            )
        before = request


def _fit_one(differences: list[_Difference], thinking: Thinking) -> Estimate | None:
    """Return the estimate for one treatment of thinking; None if too little can be compared."""
    counted = []
    for one in differences:
        thought = thinking.characters(one.turn if thinking.in_turn else one.content)
        characters = one.content.text + thought
        if one.tokens > 0 and characters > 0 and not one.content.images:
            counted.append((one.tokens, characters, one.content.messages))
    large = [one for one in counted if one[1] >= _LEAST_CHARACTERS]
    total = sum(characters for _, characters, _ in large)
    if total < _LEAST_IN_ALL:
        return None
    few = [one for one in counted if one[1] < _FEW and one[2]]
    each = 0.0
    rate = 0.0
    for _ in range(_ROUNDS if len(few) >= _LEAST_FEW else 1):
        rate = _middle(
            (characters / (tokens - each * messages), characters)
            for tokens, characters, messages in large
            if tokens > each * messages
        )
        if not rate:
            return None
        if len(few) >= _LEAST_FEW:
            beside = median((tokens - text / rate) / messages for tokens, text, messages in few)
            each = min(max(beside, 0.0), _MOST_PER_MESSAGE)
    misses = median(
        abs(tokens - characters / rate - each * messages) / tokens
        for tokens, characters, messages in large
    )
    if misses > _MOST_MISSED or not _SANE[0] <= rate <= _SANE[1]:
        return None
    return Estimate(rate, each, thinking, measured=True)


def _middle(weighted: Iterable[tuple[float, float]]) -> float:
    """Return the median of numbers with weights; 0 if there are none."""
    ordered = sorted(weighted)
    total, passed = sum(weight for _, weight in ordered), 0.0
    for number, weight in ordered:
        passed += weight
        if 2 * passed >= total:
            return number
    return 0.0


def _error(differences: Iterable[_Difference], estimate: Estimate) -> float:
    """Return the sum of the tokens by which an estimate misses the differences."""
    return sum(
        abs(one.tokens - estimate.tokens(one.content) - estimate.tokens_in_turn(one.turn))
        for one in differences
    )


# --- requests in a session ---


class Step(NamedTuple):
    """The part that an entry plays in requests."""

    begins: bool  # a request was sent with the entries before this one
    usage: Usage | None  # the tokens of the present request, as this entry records them
    is_answer: bool  # it is a part of the answer


_NO_STEP = Step(begins=False, usage=None, is_answer=False)


class PresentAnswer(NamedTuple):
    """What `Answers` keeps of the entries so far."""

    answer: str | None = None  # id that the entries of the answer share
    usage: Usage | None = None
    is_over: bool = True  # a message that is not part of the answer has followed


class Answers:
    """Groups the entries of a session into answers, and finds the tokens recorded for each.

    An answer may have several entries, which repeat its tokens. Some programs record the tokens in
    an entry of their own, before or after those of the answer, and again later.
    """

    def __init__(self, since: PresentAnswer | None = None) -> None:
        """Begin with the first entry, or behind the entries that another object has followed."""
        self._answer, self._usage, self._is_over = since or PresentAnswer()

    @property
    def present(self) -> PresentAnswer:
        """The present answer, with which another object can go on."""
        return PresentAnswer(self._answer, self._usage, self._is_over)

    def follow(self, entry: Entry, info: EntryInfo) -> Step:
        """Add the next entry, which is none of a sub-agent within the session."""
        if not _is_of_answer(info):
            if not info.is_message:
                usage = _usage_of(entry, info)
                return _NO_STEP if usage is None else self._follow_record(usage)
            self._is_over = True
            return _NO_STEP
        usage = _usage_of(entry, info)
        if info.answer is not None:
            begins = info.answer != self._answer
        else:
            begins = self._is_over or (usage is not None and self._usage is not None)
        if begins:
            self._answer, self._usage, self._is_over = info.answer, None, False
        if usage is None or self._usage is not None:
            return Step(begins, None, is_answer=True)
        self._usage = usage
        return Step(begins, usage, is_answer=True)

    def _follow_record(self, usage: Usage) -> Step:
        if not self._is_over and self._usage is None:
            self._usage, self._is_over = usage, True
            return Step(begins=False, usage=usage, is_answer=False)
        if self._is_over and usage != self._usage:
            self._answer, self._usage, self._is_over = None, usage, False
            return Step(begins=True, usage=usage, is_answer=False)
        return _NO_STEP


def _usage_of(entry: Entry, info: EntryInfo) -> Usage | None:
    known = info.cache.usage if info.cache is not None else None
    return usage_of(entry) if known is None else known


def _is_of_answer(info: EntryInfo) -> bool:
    """Return whether an entry is a part of an answer of the model."""
    if info.is_assistant or info.calls or (info.role or "").lower() in _ROLES_OF_MODELS:
        return True
    return info.is_message and info.kind == "thinking"


class Meter:
    """Compares the content of a session with the tokens that its answers report."""

    def __init__(self, since: Checkpoint | None = None) -> None:
        self._known = since.characters_per_token if since else 0.0
        self._model = (since.cache.model if since else None) or None
        self._answers = Answers()
        self._requests = Requests()
        self._stretch = 0
        self._context = NO_SIZE  # since the beginning of the stretch
        self._before_turn = NO_SIZE  # the same, when the last turn began
        self._sent = Request(0, 0, NO_SIZE, NO_SIZE)  # with the present answer
        self._measured: tuple[int, Estimate] | None = None  # and the requests it is from

    def follow(self, entry: Entry, info: EntryInfo, values: Iterable[Value]) -> TextSize:
        """Add the next entry; return the size of its content."""
        if info.is_message and not info.may_be_last:
            return NO_SIZE  # a sub-agent's, within the session
        step = self._answers.follow(entry, info)
        if step.begins:
            turn = self._context.less(self._before_turn)
            self._sent = Request(0, self._stretch, self._context, turn)
            if info.cache is None or info.cache.model is None:
                self._model = model_of(entry) or self._model
        if step.usage is not None:
            self._requests.append(self._sent._replace(tokens=step.usage.prompt))
        if info.cache is not None and info.cache.model is not None:
            self._model = info.cache.model
        if info.turn is Turn.STARTS:
            self._before_turn = self._context
        elif info.turn is Turn.BREAKS and info.is_assistant:
            return NO_SIZE  # it is not sent again
        size = size_of(entry, info, values)
        if size.messages:
            self._context = self._context.plus(size)
        if info.is_compaction or info.rolls_back or MARKER in entry:
            self._stretch += 1  # the next answer is sent with other text
        return size

    def estimate(self) -> Estimate:
        """Return the estimate of all entries so far."""
        count = len(self._requests)
        if self._measured is None or self._measured[0] != count:
            self._measured = count, fit(self._requests, self._model)
        return self._measured[1]

    def rate(self) -> Rate:
        """Return the characters per token of all entries so far."""
        estimate = self.estimate()
        if self._known and not estimate.measured:
            return _rate(self._known, estimate.thinking, measured=True)
        return estimate.rate
