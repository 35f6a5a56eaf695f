"""Plans changes that a person makes to one entry. Only changed values get new bytes.

A document is an entry in which every number keeps its spelling, so that reading it and writing it
back changes nothing. The member `_extractable` is the setting of a person or an agent for one
entry: true, false, or a number of messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NoReturn

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict, Invalid
from bsd.planning.locate import Located, locate
from bsd.planning.plan import Plan
from bsd.store.entry_notes import Noting
from bsd.store.history import TouchedLine
from bsd.store.originals import digest
from bsd.transcripts.agents.entry import EXTRACTABLE, MARKER, Entry, Marker
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript, parse_entry
from bsd.transcripts.spans import ValuePath, format_path, is_present, parse_path, paths_of, value_at
from bsd.transcripts.splice import NoRoom, edit, find

_DEEPEST = 200
# Properties (of `EntryInfo`) that tie entries, calls and results together.
_TIES = (
    "id",
    "kind",
    "role",
    "calls",
    "result_of",
    "is_header",
    "is_message",
    "kept",
    "kept_from",
    "kept_to",
)
# Members below these may be edited: `arguments.id` is not an id of the conversation.
_FREE = frozenset(("arguments", "input", "details", "data", "result", "output"))
Extractable = bool | int | None


class NumberText(str):
    """A number with its original spelling."""

    __slots__ = ()


Document = dict[str, Any]
# Takes the present entry and returns the wanted one. Picklable: a child process may call it.
Wish = Callable[[Document], Document]


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit of one entry."""

    edited: bool
    entry_id: str | None
    index: Annotated[int, Field(description="0-based line number")]
    changed: Annotated[
        tuple[str, ...],
        Field(description="Paths of the changed values; empty if the entry was like that already"),
    ]
    operation: Annotated[
        int | None, Field(description="Number of the operation in the history")
    ] = None


@dataclass(frozen=True, slots=True)
class EditableEntry:
    """An entry as text for editing."""

    entry_id: str | None
    index: int
    text: str  # JSON, one member a line
    seen: str  # hash of the line, to detect changes made meanwhile


def show_entry(source: Transcript, fmt: TranscriptFormat, entry: str) -> EditableEntry:
    """Return an entry, or the header, for editing.

    Raises:
        NotFound: there is no such entry.
        Conflict: the name is ambiguous, or the line cannot be read for editing.
    """
    located = locate(source, fmt, entry, header=True)
    text = write_document(_document(located), indent=2) + "\n"
    return EditableEntry(located.info.id, located.line.index, text, digest(located.line.raw))


def plan_edit(
    source: Transcript, fmt: TranscriptFormat, entry: str, wish: Wish, seen: str | None = None
) -> tuple[Plan, Edited]:
    """Plan the change of one entry.

    Args:
        wish: makes the wanted entry of the present one.
        seen: hash of the line that the wish is based on; None: any line.

    Raises:
        NotFound: there is no such entry.
        Invalid: the change would break the session.
        Conflict: the line has changed since, or cannot be edited.
    """
    located = locate(source, fmt, entry)
    raw = located.line.raw
    if seen is not None and digest(raw) != seen:
        raise Conflict(f"entry {entry} was changed meanwhile; your edit was not applied")
    old = _document(located)
    new = wish(old)
    changes = _Changes()
    changes.compare(old, new, ())
    _check_structure(changes.paths, fmt)
    line = changes.apply(raw, new) if changes.paths else raw
    if changes.paths:
        _check(located, fmt, line, new)
    edits = () if line == raw else (Edit(located.line.offset, len(raw), line),)
    answer = Edited(
        edited=bool(changes.paths),
        entry_id=located.info.id,
        index=located.line.index,
        changed=tuple(format_path(path) for path in changes.paths),
    )
    touched = [TouchedLine(answer.index, answer.entry_id) for _ in edits]
    return Plan.of("edit", source, fmt, edits, touched, values=len(changes.paths)), answer


def becoming(text: str) -> Wish:
    """Return the wish to replace an entry by this JSON object.

    Raises Invalid if it is not an object.
    """
    document = read_document(text)
    if not isinstance(document, dict):
        raise Invalid("an entry is one JSON object: { … }")
    return replaced_by(document)


def setting(assignments: list[tuple[ValuePath, Any]]) -> Wish:
    """Return the wish to set values at these paths.

    The wish raises Invalid if a path does not exist.
    """
    return partial(_set, assignments)


def _set(assignments: list[tuple[ValuePath, Any]], document: Document) -> Document:
    new: Any = document
    for path, value in assignments:
        new = _with(new, path, value, path)
    wanted: Document = new
    return wanted


def replaced_by(wanted: Document) -> Wish:
    """Return the wish to replace an entry by this document."""
    return partial(_instead, wanted)


def _instead(wanted: Document, _: Document) -> Document:
    return wanted


def read_assignment(text: str) -> tuple[ValuePath, Any]:
    """Parse `PATH=JSON`; raises Invalid."""
    at = text.find("=")
    while at >= 0:
        try:
            path = parse_path(text[:at])
        except ValueError:  # this `=` belongs to a quoted key
            at = text.find("=", at + 1)
            continue
        return path, read_document(text[at + 1 :])
    raise Invalid(
        f"{text!r} is not PATH=JSON", hint="""e.g. --set 'message.content[0].text="shorter"'"""
    )


def read_document(text: str) -> Any:
    """Parse JSON and keep the spelling of numbers.

    Raises Invalid with the position of the error.
    """
    try:
        document = json.loads(
            text,
            parse_int=NumberText,
            parse_float=NumberText,
            parse_constant=_refuse_constant,
            object_pairs_hook=_members_once,
        )
    except RecursionError:
        raise _too_deep("the JSON") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid(
            f"this is not JSON: {error.msg} ({where})", hint="put text in quotes"
        ) from None
    except ValueError as error:
        raise Invalid(f"this is not JSON: {error}") from None
    if _is_deep(document):
        raise _too_deep("the JSON")
    return document


def write_document(value: Any, indent: int | None = None, depth: int = 0) -> str:
    """Write JSON with the original spelling of numbers.

    `indent`: spaces per level; None: one line.
    """
    if isinstance(value, NumberText):
        return str(value)
    if isinstance(value, dict | list) and value:
        space = "" if indent is None else "\n" + " " * indent * (depth + 1)
        end = "" if indent is None else "\n" + " " * indent * depth
        colon = ":" if indent is None else ": "
        inside = depth + 1
        if isinstance(value, dict):
            items = [
                _text(key) + colon + write_document(member, indent, inside)
                for key, member in value.items()
            ]
            return "{" + space + f",{space}".join(items) + end + "}"
        items = [write_document(item, indent, inside) for item in value]
        return "[" + space + f",{space}".join(items) + end + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


@dataclass(slots=True)
class _Changes:
    """The differences between two documents."""

    replaced: dict[ValuePath, tuple[Any, Any]] = field(default_factory=dict)  # (old, new)
    removed: list[ValuePath] = field(default_factory=list)
    added: list[ValuePath] = field(default_factory=list)

    @property
    def paths(self) -> tuple[ValuePath, ...]:
        return (*self.replaced, *self.removed, *self.added)

    def compare(self, old: Any, new: Any, path: ValuePath) -> None:
        if isinstance(old, dict) and isinstance(new, dict):
            self.removed += [(*path, key) for key in old if key not in new]
            self.added += [(*path, key) for key in new if key not in old]
            for key in old:
                if key in new:
                    self.compare(old[key], new[key], (*path, key))
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for index, (one, other) in enumerate(zip(old, new, strict=True)):
                self.compare(one, other, (*path, index))
        elif not same(old, new):
            self.replaced[path] = (old, new)

    def apply(self, raw: bytes, new: Document) -> bytes:
        """Return the changed line.

        New members get the position that they have in the new document.
        """
        return edit(
            raw,
            replace={p: _value(raw, p, *pair) for p, pair in self.replaced.items()},
            remove=self.removed,
            reinsert=self.added,
            original=write_document(new).encode() if self.added else b"",
        )


def same(one: Any, other: Any) -> bool:
    """Return whether two values are spelled alike: 1, 1.0, "1" and true are all different."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    equal: bool = one == other
    return equal


def _value(raw: bytes, path: ValuePath, old: Any, new: Any) -> bytes:
    """Return the new value's JSON. Elements of an array that stay keep their bytes."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return write_document(new).encode()
    shorter = min(len(old), len(new))
    head = _alike(old[:shorter], new[:shorter])
    tail = _alike(old[::-1][: shorter - head], new[::-1][: shorter - head])
    moved = len(old) - len(new)
    stays = {at: at for at in range(head)}
    stays |= {at: at + moved for at in range(len(new) - tail, len(new))}
    spans = find(raw, [(*path, at) for at in stays.values()]) if stays else {}
    items = [
        raw[slice(*spans[(*path, stays[at])])] if at in stays else write_document(item).encode()
        for at, item in enumerate(new)
    ]
    return b"[" + b",".join(items) + b"]"


def _alike(old: list[Any], new: list[Any]) -> int:
    count = 0
    for one, other in zip(old, new, strict=True):
        if not same(one, other):
            break
        count += 1
    return count


def _check_structure(paths: tuple[ValuePath, ...], fmt: TranscriptFormat) -> None:
    fixed = [path for path in paths if is_structure(path, fmt)]
    if fixed:
        names = ", ".join(format_path(path) for path in fixed)
        raise Invalid(
            f"{names} cannot be edited: other entries, the program or bsd's store rely on it",
            hint="change texts, arguments and other values only",
        )


def is_structure(path: ValuePath, fmt: TranscriptFormat) -> bool:
    """Return whether a value holds the session together, so that no edit may change it."""
    if path[0] == MARKER:
        return True
    return path[-1] in {MARKER, *fmt.ties} and not any(step in _FREE for step in path[:-1])


def _check(located: Located, fmt: TranscriptFormat, line: bytes, wanted: Document) -> None:
    """Raise if the new line differs from the wanted entry or would break the session."""
    entry = parse_entry(line)
    if entry is None or not same(_read(line), wanted):
        raise Conflict(f"line {located.line.index} cannot be edited safely; it was left alone")
    old, new = located.info, fmt.info(entry)
    if name := changed_tie(old, new):
        raise Invalid(
            f"the edit would change the entry's {name}: other entries rely on it",
            hint="change texts, arguments and other values only",
        )
    if moved := list(_placeholders_moved(located.entry, entry)):
        raise Invalid(
            f"{', '.join(moved)} is extracted: its placeholder must stay as it is",
            hint=f"`bsd restore AGENT/SESSION {old.id}` brings it back; then edit the entry",
        )


def changed_tie(old: EntryInfo, new: EntryInfo) -> str | None:
    """Return the property that other entries rely on and that an edit has changed, or None."""
    for what in _TIES:
        if _tie(old, what) != _tie(new, what):
            return what.replace("_", " ").removeprefix("is ")
    return None


def _tie(info: EntryInfo, what: str) -> Any:
    if what == "calls":  # ids and names in order; a block before them may come or go
        return [(call.id, call.name) for call in info.calls]
    return getattr(info, what)


def _placeholders_moved(old: Entry, new: Entry) -> Iterator[str]:
    marker = Marker.of(old)
    for key, path in paths_of(marker.keys if marker else ()).items():
        if is_present(old, path) and value_at(old, path) != value_at(new, path):
            yield key


def _document(located: Located) -> Document:
    document = _read(located.line.raw)
    if not isinstance(document, dict):
        raise Conflict(f"line {located.line.index} cannot be read for editing")
    return document


def _read(raw: bytes) -> Any:
    """Parse a line as a document.

    The last of several equal keys wins, as it does for the program.
    """
    try:
        document = json.loads(raw.decode(), parse_int=NumberText, parse_float=NumberText)
    except RecursionError:
        raise Conflict(_too_deep("the entry").message) from None
    if _is_deep(document):
        raise Conflict(_too_deep("the entry").message)
    return document


def _is_deep(document: Any) -> bool:
    """Return whether a document is nested too deeply for the recursive functions of this module."""
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(_DEEPEST):
        level = [
            member
            for each in level
            for member in (each.values() if isinstance(each, dict) else each)
            if isinstance(member, dict | list)
        ]
    return bool(level)


def _too_deep(what: str) -> Invalid:
    return Invalid(f"{what} is nested too deeply: more than {_DEEPEST} levels")


def _with(value: Any, path: ValuePath, new: Any, whole: ValuePath) -> Any:
    """Return a copy of a value with `new` at a path. Values off the path are shared."""
    if not path:
        return new
    step = path[0]
    if isinstance(value, dict) and isinstance(step, str):
        if step in value or len(path) == 1:
            return {**value, step: _with(value.get(step), path[1:], new, whole)}
    elif isinstance(value, list) and isinstance(step, int) and step < len(value):
        changed = _with(value[step], path[1:], new, whole)
        return [*value[:step], changed, *value[step + 1 :]]
    raise Invalid(
        f"the entry has no value at {format_path(whole)}",
        hint="`bsd show AGENT/SESSION --entry ENTRY --full` shows the entry",
    )


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates need escapes
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def _members_once(members: list[tuple[str, Any]]) -> Document:
    document = dict(members)
    if len(document) < len(members):
        keys = [key for key, _ in members]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {_text(twice)} occurs twice in one object")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# --- `_extractable` ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractableSet:
    """The present and the previous `_extractable` of an entry; null: not set."""

    updated: bool = True
    entry_id: str | None
    extractable: Extractable
    previous: Any
    index: Internal[int]  # 0-based line number
    stays: Annotated[
        str | None,
        Field(
            description="Why it stays although the value is true, as in `reasons` of an extraction"
        ),
        OMIT_EMPTY,
    ] = None


def plan_set_extractable(
    source: Transcript, fmt: TranscriptFormat, entry: str, value: Extractable
) -> tuple[Plan, ExtractableSet]:
    """Plan to set `_extractable`, or to remove it if `value` is None.

    Either change frees the entry: an earlier undo no longer keeps it in the session.

    Raises:
        NotFound: there is no such entry.
        Invalid: `value` is negative.
        Conflict: the line cannot be edited, or has no room for the member.
    """
    if value is not None and value < 0:
        raise Invalid(
            f"_extractable cannot be {value}",
            hint="true, false, or the number of messages for which to keep the entry",
        )
    located = locate(source, fmt, entry)
    raw = located.line.raw
    previous = located.entry.get(EXTRACTABLE)
    if value is None:
        new = edit(raw, remove=[(EXTRACTABLE,)]) if EXTRACTABLE in located.entry else raw
    else:
        new = edit(raw, put={EXTRACTABLE: _extractable_json(value)})
    edits = () if new == raw else (Edit(located.line.offset, len(raw), new),)
    answer = ExtractableSet(
        entry_id=located.info.id,
        extractable=value,
        previous=previous,
        index=located.line.index,
    )
    touched = [TouchedLine(answer.index, answer.entry_id) for _ in edits]
    freed = Noting(freed=(answer.entry_id,) if answer.entry_id else ())
    try:
        plan = Plan.of("set_extractable", source, fmt, edits, touched)
    except NoRoom as error:
        hint = "`bsd undo AGENT/SESSION` keeps extracted entries inline, too"
        raise NoRoom(hint) from error
    return replace(plan, noting=freed), answer


def _extractable_json(value: bool | int) -> bytes:  # noqa: FBT001 - the value itself, not a switch
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return b"%d" % value
