"""Plans seed 003's `replace`: what stands between two literal markers gives way to another text.

All of a call's operations or none. A match runs from `start` to the first `end` after it, within
one text; where one ends, the search goes on behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bsd.agents.dialect import Format, Shape, Value
from bsd.foundation.errors import FieldError
from bsd.foundation.immutable import immutable
from bsd.store.history import TouchedLine
from bsd.surgery.content import put_texts
from bsd.surgery.context_answer import ContextChange, ContextChanged, change_plan, text_or_note
from bsd.surgery.conversation import Conversation, Seen, is_users, may_change, read_through
from bsd.surgery.plan import Plan, Source
from bsd.surgery.prefix import WARNING, Binds, never
from bsd.surgery.rules import away_test
from bsd.surgery.similar import Similar, excerpt, quoted
from bsd.surgery.targets import EMPTY_MARKER, REPLACE, SHORTEST_MATCH, Refused, Replacement
from bsd.text.change import Edit
from bsd.text.splice import SpliceError

_MOST_LISTED = 10


@immutable
class Match:
    """Where an operation applies: characters `[start, end)` of one text."""

    operation: int
    index: int  # 0-based line number
    name: str  # the entry's id, or `#` and its line number
    value: Value
    start: int
    end: int
    snippet: str
    protection: str | None

    @property
    def where(self) -> str:
        return f"entry {self.name}, characters {self.start}–{self.end}: {self.snippet}"


@dataclass(slots=True)
class _Search:
    """What was found of one operation."""

    operation: Replacement
    matches: list[Match] = field(default_factory=list)
    count: int = 0  # of matches; only the first ones are kept
    starts_in: str | None = None  # the first text that has a start and no end after it
    users: str | None = None  # the first match in what a user wrote


def plan_replace(
    source: Source,
    fmt: Format,
    operations: Sequence[Replacement],
    *,
    include_user: bool = False,
    protected_tools: Collection[str] = (),
    binds: Binds = never,
) -> tuple[Plan, ContextChanged]:
    """Plan these operations; raises Refused, which lists everything that is wrong with them.

    `binds` tells which models' signatures make a change worth a warning.
    """
    if empty := [
        FieldError(f"targets[{number}]", EMPTY_MARKER)
        for number, operation in enumerate(operations)
        if not (operation.start and operation.end)  # they would stand everywhere
    ]:
        raise Refused(REPLACE, empty)
    conversation = Conversation(fmt, protected_tools, binds)
    finder = _Finder(operations, conversation, include_user=include_user)
    for seen in read_through(source, fmt):
        finder.look(seen, fmt)
    problems = finder.problems(source, fmt)
    if problems:
        raise Refused(REPLACE, problems, hint=_hint(finder))
    return _apply(source, fmt, finder)


class _Finder:
    """Looks for all operations in one pass."""

    def __init__(
        self,
        operations: Sequence[Replacement],
        conversation: Conversation,
        *,
        include_user: bool,
    ) -> None:
        self.conversation = conversation
        self.searches = [_Search(operation) for operation in operations]
        self.extracted = False  # there is text that is not at hand
        self._include_user = include_user

    def look(self, seen: Seen, fmt: Format) -> None:
        """Search one entry."""
        self.conversation.follow(seen)
        if not self._is_searched(seen):
            return
        protection = self.conversation.own_protection(seen)
        for value, text in texts_of(seen, fmt):
            if text is None:
                self.extracted = True
                continue
            for number, search in enumerate(self.searches):
                if not is_users(value, seen.facts) or self._include_user:
                    self._search(number, seen, value, text, protection)
                elif search.users is None and any(_ranges(text, search.operation)):
                    search.users = name_of(seen)

    def _is_searched(self, seen: Seen) -> bool:
        if not seen.facts.is_message or seen.facts.is_header:
            return False
        return not self.conversation.is_own_answer(seen.facts)

    def _search(
        self, number: int, seen: Seen, value: Value, text: str, protection: str | None
    ) -> None:
        name, search = name_of(seen), self.searches[number]
        for start, end in _ranges(text, search.operation):
            search.count += 1
            if search.count <= _MOST_LISTED:
                snippet = excerpt(text, start, end)
                search.matches.append(
                    Match(number, seen.line.index, name, value, start, end, snippet, protection)
                )
        if search.starts_in is None and not search.count:
            at = text.find(search.operation.start)
            if at >= 0:
                what = excerpt(text, at, at + len(search.operation.start))
                search.starts_in = f"entry {name}: {what}"

    def problems(self, source: Source, fmt: Format) -> list[FieldError]:
        """Everything that is wrong, in the order of the operations."""
        problems: list[FieldError] = []
        missing: dict[int, str] = {}  # operation → marker that is nowhere
        for number, search in enumerate(self.searches):
            field_name = f"targets[{number}]"
            if search.count == 0:
                marker, text = self._not_found(search)
                if marker:
                    missing[number] = marker
                problems.append(FieldError(field_name, text))
            else:
                problems += [FieldError(field_name, text) for text in self._wrong(search)]
        if missing:
            problems = self._with_nearest(problems, missing, source, fmt)
        return [*problems, *self._overlaps()]

    def _wrong(self, search: _Search) -> Iterator[str]:
        """What is wrong with an operation that was found."""
        start = quoted(search.operation.start)
        if search.count > 1:
            places = [match.where for match in search.matches]
            more = search.count - len(places)
            listed = "; ".join(places) + (f"; and {more} more" if more else "")
            yield (
                f"Pattern appears {search.count} times: start={start}. Use more specific patterns "
                f"to match exactly once. Matches: {listed}"
            )
            return
        [match] = search.matches
        length = match.end - match.start
        if length < SHORTEST_MATCH:
            yield (
                f"Match too short ({length} characters, minimum {SHORTEST_MATCH} characters): "
                f"start={start} in {match.where}"
            )
        why = match.protection or self.conversation.protection(match.index)
        if why:
            yield f"Protected: {why}; start={start} in {match.where}"

    def _not_found(self, search: _Search) -> tuple[str | None, str]:
        """The marker that stands nowhere, if that is the reason, and what to say."""
        start, end = quoted(search.operation.start), quoted(search.operation.end)
        if search.users:
            return None, (
                f"Pattern not found: start={start} end={end} stands only in what the user wrote "
                f"(entry {search.users}), which is left alone unless include_user is set"
            )
        if search.starts_in:
            return search.operation.end, (
                f"Pattern not found: no end={end} follows start={start} in the same text; the "
                f"start stands in {search.starts_in}"
            )
        return search.operation.start, f"Pattern not found: start={start} end={end}"

    def _with_nearest(
        self, problems: list[FieldError], missing: Mapping[int, str], source: Source, fmt: Format
    ) -> list[FieldError]:
        """Add the nearest similar text to the problems of markers that are nowhere."""
        similar = {number: Similar(marker) for number, marker in missing.items()}
        for seen in read_through(source, fmt):
            if self._is_searched(seen):
                for value, text in texts_of(seen, fmt):
                    if text and (self._include_user or not is_users(value, seen.facts)):
                        for one in similar.values():
                            one.look(name_of(seen), text)
        told = []
        for problem in problems:
            number = int(problem.field[len("targets[") : -1])
            best = similar[number].best() if number in similar else None
            more = f". Most similar: entry {best[0]}: {best[1]}" if best else ""
            told.append(FieldError(problem.field, problem.message + more))
        return told

    def _overlaps(self) -> Iterator[FieldError]:
        by_text: dict[tuple[int, object], list[Match]] = defaultdict(list)
        for search in self.searches:
            if search.count == 1:
                [match] = search.matches
                by_text[match.index, match.value.path].append(match)
        for matches in by_text.values():
            matches.sort(key=lambda match: (match.start, match.end))
            reach = matches[0]
            for _, match in pairwise(matches):
                if match.start < reach.end:
                    yield FieldError(
                        f"targets[{match.operation}]",
                        f"Ranges are overlapping: targets[{reach.operation}] ({reach.where}) and "
                        f"targets[{match.operation}] ({match.where})",
                    )
                reach = max(reach, match, key=lambda one: one.end)


def name_of(seen: Seen) -> str:
    """How an entry is called in answers: its id, or `#` and its line number."""
    return seen.facts.id if seen.facts.id is not None else f"#{seen.line.index}"


def texts_of(seen: Seen, fmt: Format) -> Iterator[tuple[Value, str | None]]:
    """The texts of an entry that may be changed; None for one that is in the store."""
    away = away_test(seen.entry, seen.facts.id)
    for value in fmt.values(seen.entry):
        if may_change(value) and value.shape is Shape.TEXT:
            yield value, None if away(value) else value.text


def _ranges(text: str, operation: Replacement) -> Iterator[tuple[int, int]]:
    at = text.find(operation.start)
    while at >= 0:
        found = text.find(operation.end, at + len(operation.start))
        if found < 0:
            return
        end = found + len(operation.end)
        yield at, end
        at = text.find(operation.start, end)


def _hint(finder: _Finder) -> str:
    if finder.extracted and any(not search.count for search in finder.searches):
        return "some text of this session is extracted: restore its entry first to change it"
    return "`bsd show AGENT/SESSION` shows the texts as they are now"


def _apply(source: Source, fmt: Format, finder: _Finder) -> tuple[Plan, ContextChanged]:
    operations = [search.operation for search in finder.searches]
    by_line: dict[int, list[Match]] = defaultdict(list)
    for search in finder.searches:
        by_line[search.matches[0].index].append(search.matches[0])
    edits: list[Edit] = []
    touched: list[TouchedLine] = []
    changed: dict[int, ContextChange] = {}
    problems: list[FieldError] = []
    for seen in read_through(source, fmt):
        here = by_line.get(seen.line.index)
        if here is None:
            continue
        texts = _new_texts(here, operations)
        try:
            new = put_texts(seen.line.raw, seen.entry, texts)
        except SpliceError as error:
            message = f"entry {name_of(seen)} cannot be edited safely: {error.message}"
            problems += [FieldError(f"targets[{one.operation}]", message) for one in here]
            continue
        edits.append(Edit(seen.line.offset, len(seen.line.raw), new))
        touched.append(TouchedLine(seen.line.index, seen.facts.id))
        changed |= {
            one.operation: _changed(one, operations[one.operation], finder.conversation)
            for one in here
        }
    if problems:
        raise Refused(REPLACE, sorted(problems, key=lambda one: one.field))
    warnings = [
        WARNING.format(here[0].name)
        for i, here in by_line.items()
        if finder.conversation.is_bound(i)
    ]
    in_order = tuple(changed[number] for number in sorted(changed))
    answer = ContextChanged(REPLACE, in_order, tuple(warnings))
    rate = finder.conversation.rate
    return change_plan(source, REPLACE, edits, touched, answer, rate), answer


def _new_texts(
    matches: Sequence[Match], operations: Sequence[Replacement]
) -> list[tuple[Value, str]]:
    """The texts of one line with its replacements in place, the last one first."""
    values: dict[object, Value] = {}
    texts: dict[object, str] = {}
    for match in sorted(matches, key=lambda one: one.start, reverse=True):
        path = match.value.path
        values[path] = match.value
        text = texts.get(path, match.value.text or "")
        replacement = operations[match.operation].replacement
        texts[path] = text[: match.start] + replacement + text[match.end :]
    return [(values[path], text_or_note(text)) for path, text in texts.items()]


def _changed(match: Match, operation: Replacement, conversation: Conversation) -> ContextChange:
    length, new_length = match.end - match.start, len(operation.replacement)
    tokens = conversation.tokens(match.index, length - new_length)
    return ContextChange(operation.as_json(), match.name, length, new_length, tokens)
