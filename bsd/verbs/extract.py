"""extract: all that is due in one session leaves it, for the store (SPEC §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.layout import SessionName
from bsd.foundation.pruning_fields import PER_CALL, PruningConfig
from bsd.session.session import Session
from bsd.store.changed_lines import undone_in
from bsd.surgery.extract import plan_extraction
from bsd.surgery.result import SessionResult, Status, Tally
from bsd.verbs.verb import Body, Meanwhile, RootHands, Route, Verb, argument


@dataclass(frozen=True, slots=True)
class Extract:
    """By hand: what somebody has taken back by undo leaves as well."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would be done; change nothing.", query=True),
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict, metadata=argument("What is set otherwise for this call.")
    )


def _act(hands: RootHands, name: SessionName, asked: Extract, _: Meanwhile) -> SessionResult:
    if asked.dry_run:
        return _foretell(hands, name, asked)
    surgeon = hands.surgeon(name, writes=True)
    return surgeon.extract(name, by_hand=True, overrides=asked.settings, progress=hands.progressed)


def _foretell(hands: RootHands, name: SessionName, asked: Extract) -> SessionResult:
    """What an extraction would do now; its results, and what it raises, are those of one."""
    surgeon = hands.surgeon(name, writes=False)
    config = surgeon.settings(asked.settings)
    hands.layout.session_file(name)
    session = Session(hands.layout, name)
    tally = Tally(name, Status.EXTRACTED, dry_run=True)
    with tally.judging():
        source, fmt = session.open()
        with source:
            plan = plan_extraction(
                source,
                fmt,
                config,
                surgeon.clock(),
                session.store,
                dry_run=True,
                tell=surgeon.notes.teller(name),
                progress=hands.progressed,
                undone=undone_in(source, session.history),
                by_hand=True,
            )
        tally.add(plan.report, committed=False)
        tally.leave(plan.planned_on, due_at=plan.due_at)
    surgeon.notes.concluded("extract", name, tally)
    return tally.result()


def _read(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read a body; raises Invalid that names all fields which are no settings, and all bad ones."""
    errors = [
        FieldError(name, "not a setting of one extraction")
        for name in settings
        if name not in PER_CALL
    ]
    try:
        PruningConfig.checked({name: settings[name] for name in PER_CALL if name in settings})
    except Invalid as problem:
        errors += problem.errors
    if errors:
        text = "; ".join(f"{one.field}: {one.message}" for one in errors)
        raise Invalid(text, hint=f"known are {', '.join(PER_CALL)}", errors=tuple(errors))
    return {"settings": settings}


EXTRACT = Verb(
    name="extract",
    arguments=Extract,
    answer=SessionResult,
    act=_act,
    changes=True,
    route=Route(
        "POST",
        "/api/sessions/{agent}/{session}/extract",
        "extract",
        "Extract what is due; the body may change settings for this call.",
        body=Body(_read, settings=PER_CALL, required=False),
    ),
)
