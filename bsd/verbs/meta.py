"""get_meta and set_extractable: what is noted on an entry, by bsd and by people."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.agents.dialect import Format
from bsd.agents.marker import EXTRACTABLE, RESTORED, Marker
from bsd.foundation.answers import Answer, contract
from bsd.foundation.layout import SessionName
from bsd.session.session import Session
from bsd.surgery.edit import Extractable, ExtractableSet, plan_set_extractable
from bsd.surgery.locate import locate
from bsd.surgery.plan import Means, Plan
from bsd.text.reader import Transcript
from bsd.verbs.restore import ENTRY
from bsd.verbs.verb import Hands, Meanwhile, Route, Verb, argument


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


def _act(hands: Hands, name: SessionName, asked: GetMeta, _: Meanwhile) -> Meta:
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
    act=_act,
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


def _plan(
    source: Transcript, fmt: Format, asked: SetExtractable, _: Means
) -> tuple[Plan, ExtractableSet]:
    return plan_set_extractable(source, fmt, asked.entry, asked.value)


SET_EXTRACTABLE = Verb(
    name="set_extractable",
    arguments=SetExtractable,
    answer=ExtractableSet,
    plan=_plan,
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
