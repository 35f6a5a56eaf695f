"""history: what was done to a session; undo: one of it taken back, exact to the byte."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bsd.agents.dialect import Format
from bsd.foundation.definition import INTERNAL, Answer, contract
from bsd.foundation.layout import Layout, SessionName
from bsd.session.session import Session
from bsd.store.changed_lines import settle
from bsd.store.extracted import SessionStore
from bsd.store.history import History
from bsd.store.state import state_at
from bsd.surgery.plan import Plan
from bsd.surgery.undo import PastOperation, Undone, plan_undo, tell_history
from bsd.text.reader import Transcript
from bsd.verbs.verb import Hands, Meanwhile, Route, Verb, argument


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Without `limit` all that is kept."""

    limit: int | None = field(
        default=None,
        metadata=argument("No more than so many, the newest.", metavar="N", least=1, usual=50),
    )


@dataclass(frozen=True, slots=True)
class HistoryList(Answer):
    """The operations that can be undone."""

    session: str
    operations: tuple[PastOperation, ...] = field(metadata=contract("The newest first"))
    kept: int = field(metadata=INTERNAL)  # so many there are in all


def _act(hands: Hands, name: SessionName, asked: ListHistory, _: Meanwhile) -> HistoryList:
    found = history_of(hands.layout, name)
    if not found:
        hands.layout.session_file(name)  # a name mistyped is an error, not an empty history
    return HistoryList(str(name), tuple(found[: asked.limit]), len(found))


def history_of(layout: Layout, name: SessionName) -> list[PastOperation]:
    """The operations on a session that are kept, the newest first; raises what opening it does.

    It is opened only if one is kept whose process ended before it could note what became of it.
    """
    session = Session(layout, name)
    if not session.history.pending():
        return tell_history(session.history, None)
    source, _ = session.open()
    with source:
        return tell_history(session.history, source)


HISTORY = Verb(
    name="history",
    arguments=ListHistory,
    answer=HistoryList,
    act=_act,
    route=Route(
        "GET",
        "/api/sessions/{agent}/{session}/history",
        "history",
        "The operations that can be undone, the newest first.",
    ),
    about="""
    The newest first. `bsd undo` takes the number in the first column. History is kept for as long
    as the setting `trash_retention` says.
    """,
    examples=(
        "bsd history main/4f2a",
        "bsd history main/4f2a --limit 200",
    ),
)


# --- undo ---


@dataclass(frozen=True, slots=True)
class Undo:
    """Without `op` the newest operation that is not undone."""

    op: int | None = field(
        default=None,
        metadata=argument("A number from the history.", metavar="[OP]", positional=True, least=1),
    )


def _undo(hands: Hands, name: SessionName, asked: Undo, _: Meanwhile) -> Undone:
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
    act=_undo,
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
