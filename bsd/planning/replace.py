"""Plans seed 003's `replace`: text between two literal markers is replaced by another text.

Either all operations of a call are planned, or none. A match runs from `start` to the first `end`
after it, within one text. The search continues after the match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise

from bsd.core.errors import FieldError
from bsd.planning.context_window import WARNING, Binds, never
from bsd.planning.conversation import Conversation, is_users, may_change
from bsd.planning.discard import put_texts
from bsd.planning.locate import Located, entries
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
    text_or_note,
)
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.format import Shape, TranscriptFormat, Value
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript
from bsd.transcripts.splice import SpliceError

_MOST_LISTED = 10
_BESIDE = 20  # characters of context on each side of a quote
_LONGEST_QUOTE = 60
_LONGEST_COMPARED = 120  # characters of a marker that are compared
_PIECES = 8
_MOST_COMPARED = 3000
_MOST_SEARCHED = 64 << 20  # characters
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class _Match:
    """A match of an operation: the characters `[start, end)` of one text."""

    operation: int
    seen: Located
    value: Value
    start: int
    end: int
    where: str  # place and excerpt, for messages


@dataclass(slots=True)
class _Search:
    """The matches of one operation."""

    operation: Replacement
    match: _Match | None = None  # the match, if there is exactly one
    places: list[str] = field(default_factory=list)  # the first matches, for messages
    count: int = 0
    starts_in: str | None = None  # the first text with a start and no end after it
    users: str | None = None  # entry of the first match in text that the user wrote
    protection: str | None = None  # why the entry of the first match is protected


def plan_replace(
    source: Transcript,
    fmt: TranscriptFormat,
    operations: Sequence[Replacement],
    *,
    include_user: bool = False,
    protected_tools: Collection[str] = (),
    binds: Binds = never,
    now: float | None = None,
) -> tuple[Plan, ContextChanged]:
    """Plan these operations.

    Args:
        include_user: also change text that the user wrote.
        protected_tools: names of tools whose calls and results are not changed.
        binds: tells whether the signatures of a model cover earlier entries, which adds a warning.
        now: epoch seconds; None: a turn without a recorded end stays open.

    Raises:
        Refused: at least one operation is wrong; lists all their errors.
    """
    if empty := [
        FieldError(f"targets[{number}]", EMPTY_MARKER)
        for number, operation in enumerate(operations)
        if not (operation.start and operation.end)  # an empty marker would match everywhere
    ]:
        raise Refused(REPLACE, empty)
    conversation = Conversation(fmt, protected_tools, binds)
    searches = [_Search(operation) for operation in operations]
    some_extracted = False
    for seen in entries(source.lines(), fmt):
        conversation.follow(seen)
        for value, text in texts_of(seen, fmt) if _is_searched(seen, conversation) else ():
            if text is None:
                some_extracted = True
                continue
            is_left_alone = is_users(value, seen.info) and not include_user
            for number, search in enumerate(searches):
                if not is_left_alone:
                    _search(search, number, seen, value, text, conversation)
                elif search.users is None and any(_ranges(text, search.operation)):
                    search.users = seen.name
    conversation.end_if_silent(now, source.identity.mtime)
    if problems := _all_problems(source, fmt, searches, conversation, include_user=include_user):
        hint = "`bsd show AGENT/SESSION` shows the texts as they are now"
        if some_extracted and any(not search.count for search in searches):
            hint = "some text of this session is extracted: restore its entry first to change it"
        raise Refused(REPLACE, problems, hint=hint)
    return _apply(source, fmt, searches, conversation)


def _all_problems(
    source: Transcript,
    fmt: TranscriptFormat,
    searches: Sequence[_Search],
    conversation: Conversation,
    *,
    include_user: bool,
) -> list[FieldError]:
    """Return all errors in the order of the operations, then the overlaps."""
    problems = [
        FieldError(f"targets[{number}]", text)
        for number, search in enumerate(searches)
        for text in _problems(search, conversation)
    ]
    if problems and any(not search.count for search in searches):
        similar = _most_similar(source, fmt, searches, conversation, include_user=include_user)
        problems = [
            FieldError(problem.field, problem.message + similar.get(problem.field, ""))
            for problem in problems
        ]
    return [*problems, *_overlaps(searches)]


def texts_of(seen: Located, fmt: TranscriptFormat) -> Iterator[tuple[Value, str | None]]:
    """Yield the texts of an entry that may be changed; None in place of an extracted text."""
    away = away_test(seen.entry, seen.info.id)
    for value in fmt.values(seen.entry):
        if may_change(value) and value.shape is Shape.TEXT:
            yield value, None if away(value) else value.text


def _is_searched(seen: Located, conversation: Conversation) -> bool:
    if not seen.info.is_message or seen.info.is_header:
        return False
    return not conversation.is_own_answer(seen.info)


def _search(
    search: _Search,
    number: int,
    seen: Located,
    value: Value,
    text: str,
    conversation: Conversation,
) -> None:
    """Add one text's matches to the search."""
    for start, end in _ranges(text, search.operation):
        if not search.count:
            search.protection = conversation.own_protection(seen)
        search.count += 1
        if search.count <= _MOST_LISTED:
            where = f"entry {seen.name}, characters {start}–{end}: {_excerpt(text, start, end)}"
            search.places.append(where)
            is_first = search.count == 1
            search.match = _Match(number, seen, value, start, end, where) if is_first else None
    if search.starts_in is None and not search.count:
        at = text.find(search.operation.start)
        if at >= 0:
            end = at + len(search.operation.start)
            search.starts_in = f"entry {seen.name}: {_excerpt(text, at, end)}"


def _ranges(text: str, operation: Replacement) -> Iterator[tuple[int, int]]:
    at = text.find(operation.start)
    while at >= 0:
        found = text.find(operation.end, at + len(operation.start))
        if found < 0:
            return
        end = found + len(operation.end)
        yield at, end
        at = text.find(operation.start, end)


def _problems(search: _Search, conversation: Conversation) -> Iterator[str]:
    """Yield the errors of a single operation."""
    start, end = _quoted(search.operation.start), _quoted(search.operation.end)
    if search.count == 0:
        if search.users:
            yield (
                f"Pattern not found: start={start} end={end} occurs only in text of the user "
                f"(entry {search.users}), which is changed only with include_user"
            )
        elif search.starts_in:
            yield (
                f"Pattern not found: no end={end} follows start={start} in the same text; the "
                f"start is in {search.starts_in}"
            )
        else:
            yield f"Pattern not found: start={start} end={end}"
        return
    match = search.match
    if match is None:
        more = search.count - len(search.places)
        listed = "; ".join(search.places)
        yield (
            f"Pattern appears {search.count} times: start={start}. Use more specific patterns "
            f"to match exactly once. Matches: {listed}" + (f"; and {more} more" if more else "")
        )
        return
    length = match.end - match.start
    if length < SHORTEST_MATCH:
        yield (
            f"Match too short ({length} characters, minimum {SHORTEST_MATCH} characters): "
            f"start={start} in {match.where}"
        )
    if why := search.protection or conversation.protection(match.seen.line.index):
        yield f"Protected: {why}; start={start} in {match.where}"


def _most_similar(
    source: Transcript,
    fmt: TranscriptFormat,
    searches: Sequence[_Search],
    conversation: Conversation,
    *,
    include_user: bool,
) -> dict[str, str]:
    """Return, by field, the text most similar to each marker that occurs nowhere."""
    similar = {
        f"targets[{number}]": _Similar(
            search.operation.end if search.starts_in else search.operation.start
        )
        for number, search in enumerate(searches)
        if not search.count and not search.users
    }
    for seen in entries(source.lines(), fmt) if similar else ():
        if _is_searched(seen, conversation):
            for value, text in texts_of(seen, fmt):
                if text and (include_user or not is_users(value, seen.info)):
                    for one in similar.values():
                        one.look(seen.name, text)
    return {name: f". Most similar: {one.best}" for name, one in similar.items() if one.best}


def _overlaps(searches: Sequence[_Search]) -> Iterator[FieldError]:
    by_text: dict[tuple[int, object], list[_Match]] = defaultdict(list)
    for search in searches:
        if match := search.match:
            by_text[match.seen.line.index, match.value.path].append(match)
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


def _apply(
    source: Transcript,
    fmt: TranscriptFormat,
    searches: Sequence[_Search],
    conversation: Conversation,
) -> tuple[Plan, ContextChanged]:
    """Return the plan and the answer; each operation has one match. Raises Refused."""
    by_line: dict[int, list[_Match]] = defaultdict(list)
    for search in searches:
        if search.match:
            by_line[search.match.seen.line.index].append(search.match)
    edits: list[Edit] = []
    touched: list[TouchedLine] = []
    changed: dict[int, ContextChange] = {}
    problems: list[FieldError] = []
    for index in sorted(by_line):
        seen = by_line[index][0].seen
        values: dict[object, Value] = {}
        texts: dict[object, str] = {}
        for match in sorted(by_line[index], key=lambda one: one.start, reverse=True):
            path, operation = match.value.path, searches[match.operation].operation
            values[path] = match.value
            text = texts.get(path, match.value.text or "")
            texts[path] = text[: match.start] + operation.replacement + text[match.end :]
            length, new_length = match.end - match.start, len(operation.replacement)
            tokens = conversation.tokens(index, length - new_length)
            changed[match.operation] = ContextChange(
                operation.as_json(), seen.name, length, new_length, tokens
            )
        new_texts = [(values[path], text_or_note(text)) for path, text in texts.items()]
        try:
            new = put_texts(seen.line.raw, seen.entry, new_texts)
        except SpliceError as error:
            message = f"entry {seen.name} cannot be edited safely: {error.message}"
            problems += [FieldError(f"targets[{one.operation}]", message) for one in by_line[index]]
            continue
        edits.append(Edit(seen.line.offset, len(seen.line.raw), new))
        touched.append(TouchedLine(index, seen.info.id))
    if problems:
        raise Refused(REPLACE, sorted(problems, key=lambda one: one.field))
    warnings = [
        WARNING.format(matches[0].seen.name)
        for index, matches in by_line.items()
        if conversation.is_bound(index)
    ]
    in_order = [changed[number] for number in sorted(changed)]
    return change_plan(source, fmt, REPLACE, edits, touched, in_order, warnings, conversation.rate)


def _quoted(text: str) -> str:
    """Return a marker as error messages show it."""
    shown = text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
    return f'"{_one_line(shown)}"'


def _excerpt(text: str, start: int, end: int) -> str:
    """Return a match with a little of the text around it."""
    middle = text[start:end]
    if len(middle) > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        middle = f"{middle[:half]} … {middle[-half:]}"
    before, after = text[max(0, start - _BESIDE) : start], text[end : end + _BESIDE]
    left = "…" if start > _BESIDE else ""
    right = "…" if end + _BESIDE < len(text) else ""
    return f'"{_one_line(left + before + middle + after + right)}"'


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


class _Similar:
    """Searches texts for the passage most similar to a marker.

    Only passages that contain a piece of the marker are compared, and the number of comparisons is
    limited, so that the search takes bounded time in any session.
    """

    def __init__(self, marker: str) -> None:
        self._wanted = marker[:_LONGEST_COMPARED].casefold()
        self._matcher = SequenceMatcher(None, autojunk=False)
        self._matcher.set_seq2(self._wanted)
        # Pieces from all over the marker with their offsets, since some may be misspelt.
        length = max(3, min(12, len(self._wanted) // 3))
        last = len(self._wanted) - length
        starts = range(0, last + 1, max(1, last // _PIECES))
        pieces = [(at, self._wanted[at : at + length]) for at in starts]
        self._pieces = [(at, piece) for at, piece in pieces if piece.strip()]
        self._ratio = _ALIKE
        self._compared = self._searched = 0
        self.best: str | None = None  # its entry, and an excerpt

    def look(self, name: str, text: str) -> None:
        """Compare one text of the entry `name`."""
        self._searched += len(text)
        if self._searched > _MOST_SEARCHED:
            return
        lowered = text.casefold()
        windows: set[int] = set()
        for offset, piece in self._pieces:
            at = lowered.find(piece)
            while at >= 0 and self._compared < _MOST_COMPARED:
                # Neighbouring pieces give nearly the same window, which is compared once.
                start = max(0, at - offset)
                if windows.isdisjoint(range(start - 2, start + 3)):
                    windows.add(start)
                    self._compare(name, text, lowered, start)
                at = lowered.find(piece, at + len(piece))

    def _compare(self, name: str, text: str, lowered: str, start: int) -> None:
        end = start + len(self._wanted)
        self._compared += 1
        self._matcher.set_seq1(lowered[start:end])
        if self._matcher.quick_ratio() > self._ratio and self._matcher.ratio() > self._ratio:
            self._ratio = self._matcher.ratio()
            self.best = f"entry {name}: {_excerpt(text, start, min(end, len(text)))}"
