"""Edits of one entry: its values, and its member `_extractable`.

`show_editable` returns an entry for editing, and `edit_entry` changes its values. `get_meta` reads
`_extractable`, and `set_extractable` changes it. All other bytes of the session stay as they are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import ConfigError, FieldError, Invalid
from bsd.core.layout import SessionName
from bsd.planning.edit import (
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
from bsd.planning.extract import why_it_stays
from bsd.planning.locate import locate
from bsd.planning.plan import Plan
from bsd.sessions.session import OpenSession
from bsd.transcripts.agents.entry import EXTRACTABLE, RESTORED, Marker
from bsd.transcripts.spans import ValuePath, parse_path

# The JSON schema of the argument of `read_edit`.
EDIT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "entry": {"type": "object", "description": "The whole entry with its new values"},
        "set": {
            "type": "object",
            "description": "New values by path, for example message.content[0].text",
        },
        "seen": {"type": "string", "description": "`seen` of the entry before the edit"},
    },
    "additionalProperties": False,
    "description": "Either `entry` or `set`",
}
_HINT = 'send {"entry": {…}} or {"set": {"message.content[0].text": "shorter"}}'


@dataclass(frozen=True, slots=True)
class Meta:
    """The members of an entry that bsd adds or reads."""

    entry_id: str | None
    index: int
    extractable: Annotated[bool | int | None, Field(serialization_alias=EXTRACTABLE)]
    restored: Annotated[str | None, Field(serialization_alias=RESTORED)]
    extracted: bool
    keys: tuple[str, ...]


def edit_entry(
    context: ActionContext,
    session: SessionName,
    entry: str,
    wish: Wish,
    seen: str | None = None,
) -> Edited:
    """Change values of one entry; all other bytes stay.

    Args:
        entry: its id, or `#` and a line number.
        wish: a function from the current entry to the new entry.
        seen: the hash of the line that the caller has seen; None: the line may have changed since.

    Raises:
        NotFound: there is no such session or entry.
        Busy: the session is in use.
        Invalid: the change would break the session.
        Conflict: the line has another hash than `seen`.
    """
    editor = context.editor(session)
    answer = editor.apply(
        lambda opened: plan_edit(opened.transcript, opened.format, entry, wish, seen)
    )
    return replace(answer, operation=editor.operation)


def read_edit(body: bytes) -> tuple[Wish, str | None]:
    """Read an edit and its `seen` from JSON; numbers keep their spelling.

    Raises:
        Invalid: the body is not valid; `errors` names every invalid member.
    """
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
        if name not in EDIT_SCHEMA["properties"]
    ]
    seen = document.get("seen")
    if seen is not None and (not isinstance(seen, str) or isinstance(seen, NumberText)):
        errors.append(FieldError("seen", "not a text"))
    given = [name for name in ("entry", "set") if name in document]
    if len(given) != 1:
        errors.append(FieldError("entry", "give either entry or set"))
    empty = [name for name in given if not (isinstance(document[name], dict) and document[name])]
    errors += [FieldError(name, "not an object") for name in empty]
    assignments = [] if errors or given == ["entry"] else _assignments(document["set"], errors)
    if errors:
        text = "; ".join(f"{one.field}: {one.message}" for one in errors)
        raise Invalid(text, hint=_HINT, errors=tuple(errors))
    return (setting(assignments) if assignments else replaced_by(document["entry"])), seen


def _assignments(values: dict[str, Any], errors: list[FieldError]) -> list[tuple[ValuePath, Any]]:
    assignments = []
    for text, value in values.items():
        try:
            assignments.append((parse_path(text), value))
        except ValueError as problem:
            errors.append(FieldError(f"set.{text}", f"not a path: {problem}"))
    return assignments


def show_editable(context: ActionContext, session: SessionName, entry: str) -> EditableEntry:
    """Return an entry (the header too) for editing; raises NotFound, LeftAlone."""
    with context.reader(session, to_edit=True) as opened:
        return show_entry(opened.transcript, opened.format, entry)


def get_meta(context: ActionContext, session: SessionName, entry: str) -> Meta:
    """Return bsd's members of an entry (the header too); raises NotFound, LeftAlone."""
    with context.reader(session, to_edit=True) as opened:
        located = locate(opened.transcript, opened.format, entry, header=True)
    marker = Marker.of(located.entry)
    return Meta(
        entry_id=located.info.id,
        index=located.line.index,
        extractable=located.entry.get(EXTRACTABLE),
        restored=located.entry.get(RESTORED),
        extracted=bool(marker and marker.keys),
        keys=tuple(marker.keys) if marker else (),
    )


def set_extractable(
    context: ActionContext, session: SessionName, entry: str, value: Extractable
) -> ExtractableSet:
    """Set whether an entry may be extracted.

    Args:
        entry: its id, or `#` and a line number.
        value: False keeps the entry inline, True extracts it as soon as possible, a number keeps
            it inline for that number of messages, None removes `_extractable`.

    Raises:
        NotFound: there is no such session or entry.
        Busy: the session is in use.
        Invalid: the number is negative.
    """
    return context.editor(session).apply(lambda opened: plan_with_reason(opened, entry, value))


def plan_with_reason(
    opened: OpenSession, entry: str, value: Extractable
) -> tuple[Plan, ExtractableSet]:
    """Plan the change of `_extractable`.

    If the value is True and the entry stays inline nevertheless, the answer says why.
    """
    source, fmt = opened.transcript, opened.format
    plan, answer = plan_set_extractable(source, fmt, entry, value)
    if value is True:
        with suppress(ConfigError):  # settings that cannot be read are reported elsewhere
            stays = why_it_stays(source, fmt, opened.settings, opened.now, answer.index)
            return plan, replace(answer, stays=stays)
    return plan, answer
