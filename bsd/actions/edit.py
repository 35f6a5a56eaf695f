"""What people and agents change of what stands in a session; all other bytes stay.

edit: values of one entry, as a person wants them; show_editable is the entry that somebody is about
to edit, get_meta and set_extractable what is noted on it. change_context: ranges, or the texts of
entries that get_context lists, as an agent wants them; replace is the same as the page asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bsd.actions.restore import ENTRY
from bsd.actions.verb import Body, Hands, Meanwhile, Tool, Verb, argument, route
from bsd.core.definition import Answer, contract
from bsd.core.errors import ConfigError, FieldError, Invalid
from bsd.core.layout import SessionName
from bsd.planning.discard import plan_discard
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
from bsd.planning.plan import Means, Plan
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.targets import ACTIONS, ContextChanged, read_targets
from bsd.planning.targets import REPLACE as BY_RANGE
from bsd.planning.view import Context, context
from bsd.sessions.session import Session
from bsd.transcripts.agents.entry import EXTRACTABLE, RESTORED, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript
from bsd.transcripts.spans import ValuePath, parse_path

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
    plan=lambda source, fmt, asked, _: plan_edit(source, fmt, asked.entry, asked.wish, asked.seen),
    changes=True,
    route=route(
        "PUT …/entries/{entry}",
        "edit",
        "Change values of an entry; all other bytes stay.",
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
        entry_id=located.info.id,
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
    route=route("GET …/entries/{entry}/meta", "meta", "What is noted on an entry."),
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
    source: Transcript, fmt: TranscriptFormat, asked: SetExtractable, means: Means
) -> tuple[Plan, ExtractableSet]:
    plan, answer = plan_set_extractable(source, fmt, asked.entry, asked.value)
    if asked.value is True:
        with suppress(ConfigError):  # settings that cannot be read are reported elsewhere
            stays = why_it_stays(source, fmt, means.config(), means.now, answer.index)
            return plan, replace(answer, stays=stays)
    return plan, answer


SET_EXTRACTABLE = Verb(
    name="set_extractable",
    arguments=SetExtractable,
    answer=ExtractableSet,
    plan=_plan_set_extractable,
    changes=True,
    route=route(
        "PUT …/entries/{entry}/meta",
        "set_meta",
        "Say whether an entry may be extracted.",
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


# --- get_context ---


@dataclass(frozen=True, slots=True)
class GetContext:
    """Nothing but the session."""


GET_CONTEXT = Verb(
    name="get_context",
    arguments=GetContext,
    answer=Context,
    query=lambda source, fmt, _, means: context(means.name, source, fmt),
    reads=True,
    route=route(
        "GET …/context",
        "context",
        "What an agent may know of its session: sizes, what is away, what could be.",
    ),
    about="""
    Lists every entry with the six-digit hash of its content, its size, and whether it can be or
    has been extracted.
    """,
    examples=(
        "bsd context main/4f2a",
        "bsd context main/4f2a --json | jq -r '.extracted_ids[]'",
    ),
)


# --- change_context ---


_TARGETS: dict[str, Any] = {
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "description": "for replace",
                "properties": {
                    "start": {"type": "string", "description": "Exact text that begins the piece"},
                    "end": {"type": "string", "description": "Exact text that ends the piece"},
                    "replacement": {"type": "string", "description": "What stands there instead"},
                },
                "required": ["start", "end", "replacement"],
            },
            {
                "type": "array",
                "description": "for discard [hash], for distill [hash, summary]",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
            },
        ]
    },
}


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Seed 003's context tool."""

    action: str = field(metadata=argument("What to do.", choices=ACTIONS))
    targets: Sequence[Any] = field(
        metadata=argument("What to do it to; all of it is done or nothing.", schema=_TARGETS)
    )
    include_user: bool = field(
        default=False,
        metadata=argument("Also look at what the user wrote, which is left alone else."),
    )
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Read the targets, in any of the seed's forms; raises Refused for what is none."""
        object.__setattr__(self, "targets", read_targets(self.action, self.targets))


def plan_change(
    source: Transcript, fmt: TranscriptFormat, asked: ChangeContext, means: Means
) -> tuple[Plan, ContextChanged]:
    config = means.config()
    plan = plan_replace if asked.action == BY_RANGE else plan_discard
    return plan(
        source,
        fmt,
        asked.targets,
        include_user=asked.include_user,
        protected_tools=config.protected_tools,
        binds=Policy.of(config).binds,
    )


CHANGE_CONTEXT = Verb(
    name="context",
    arguments=ChangeContext,
    answer=ContextChanged,
    plan=plan_change,
    changes=True,
    entries=lambda answer: answer.entry_ids,
    route=route(
        "POST …/context",
        "change_context",
        "Replace ranges, discard entries or put summaries in their place; an undo takes it back."
        "\n\nAll that is wrong is told at once, by target.",
    ),
    tools=(
        Tool(
            "context",
            "Replace, discard or distill content",
            "Make your context smaller where you know that you need less than is there. replace "
            "puts `replacement` in place of everything from the text `start` to the next text "
            "`end`, both included: literal, at least 30 characters, and exactly one match in the "
            "session. discard [hash] empties an entry, distill [hash, summary] leaves your summary "
            "there; get_context lists the hashes. All targets of a call are done or none, and a "
            "person can undo it. Use it for logs, traces and listings that are dealt with, never "
            "for what you may have to quote.",
            destroys=True,
        ),
    ),
)


# --- replace: the same, as the page asks for it ---


@dataclass(frozen=True, slots=True)
class Replace:
    """One replacement, or several under `targets`: all of them or none."""

    start: str | None = None
    end: str | None = None
    replacement: str | None = None
    targets: Sequence[Any] | None = None
    include_user: bool = field(default=False, metadata=argument("Also change what the user wrote"))
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Refuse what is no target before a session is opened for it; raises Refused."""
        self.change()

    def change(self) -> ChangeContext:
        """What this is in the terms of the context tool."""
        one = {"start": self.start, "end": self.end, "replacement": self.replacement}
        given = {name: value for name, value in one.items() if value is not None}
        all_of_them = [*([given] if given else []), *(self.targets or [])]
        return ChangeContext(BY_RANGE, all_of_them, self.include_user)


REPLACE = Verb(
    name="context",
    arguments=Replace,
    answer=ContextChanged,
    plan=lambda source, fmt, asked, means: plan_change(source, fmt, asked.change(), means),
    changes=True,
    entries=lambda answer: answer.entry_ids,
    route=route(
        "POST …/replace",
        "replace",
        "Put another text in the place of what stands between two markers (seed 003).",
        needs_body=True,
    ),
)
