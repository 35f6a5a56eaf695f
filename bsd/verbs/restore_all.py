"""restore_all: everything that was taken out of one session comes back."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.foundation.layout import SessionName
from bsd.surgery.result import SessionResult
from bsd.verbs.verb import Meanwhile, RootHands, Verb


@dataclass(frozen=True, slots=True)
class RestoreAll:
    """Who is `leaving` bsd keeps no `_restored` that it has set."""

    leaving: bool = False


def _act(hands: RootHands, name: SessionName, asked: RestoreAll, _: Meanwhile) -> SessionResult:
    surgeon = hands.surgeon(name, writes=True)
    return surgeon.restore_all(name, leaving=asked.leaving, progress=hands.progressed)


RESTORE_ALL = Verb(
    name="restore_all",
    arguments=RestoreAll,
    answer=SessionResult,
    act=_act,
    changes=True,
)
