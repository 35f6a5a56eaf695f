"""set_extractable: an entry's own rule, a person's or an agent's word on it (seed 001)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.agents.dialect import Format
from bsd.surgery.edit import Extractable, ExtractableSet, plan_set_extractable
from bsd.surgery.plan import Means, Plan
from bsd.text.reader import Transcript
from bsd.verbs.restore import ENTRY
from bsd.verbs.verb import Route, Verb, argument


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
