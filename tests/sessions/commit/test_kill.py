"""Kill -9 at every step and every disk-changing call of a commit; then the owner; then recovery.

Between two neighbouring tests the disk differs by one call, so "before call n" and "after call n-1"
find the same disk. Where no other process touches the session, both are tried, so that no
conclusion depends on that. There are many pairs of a place and an owner, or of a place and a world.
By default each place and each owner is tried, but only with some of the others. `BSD_CRASH_ALL=1`
tries every owner at every place, which takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.openclaw_tree import set_idle
from tests.sessions.commit.children import Children, Order, Report
from tests.sessions.commit.crashed import Theatre, theatre
from tests.sessions.commit.program import OWNERS
from tests.sessions.commit.worlds import WORLDS

pytestmark = pytest.mark.crash

_ALL = os.environ.get("BSD_CRASH_ALL") == "1"
_TORN = ("write", "copy_file_range")

Item = TypeVar("Item")


def _crash(
    children: Children, order: Order, program: str, *, at_once: bool = True
) -> tuple[Report, list[str]]:
    """End a child in the given way, let the owner act, and return the faults after recovery."""
    with theatre() as scene:
        report = children.run(_in(scene, order))
        problems = [report.error] if report.error else []
        if scene.path.exists():
            OWNERS[program](scene.path, scene.ledger)
        problems += scene.recover_and_judge(at_once=at_once)
    return report, problems


def _in(scene: Theatre, order: Order) -> Order:
    return replace(order, root=str(scene.root), ledger=str(scene.ledger.path))


def _unhurt(children: Children, world: str) -> Report:
    """The same commit without a crash: its steps and calls."""
    report, problems = _crash(children, Order("", "", world=world), "nothing")
    assert problems == []
    assert not report.killed
    assert report.unseen == [], "something changes the disk past the counted calls"
    return report


def _from_record_on(calls: list[str]) -> int:
    """The number of the first call after which a file is in flight."""
    return next(n for n, call in enumerate(calls, 1) if ".record" in call)


def _places(calls: list[str], first: int, *, twice: bool = _ALL) -> Iterator[tuple[int, str]]:
    for number, call in enumerate(calls, 1):
        if number >= first:
            if twice or number == first:
                yield number, "before"
            yield number, "after"
            if call.startswith(_TORN):
                yield number, "torn"


def _share(places: Sequence[Item], turn: int, of: int) -> Sequence[Item]:
    """Every `of`-th place; consecutive shares cover all places together."""
    return places if _ALL else places[turn % of :: of]


def _takes_along(world: str, when: str, program: str) -> bool:
    """Whether this owner spoils, before recovery can mend it, a state that these worlds left half
    done.

    Two states count. A line torn at the path: only a power cut tears it, and that ends the owner,
    too. A file that another process put at the path and the exchange displaced: if the session was
    compacted meanwhile, its line is kept as an orphan.
    """
    torn = when == "torn" and program not in ("nothing", "appends")
    return torn or (world == "replaced before the exchange" and program == "compacts")


def _judge(failures: list[str], runs: int) -> None:
    assert runs, "nothing was tried"
    text = "\n".join(failures[:20])
    assert not failures, f"{len(failures)} of {runs} crashes:\n{text}"


@pytest.mark.parametrize("program", OWNERS)
@pytest.mark.parametrize("at_once", [True, False], ids=["recovered-at-once", "recovered-late"])
def test_killed_after_each_step(children: Children, program: str, at_once: bool) -> None:
    steps = _unhurt(children, "quiet").steps
    assert {"begun", "recorded", "leased_old", "exchanged", "drained", "durable"} <= set(steps)
    first = 0 if at_once or _ALL else steps.index("recorded")
    places = _share(list(enumerate(steps, 1))[first:], list(OWNERS).index(program) + at_once, 5)
    failures = []
    for number, step in places:
        order = Order("", "", die_after_step=number)
        report, problems = _crash(children, order, program, at_once=at_once)
        assert report.killed, f"lived on after {step}: {report}"
        failures += [f"after {step}: {problem}" for problem in problems]
    _judge(failures, len(places))


@pytest.mark.parametrize("program", OWNERS)
def test_killed_at_each_call_that_changes_the_disk(children: Children, program: str) -> None:
    calls = _unhurt(children, "quiet").calls
    plain = _ALL or program in ("nothing", "appends")
    # While no file is in flight, the owner meets no file of bsd.
    places = list(_places(calls, 1 if plain else _from_record_on(calls), twice=plain))
    places = list(_share(places, list(OWNERS).index(program), 2 if plain else 4))
    failures = []
    for number, when in places:
        report, problems = _crash(children, Order("", "", die_at_call=number, when=when), program)
        assert report.killed, f"lived on {when} {calls[number - 1]}: {report}"
        failures += [f"{when} {calls[number - 1]}: {problem}" for problem in problems]
    _judge(failures, len(places))


@pytest.mark.parametrize("world", [world for world in WORLDS if world != "quiet"])
def test_killed_while_others_write(children: Children, world: str) -> None:
    """Drains, undoings and everything between: owners take turns after the crash."""
    calls = _unhurt(children, world).calls
    programs = list(OWNERS) if _ALL else ["nothing", "appends"]
    exchanged = next(n for n, call in enumerate(calls, 1) if call.startswith("renameat2"))
    places = _share(list(_places(calls, exchanged)), list(WORLDS).index(world), 6)
    failures = []
    for turn, (number, when) in enumerate(places):
        for program in programs if _ALL else [programs[turn % 2]]:
            if _takes_along(world, when, program):
                continue
            order = Order("", "", world=world, die_at_call=number, when=when)
            # The timing of other processes may have made it shorter: then the child lives, and is
            # checked alike.
            _, problems = _crash(children, order, program)
            failures += [
                f"{when} {calls[number - 1]}, {program}: {problem}" for problem in problems
            ]
    _judge(failures, len(places))


@pytest.mark.parametrize("world", [world for world in WORLDS if world != "quiet"])
def test_killed_after_each_step_while_others_write(children: Children, world: str) -> None:
    steps = _unhurt(children, world).steps
    programs = list(OWNERS) if _ALL else ["appends", "nothing"]
    failures, runs = [], 0
    places = list(enumerate(steps, 1))[steps.index("verified") :]
    for turn, (number, step) in enumerate(_share(places, list(WORLDS).index(world), 3)):
        for program in programs if _ALL else [programs[turn % 2]]:
            if _takes_along(world, "after", program):
                continue
            runs += 1
            order = Order("", "", world=world, die_after_step=number)
            _, problems = _crash(children, order, program)
            failures += [f"after {step}, {program}: {problem}" for problem in problems]
    _judge(failures, runs)


@pytest.mark.parametrize("act", ["extract", "restore"])
def test_killed_in_the_hands_of_the_surgeon(children: Children, act: str) -> None:
    """With the files around a commit: settings, index, audit, history."""

    def prepare(scene: Theatre) -> Order:
        order = _in(scene, Order("", "", act=act))
        children.run(replace(order, act="extract", die_after="checked"))  # settings, locks
        if act == "restore":
            done = children.run(replace(order, act="extract"))
            assert done.ended == "extracted", done
            set_idle(scene.path)
        return order

    with theatre() as scene:
        order = prepare(scene)
        report = children.run(order)
        assert report.ended == f"{act}ed".replace("storeed", "stored"), report
        assert report.unseen == []
        assert scene.recover_and_judge() == []
    failures = []
    places = _share(list(enumerate(report.calls, 1)), act == "restore", 4)
    for turn, (number, call) in enumerate(places):
        with theatre() as scene:
            order = prepare(scene)
            assert children.run(replace(order, die_at_call=number, when="torn")).killed
            program = ("appends", "nothing")[turn % 2]
            OWNERS[program](scene.path, scene.ledger)
            failures += [f"{call}, {program}: {problem}" for problem in scene.recover_and_judge()]
    _judge(failures, len(places))


@pytest.mark.parametrize("world", WORLDS)
def test_an_undone_extraction_leaves_what_somebody_may_have_read(
    children: Children, world: str
) -> None:
    """Once the new file was at the path, its markers may come back from any reader's memory."""
    with theatre() as scene:
        report = children.run(_in(scene, Order("", "", act="extract", world=world)))
        assert report.error == ""
        assert scene.recover_and_judge() == []
