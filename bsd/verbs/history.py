"""history: what was done to a session, and what of it is undone."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.layout import Layout, SessionName
from bsd.session.session import Session
from bsd.surgery.undo import PastOperation, tell_history
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
