"""star: an entry is marked. A verb that bsd does not have, its planner included."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.actions.context import ActionContext
from bsd.actions.verb import Tool, Verb, route
from bsd.actions.verbs import ENTRY
from bsd.core.definition import Answer
from bsd.core.layout import SessionName
from bsd.planning.locate import locate
from bsd.planning.plan import Means, Plan, Report
from bsd.sessions.notes import Notes
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript
from bsd.transcripts.splice import edit


@dataclass(frozen=True, slots=True)
class Star:
    """One entry."""

    entry: str = field(metadata=ENTRY)


@dataclass(frozen=True, slots=True)
class Starred(Answer):
    """Whether it is marked that was not."""

    starred: bool
    entry_id: str | None


def plan_star(source: Transcript, fmt: TranscriptFormat, entry: str) -> tuple[Plan, Starred]:
    located = locate(source, fmt, entry)
    raw = located.line.raw
    new = raw if "_star" in located.entry else edit(raw, put={"_star": b"true"})
    edits = () if new == raw else (Edit(located.line.offset, len(raw), new),)
    touched = [TouchedLine(located.line.index, located.info.id) for _ in edits]
    plan = Plan.of("star", source.identity, edits, touched)
    return plan, Starred(bool(edits), located.info.id)


def star(context: ActionContext, session: SessionName, entry: str) -> Starred:
    """Mark an entry."""

    def plan(source: Transcript, fmt: TranscriptFormat, _: Means) -> tuple[Plan, Starred]:
        return plan_star(source, fmt, entry)

    def note(notes: Notes, report: Report | None, answer: Starred) -> None:
        if report is not None:
            notes.changed("star", session, report, entry=answer.entry_id)

    return context.surgeon().perform(session, plan, note)[1]


STAR = Verb(
    name="star",
    arguments=Star,
    answer=Starred,
    act=lambda context, name, asked: context.run(star, name, asked.entry),
    changes=True,
    route=route("POST …/entries/{entry}/star", "star", "Mark an entry."),
    tools=(Tool("star_entry", "Mark an entry", "Mark an entry as worth finding again."),),
    about="Puts `_star` into it.",
    examples=("bsd star main/4f2a 1c556fa0",),
)
