"""undo: an operation on a session taken back, exact to the byte."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bsd.agents.dialect import Format
from bsd.foundation.layout import SessionName
from bsd.session.remember import settle
from bsd.store.extracted import SessionStore
from bsd.store.history import History
from bsd.store.state import state_at
from bsd.surgery.plan import Plan
from bsd.surgery.undo import Undone, plan_undo
from bsd.text.reader import Transcript
from bsd.verbs.verb import Hands, Meanwhile, Route, Verb, argument


@dataclass(frozen=True, slots=True)
class Undo:
    """Without `op` the newest operation that is not undone."""

    op: int | None = field(
        default=None,
        metadata=argument("A number from the history.", metavar="[OP]", positional=True, least=1),
    )


def _act(hands: Hands, name: SessionName, asked: Undo, _: Meanwhile) -> Undone:
    surgeon = hands.surgeon(name, writes=True)
    history, chosen = History(hands.layout, name), asked.op

    def plan(source: Transcript, fmt: Format, store: SessionStore) -> tuple[Plan, Undone]:
        settle(history, source)
        return plan_undo(source, fmt, chosen, history, store)

    entries: list[str] = []
    operations: list[int] = []
    hands.layout.session_file(name)
    # More than one plan, perhaps: each takes back as much as a commit may hold.
    for done, answer in surgeon.operator.carry_out_all(name, plan):
        chosen = answer.of.number
        entries += answer.entries
        if done.number is not None:
            operations.append(done.number)
            surgeon.notes.undone(name, answer, done.plan.report)
    state_at(hands.layout.state_db).forget(name)
    return replace(answer, entries=tuple(entries), operations=tuple(operations))


UNDO = Verb(
    name="undo",
    arguments=Undo,
    answer=Undone,
    act=_act,
    changes=True,
    route=Route(
        "POST",
        "/api/sessions/{agent}/{session}/undo",
        "undo",
        "Take an operation back: the newest, or one by its number.",
    ),
    about="""
    Every line that the operation changed becomes what it was, exact to the byte. Without OP the
    newest operation that is not undone; OP is a number from `bsd history`. An older one can be
    undone if nothing changed the same entries since. Undoing an undo does the operation again.
    What an undone extraction brought back stays until you extract the session by hand.
    """,
    examples=(
        "bsd undo main/4f2a",
        "bsd undo main/4f2a 12",
    ),
)
