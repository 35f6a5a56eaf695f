"""undo: an operation on a session taken back, exact to the byte."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.foundation.layout import SessionName
from bsd.surgery.undo import Undone
from bsd.verbs.verb import Hands, Meanwhile, Route, Verb, argument


@dataclass(frozen=True, slots=True)
class Undo:
    """Without `op` the newest operation that is not undone."""

    op: int | None = field(
        default=None,
        metadata=argument("A number from the history.", metavar="[OP]", positional=True, least=1),
    )


def _act(hands: Hands, name: SessionName, asked: Undo, _: Meanwhile) -> Undone:
    # More than one plan, perhaps: each takes back as much as a commit may hold.
    return hands.surgeon(name, writes=True).take_back(name, asked.op)


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
