"""Plans seed 003's `replace`: what stands between two literal markers gives way to another text.

All of a call's operations or none. A match runs from `start` to the first `end` after it, within
one text; where one ends, the search goes on behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise

from bsd.core.errors import FieldError
from bsd.planning.context_window import WARNING, Binds, never
from bsd.planning.conversation import Conversation, is_users, may_change, read_through
from bsd.planning.discard import put_texts
from bsd.planning.locate import Located
from bsd.planning.plan import Plan
from bsd.planning.rules import away_test
from bsd.planning.targets import (
    EMPTY_MARKER,
    REPLACE,
    SHORTEST_MATCH,
    ContextChange,
    ContextChanged,
    Refused,
    Replacement,
    change_plan,
    context_changed,
    text_or_note,
)
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.format import Shape, TranscriptFormat, Value
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript
from bsd.transcripts.splice import SpliceError

_MOST_LISTED = 10
_CONTEXT = 20  # characters beside what is quoted
_LONGEST_QUOTE = 60
_LONGEST_COMPARED = 120  # of a marker, in characters: its beginning tells enough
_PIECES = 8
_MOST_COMPARED = 3000
_MOST_SEARCHED = 64 << 20  # characters
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
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
    source: Transcript,
    fmt: TranscriptFormat,
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

    def look(self, seen: Located, fmt: TranscriptFormat) -> None:
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
                if not is_users(value, seen.info) or self._include_user:
                    self._search(number, seen, value, text, protection)
                elif search.users is None and any(_ranges(text, search.operation)):
                    search.users = seen.name

    def _is_searched(self, seen: Located) -> bool:
        if not seen.info.is_message or seen.info.is_header:
            return False
        return not self.conversation.is_own_answer(seen.info)

    def _search(
        self, number: int, seen: Located, value: Value, text: str, protection: str | None
    ) -> None:
        name, search = seen.name, self.searches[number]
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

    def problems(self, source: Transcript, fmt: TranscriptFormat) -> list[FieldError]:
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
        self,
        problems: list[FieldError],
        missing: Mapping[int, str],
        source: Transcript,
        fmt: TranscriptFormat,
    ) -> list[FieldError]:
        """Add the nearest similar text to the problems of markers that are nowhere."""
        similar = {number: Similar(marker) for number, marker in missing.items()}
        for seen in read_through(source, fmt):
            if self._is_searched(seen):
                for value, text in texts_of(seen, fmt):
                    if text and (self._include_user or not is_users(value, seen.info)):
                        for one in similar.values():
                            one.look(seen.name, text)
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


def texts_of(seen: Located, fmt: TranscriptFormat) -> Iterator[tuple[Value, str | None]]:
    """The texts of an entry that may be changed; None for one that is in the store."""
    away = away_test(seen.entry, seen.info.id)
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


def _apply(
    source: Transcript, fmt: TranscriptFormat, finder: _Finder
) -> tuple[Plan, ContextChanged]:
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
            message = f"entry {seen.name} cannot be edited safely: {error.message}"
            problems += [FieldError(f"targets[{one.operation}]", message) for one in here]
            continue
        edits.append(Edit(seen.line.offset, len(seen.line.raw), new))
        touched.append(TouchedLine(seen.line.index, seen.info.id))
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
    answer = context_changed(REPLACE, in_order, warnings)
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


# --- the text most like a marker that is nowhere, within bounds that suit any session ---


def quoted(text: str) -> str:
    """A marker as errors show it."""
    shown = text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
    return f'"{_one_line(shown)}"'


def excerpt(text: str, start: int, end: int) -> str:
    """Where in a text something stands, with a little of what is around it."""
    if end - start > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        middle = f"{text[start : start + half]} … {text[end - half : end]}"
    else:
        middle = text[start:end]
    before, after = text[max(0, start - _CONTEXT) : start], text[end : end + _CONTEXT]
    left = "…" if start > _CONTEXT else ""
    right = "…" if end + _CONTEXT < len(text) else ""
    return f'"{_one_line(left + before + middle + after + right)}"'


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


class Similar:
    """Looks through one text after the other for the one most like a marker."""

    def __init__(self, marker: str) -> None:
        self._wanted = marker[:_LONGEST_COMPARED].casefold()
        self._matcher = SequenceMatcher(None, autojunk=False)
        self._matcher.set_seq2(self._wanted)
        self._pieces = _pieces(self._wanted)
        self._ratio = _ALIKE
        self._found: tuple[str, str] | None = None
        self._compared = self._searched = 0

    def look(self, name: str, text: str) -> None:
        """Compare one text of the entry `name`."""
        self._searched += len(text)
        if self._searched > _MOST_SEARCHED or not self._pieces:
            return
        lowered = text.casefold()
        windows: set[int] = set()
        for offset, piece in self._pieces:
            at = lowered.find(piece)
            while at >= 0 and self._compared < _MOST_COMPARED:
                # Pieces of one place point to nearly the same window: one look is enough.
                start = max(0, at - offset)
                if windows.isdisjoint(range(start - 2, start + 3)):
                    windows.add(start)
                    self._compare(name, text, lowered, start)
                at = lowered.find(piece, at + len(piece))

    def best(self) -> tuple[str, str] | None:
        """Entry and excerpt of the most similar text; None if nothing is like it."""
        return self._found

    def _compare(self, name: str, text: str, lowered: str, start: int) -> None:
        end = start + len(self._wanted)
        self._compared += 1
        self._matcher.set_seq1(lowered[start:end])
        if self._matcher.quick_ratio() > self._ratio and self._matcher.ratio() > self._ratio:
            self._ratio = self._matcher.ratio()
            self._found = name, excerpt(text, start, min(end, len(text)))


def _pieces(wanted: str) -> list[tuple[int, str]]:
    """Pieces of a marker, spread over it, and where in it they stand: one may be misspelt."""
    length = max(3, min(12, len(wanted) // 3))
    if len(wanted) < length:
        return []
    steps = max(1, (len(wanted) - length) // _PIECES)
    found = [(at, wanted[at : at + length]) for at in range(0, len(wanted) - length + 1, steps)]
    return [(at, piece) for at, piece in found if piece.strip()]
