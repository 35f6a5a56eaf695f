"""Kill -9 while an extraction is undone and while bsd is uninstalled: notes stay correct."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.store.changed_lines import undone_in
from bsd.store.history import History
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.sessions.commit.children import Children, Order
from tests.sessions.commit.committing import NAME, recover_all
from tests.sessions.commit.crashed import Theatre, theatre

pytestmark = pytest.mark.crash

_ALL = os.environ.get("BSD_CRASH_ALL") == "1"
EXTRACTED = {"e3", "e5", "e7"}


def _prepared(children: Children, scene: Theatre, *acts: str) -> Order:
    """The last of these acts, when the others are done."""
    order = Order(str(scene.root), str(scene.ledger.path))
    for act in acts[:-1]:
        report = children.run(replace(order, act=act))
        assert report.error == "", report.error
        set_idle(scene.path)
    return replace(order, act=acts[-1])


def _surgeon(layout: Layout) -> Caller:
    later = RetryBudget(wait=0.0, clock=lambda: time.time() + 100)
    return Caller(
        layout=layout, config=ConfigService(layout.config_file), actor="test", budget=later
    )


def _recover(scene: Theatre) -> Layout:
    for seconds in (5.0, 70.0):
        recover_all(scene.root, seconds)
    set_idle(scene.path)
    return Layout(scene.root)


def _judge_undone(scene: Theatre) -> list[str]:
    """Inline values count as undone; before and after, the outcome of the operation is known."""
    layout = _recover(scene)
    text = scene.path.read_text()
    inline = {one for one in EXTRACTED if f"[[extracted-{one}]]" not in text}
    problems = []
    for moment in ("at once", "later"):
        source, _ = Session(layout, NAME).open()
        with source:
            undone = undone_in(source, History(layout, NAME))
        if undone != inline:
            problems.append(f"{moment}: inline {sorted(inline)}, undone {sorted(undone)}")
        performed.set_extractable(_surgeon(layout), NAME, "e1", False)
        set_idle(scene.path)
    return problems


def _judge_left(scene: Theatre) -> list[str]:
    """A second attempt leaves no files behind, and undoing it restores the earlier state."""
    layout = _recover(scene)
    performed.restore_all(_surgeon(layout), NAME, leaving=True)
    if scene.path.read_bytes() != scene.original:
        return ["it is not what it was before"]
    return []


@pytest.mark.parametrize(
    ("acts", "judge"),
    [
        (("extract", "undo"), _judge_undone),
        (("extract", "restore", "leave"), _judge_left),
        (("extract", "leave"), _judge_left),
    ],
    ids=["undo", "leave-restored", "leave-extracted"],
)
def test_killed_at_each_call_that_changes_the_disk(
    children: Children, acts: tuple[str, ...], judge: Callable[[Theatre], list[str]]
) -> None:
    with theatre() as scene:
        report = children.run(_prepared(children, scene, *acts))
        assert report.ended in ("undone", "restored"), report
        assert report.unseen == []
        assert scene.path.read_bytes() == scene.original
        if acts[-1] == "undo":
            assert any("undone.json" in call for call in report.calls)
        assert judge(scene) == []
    failures = []
    places = list(enumerate(report.calls, 1))
    for number, call in places if _ALL else places[:: 2 if acts[-1] == "undo" else 5]:
        with theatre() as scene:
            order = _prepared(children, scene, *acts)
            assert children.run(replace(order, die_at_call=number, when="torn")).killed
            failures += [f"{call}: {problem}" for problem in judge(scene)]
    assert not failures, "\n".join(failures[:20])
