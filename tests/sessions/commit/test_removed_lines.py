"""Kill -9 while lines are removed from a session, and while they are put back.

At every moment the lines are in the session, or the history can give them back. Both directions use
the same code, so each tries every third place (`BSD_CRASH_ALL=1`: all).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller, history_of
from tests.openclaw_tree import set_idle
from tests.sessions.commit.children import Children, Order
from tests.sessions.commit.committing import NAME, recover_all
from tests.sessions.commit.crashed import Theatre, theatre
from tests.sessions.commit.program import OWNERS
from tests.sessions.commit.worlds import WORLDS

pytestmark = pytest.mark.crash

_ALL = os.environ.get("BSD_CRASH_ALL") == "1"
REMOVED = ("e2", "e3", "e4", "e5")


def _prepared(children: Children, scene: Theatre, act: str) -> Order:
    order = Order(str(scene.root), str(scene.ledger.path), act=act)
    children.run(replace(order, act="redact", die_after="checked"))  # settings, locks
    if act == "undo":
        assert children.run(replace(order, act="redact")).ended == "redacted"
        set_idle(scene.path)
    return order


def _judge(scene: Theatre) -> list[str]:
    """Recover, and check that only the removed lines are missing; put them back, and check that no
    line is missing.
    """
    removed = tuple(
        line for line in scene.original.splitlines(keepends=True) if _id(line) in REMOVED
    )
    assert len(removed) == len(REMOVED)
    problems = []
    for seconds in (5.0, 70.0):
        recover_all(scene.root, seconds)
        problems += scene.oracle(in_doubt=removed).judge(is_over=seconds > 60)
    set_idle(scene.path)
    layout = Layout(scene.root)
    later = RetryBudget(wait=0.0, clock=lambda: time.time() + 100)
    caller = Caller(
        layout=layout, config=ConfigService(layout.config_file), actor="test", budget=later
    )
    for one in history_of(caller.layout, NAME):
        if one.undoes is None and one.state != "undone":
            performed.undo(caller, NAME, one.operation)
    problems += [f"after undo: {problem}" for problem in scene.oracle().judge()]
    lines = scene.path.read_bytes().splitlines(keepends=True)
    original = scene.original.splitlines(keepends=True)
    if lines[: len(original)] != original:
        problems.append("after undo: the original lines are not what or where they were")
    return problems


def _id(line: bytes) -> str:
    return line.split(b'"id": "', 1)[1].split(b'"', 1)[0].decode()


@pytest.mark.parametrize("act", ["redact", "undo"])
def test_killed_at_each_call_that_changes_the_disk(children: Children, act: str) -> None:
    with theatre() as scene:
        report = children.run(_prepared(children, scene, act))
        assert report.ended == f"{act}ed".replace("undoed", "undone"), report
        there = {_id(line) for line in scene.path.read_bytes().splitlines()}
        assert there.isdisjoint(REMOVED) is (act == "redact")
        assert _judge(scene) == []
    failures = []
    places = list(enumerate(report.calls, 1))
    for turn, (number, call) in enumerate(places if _ALL else places[act == "undo" :: 3]):
        program = ("appends", "nothing")[turn % 2]
        with theatre() as scene:
            order = _prepared(children, scene, act)
            assert children.run(replace(order, die_at_call=number, when="torn")).killed
            OWNERS[program](scene.path, scene.ledger)
            failures += [f"{call}, {program}: {problem}" for problem in _judge(scene)]
    assert not failures, "\n".join(failures[:20])


def test_others_write_meanwhile(children: Children) -> None:
    """In every world in which a session is left."""
    failures = []
    for world in WORLDS:
        if "renamed" not in world and "deleted" not in world:
            with theatre() as scene:
                order = replace(_prepared(children, scene, "redact"), world=world)
                assert children.run(order).error == ""
                failures += [f"{world}: {problem}" for problem in _judge(scene)]
    assert not failures, "\n".join(failures)
