"""get_meta: what bsd and people have noted on an entry."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.agents.marker import EXTRACTABLE, RESTORED, Marker
from bsd.foundation.answers import Answer, contract
from bsd.foundation.layout import SessionName
from bsd.session.session import Session
from bsd.surgery.locate import locate
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
