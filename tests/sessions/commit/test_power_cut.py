"""Power cut: every moment of a commit, with unsynced data gone, zero, or half there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sessions.commit import program
from tests.sessions.commit.children import Children, Order
from tests.sessions.commit.committing import recover_all
from tests.sessions.commit.crashed import Theatre, theatre
from tests.sessions.commit.ledger import line
from tests.sessions.commit.oracle import Oracle
from tests.sessions.commit.power import Disk, read_log, states

pytestmark = pytest.mark.crash


def _record(children: Children, scene: Theatre, **order: object) -> Path:
    log = scene.root.parent / "log"
    report = children.run(
        Order(str(scene.root), str(scene.ledger.path), record=str(log), **order)  # type: ignore[arg-type]
    )
    assert not report.error, report.error
    return log


def _cut_everywhere(scene: Theatre, log: Path, first: int = 0) -> tuple[int, list[str]]:
    """Cut the power at every moment from `first` on; return the number of distinct disks and the
    failures.
    """
    events = read_log(log)
    beginning = next(n for n, event in enumerate(events) if event.call)
    seen, failures = set(), []
    for moment in range(max(beginning, first), len(events) + 1):
        for disk in states(events, moment, scene.root):
            if (key := (disk.key(), _certain(scene, disk))) in seen:
                continue
            seen.add(key)
            for problem in _after_the_cut(scene, disk):
                last = events[moment - 1]
                failures.append(f"after {last.call or last}, {disk.how}: {problem}")
    return len(seen), failures


def _certain(scene: Theatre, disk: Disk) -> frozenset[bytes]:
    """The synced lines of other writers, in any file."""
    wrote = (e["line"].encode() for e in scene.ledger.events() if e["event"] == "wrote")
    return frozenset(raw for raw in wrote if raw in disk.durable)


def _after_the_cut(scene: Theatre, disk: Disk) -> list[str]:
    disk.materialise(scene.root)
    wrote = [e["line"].encode() for e in scene.ledger.events() if e["event"] == "wrote"]
    certain = _certain(scene, disk)
    lost_with_reason = tuple(raw for raw in wrote if raw not in certain)
    oracle = Oracle(scene.root, scene.path, scene.original, scene.ledger, lost_with_reason)
    problems = []
    for seconds in (5.0, 70.0, 140.0):
        results = recover_all(scene.root, seconds)
        problems += [f"{seconds} s: {one.detail}" for one in results if one.state == "failed"]
        found = oracle.judge(is_over=seconds > 100)
        problems += [f"{seconds} s: {problem}" for problem in found]
    problems += [f"left over: {file}" for file in oracle.leftovers()]
    return problems


def _verdict(at_least: int, tried: int, failures: list[str]) -> None:
    assert tried >= at_least, f"only {tried} different disks"
    assert failures == [], f"{len(failures)} problems:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize(
    "world",
    [
        "quiet",
        "drained, durably",
        "held",
        "held and awaited, durably",
        "appended to after the exchange",
    ],
)
def test_power_cut_during_a_commit(children: Children, world: str) -> None:
    with theatre() as scene:
        log = _record(children, scene, world=world)
        _verdict(50, *_cut_everywhere(scene, log))


def test_power_cut_while_many_files_are_synced_at_once(children: Children) -> None:
    with theatre() as scene:
        log = _record(children, scene, as_a_whole=True)
        assert any(str(event.call).startswith("syncfs") for event in read_log(log))
        _verdict(50, *_cut_everywhere(scene, log))


def _late(scene: Theatre) -> None:
    (file,) = scene.root.glob(".brainsurgeon/inflight/*.file")
    for number in range(2):
        data = line("late", number)
        program.append(file, data)
        scene.ledger.wrote(data, file.stat().st_ino, durable=True)


def _appended(scene: Theatre) -> None:
    _late(scene)
    data = line("since", 0)
    program.append(scene.path, data)
    scene.ledger.wrote(data, scene.path.stat().st_ino, durable=True)


def _nothing(scene: Theatre) -> None:
    pass


@pytest.mark.parametrize("seconds", [5.0, 70.0])
@pytest.mark.parametrize("others", [_nothing, _late, _appended])
@pytest.mark.parametrize(
    ("step", "world"), [("exchanged", "quiet"), ("put_back", "held"), ("recorded", "quiet")]
)
def test_power_cut_during_the_recovery_from_a_crash(
    children: Children,
    step: str,
    world: str,
    others: Callable[[Theatre], None],
    seconds: float,
) -> None:
    if step == "recorded" and others is not _nothing:
        pytest.skip("nobody can have opened a file that was never at the path")
    with theatre() as scene:
        log = _record(children, scene, world=world, die_after=step)
        others(scene)
        before = len(read_log(log))
        _record(children, scene, act="recover", seconds_later=seconds)
        _verdict(1, *_cut_everywhere(scene, log, before))
