"""edit: values of one entry changed as a person wants them; all other bytes stay.

And show_editable, the entry that somebody is about to edit; get_meta and set_extractable, what is
noted on it, by bsd and by people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.agents.entry import EXTRACTABLE, RESTORED, Marker
from bsd.foundation.definition import Answer, contract
from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.layout import SessionName
from bsd.foundation.value_path import ValuePath, parse_path
from bsd.session.session import Session
from bsd.surgery.edit import (
    EditableEntry,
    Edited,
    Extractable,
    ExtractableSet,
    NumberText,
    Wish,
    plan_edit,
    plan_set_extractable,
    read_document,
    replaced_by,
    setting,
    show_entry,
)
from bsd.surgery.locate import locate
from bsd.surgery.plan import Means, Plan
from bsd.text.reader import Transcript
from bsd.verbs.restore import ENTRY
from bsd.verbs.verb import Body, Hands, Meanwhile, Route, Verb, argument

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "entry": {"type": "object", "description": "The whole entry as it shall be"},
        "set": {
            "type": "object",
            "description": "Values by path, as in message.content[0].text",
        },
        "seen": {"type": "string", "description": "`seen` of the entry that was shown"},
    },
    "additionalProperties": False,
    "description": "Either entry or set",
}
_HINT = 'send {"entry": {…}} or {"set": {"message.content[0].text": "shorter"}}'


@dataclass(frozen=True, slots=True)
class EditEntry:
    """`seen` is the hash of the line that the wish was made on; EntryChanged if it is another."""

    entry: str = field(metadata=ENTRY)
    wish: Wish = field(metadata=argument("From the entry as it is to the entry as it shall be."))
    seen: str | None = None


def _plan(source: Transcript, fmt: Format, asked: EditEntry, _: Means) -> tuple[Plan, Edited]:
    return plan_edit(source, fmt, asked.entry, asked.wish, asked.seen)


def _read(body: bytes) -> Mapping[str, Any]:
    """Read a body, in which numbers stay as they are spelled; raises Invalid on every bad field."""
    if not body:
        raise Invalid("the body is empty", hint=_HINT)
    try:
        document = read_document(body.decode())
    except UnicodeDecodeError as error:
        raise Invalid(f"the body is not UTF-8: {error.reason}") from None
    if not isinstance(document, dict):
        raise Invalid("the body is not a JSON object {…}", hint=_HINT)
    errors = [
        FieldError(name, "not a field of an edit")
        for name in document
        if name not in _SCHEMA["properties"]
    ]
    seen = document.get("seen")
    if seen is not None and (not isinstance(seen, str) or isinstance(seen, NumberText)):
        errors.append(FieldError("seen", "not a text"))
    given = [name for name in ("entry", "set") if name in document]
    if len(given) != 1:
        errors.append(FieldError("entry", "give either entry or set"))
    errors += [FieldError(name, "not an object") for name in given if not _full(document[name])]
    assignments = [] if errors or given == ["entry"] else _assignments(document["set"], errors)
    if errors:
        text = "; ".join(f"{one.field}: {one.message}" for one in errors)
        raise Invalid(text, hint=_HINT, errors=tuple(errors))
    if assignments:
        return {"wish": setting(assignments), "seen": seen}
    return {"wish": replaced_by(document["entry"]), "seen": seen}


def _full(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _assignments(values: dict[str, Any], errors: list[FieldError]) -> list[tuple[ValuePath, Any]]:
    found = []
    for text, value in values.items():
        try:
            found.append((parse_path(text), value))
        except ValueError as problem:
            errors.append(FieldError(f"set.{text}", f"not a path: {problem}"))
    return found


EDIT = Verb(
    name="edit",
    arguments=EditEntry,
    answer=Edited,
    plan=_plan,
    changes=True,
    route=Route(
        "PUT",
        "/api/sessions/{agent}/{session}/entries/{entry}",
        "edit",
        "Change values of an entry; all other bytes stay.",
        tag="entries",
        body=Body(_read, _SCHEMA),
    ),
)


# --- show_editable ---


@dataclass(frozen=True, slots=True)
class ShowEditable:
    """Of one entry, the header included."""

    entry: str = field(metadata=ENTRY)


def _show(hands: Hands, name: SessionName, asked: ShowEditable, _: Meanwhile) -> EditableEntry:
    source, fmt = Session(hands.layout, name).open()
    with source:
        return show_entry(source, fmt, asked.entry)


# Doors have routes and commands of their own for it: an entry is shown as it is spelled.
SHOW_EDITABLE = Verb(
    name="show_editable",
    arguments=ShowEditable,
    answer=EditableEntry,
    act=_show,
)


# --- get_meta ---


@dataclass(frozen=True, slots=True)
class GetMeta:
    """Of one entry, the header included."""

    entry: str = field(metadata=argument(metavar="ENTRY", positional=True))


@dataclass(frozen=True, slots=True)
class Meta(Answer):
    """What is noted on an entry."""

    entry_id: str | None
    index: int
    extractable: bool | int | None = field(metadata=contract(name=EXTRACTABLE))
    restored: str | None = field(metadata=contract(name=RESTORED))
    extracted: bool
    keys: tuple[str, ...]


def _get_meta(hands: Hands, name: SessionName, asked: GetMeta, _: Meanwhile) -> Meta:
    source, fmt = Session(hands.layout, name).open()
    with source:
        located = locate(source, fmt, asked.entry, header=True)
    marker = Marker.of(located.entry)
    return Meta(
        entry_id=located.facts.id,
        index=located.line.index,
        extractable=located.entry.get(EXTRACTABLE),
        restored=located.entry.get(RESTORED),
        extracted=bool(marker and marker.keys),
        keys=tuple(marker.keys) if marker else (),
    )


GET_META = Verb(
    name="get_meta",
    arguments=GetMeta,
    answer=Meta,
    act=_get_meta,
    route=Route(
        "GET",
        "/api/sessions/{agent}/{session}/entries/{entry}/meta",
        "meta",
        "What is noted on an entry.",
        tag="entries",
    ),
)


# --- set_extractable ---


@dataclass(frozen=True, slots=True)
class SetExtractable:
    """true, false, for how many messages to keep the entry, or null for no word on it."""

    entry: str = field(metadata=ENTRY)
    value: Extractable = field(
        metadata=argument(
            "false keeps the entry in sight, true lets it go, a number keeps it for so many "
            "messages, null takes back what was said.",
            metavar="true|false|N|unset",
            positional=True,
            least=0,
            most=10**9,
            expected="true, false, a number of messages or null",
            names={"http": "_extractable"},
        )
    )


def _plan_set_extractable(
    source: Transcript, fmt: Format, asked: SetExtractable, _: Means
) -> tuple[Plan, ExtractableSet]:
    return plan_set_extractable(source, fmt, asked.entry, asked.value)


SET_EXTRACTABLE = Verb(
    name="set_extractable",
    arguments=SetExtractable,
    answer=ExtractableSet,
    plan=_plan_set_extractable,
    changes=True,
    route=Route(
        "PUT",
        "/api/sessions/{agent}/{session}/entries/{entry}/meta",
        "set_meta",
        "Say whether an entry may be extracted.",
        tag="entries",
        hint="No valid fields to update. Allowed: _extractable",
    ),
    about="""
    VALUE is false (never extract this entry), true (extract it, whatever its type, size or
    position), a number (keep it for so many messages instead of keep_recent), or unset. Any of
    them gives back to the daemon what an undo had kept inline.
    """,
    examples=(
        "bsd set-extractable main/4f2a 1c556fa0 false",
        "bsd set-extractable main/4f2a 1c556fa0 20",
    ),
)
