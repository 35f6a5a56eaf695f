"""The recovery rules of DESIGN §4, each by itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from bsd.core.locks import own_lock
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.late import list_orphans
from tests import forked
from tests.openclaw_tree import set_idle
from tests.sessions.commit import program
from tests.sessions.commit.children import Children, Order, Report
from tests.sessions.commit.committing import NAME, recover_all
from tests.sessions.commit.crashed import Theatre, theatre
from tests.sessions.commit.ledger import line
from tests.sessions.commit.worlds import WORLDS

pytestmark = pytest.mark.crash


def _killed(children: Children, scene: Theatre, step: str, world: str = "quiet") -> Report:
    order = Order(str(scene.root), str(scene.ledger.path), world=world, die_after=step)
    report = children.run(order)
    assert report.killed
    return report


def _displaced(scene: Theatre) -> Path:
    (file,) = scene.root.glob(".brainsurgeon/inflight/*.file")
    return file


def _late(scene: Theatre, *writers: str, numbers: range = range(2)) -> bytes:
    """Lines of processes that had opened the displaced file before it was displaced."""
    written = b""
    for number in numbers:
        for writer in writers:
            data = line(writer, number)
            program.append(_displaced(scene), data)
            scene.ledger.wrote(data)
            written += data
    return written


def _states(results: list[Recovered]) -> list[str]:
    return [str(result.state) for result in results]


def _is_new(scene: Theatre) -> bool:
    return b"_extracted" in scene.path.read_bytes()


@pytest.mark.parametrize(
    ("step", "exchanged"), [("recorded", False), ("verified", False), ("exchanged", True)]
)
def test_rule_a_the_inode_in_flight_tells_whether_the_exchange_happened(
    children: Children, step: str, exchanged: bool
) -> None:
    with theatre() as scene:
        _killed(children, scene, step)
        assert _is_new(scene) == exchanged
        program.appends(scene.path, scene.ledger)
        problems = scene.recover_and_judge()
        assert problems == []
        assert _is_new(scene) == exchanged


def test_rule_a_after_an_undoing_the_new_file_is_watched(children: Children) -> None:
    with theatre() as scene:
        _killed(children, scene, "put_back", world="held")
        assert not _is_new(scene)
        late = _late(scene, "late")  # a process had opened the new file while it was at the path
        (result,) = recover_all(scene.root, 5.0)
        assert (result.state, result.lines) == ("carried", 2)
        assert late in scene.path.read_bytes()
        assert scene.recover_and_judge() == []


def test_rule_b_late_lines_come_once_and_before_what_was_appended_since(
    children: Children,
) -> None:
    with theatre() as scene:
        _killed(children, scene, "durable")
        program.appends(scene.path, scene.ledger)
        since = scene.path.read_bytes()[-sum(len(line("owner", n)) for n in range(3)) :]
        late = _late(scene, "late", "other")
        # An insertion is a commit, and a commit needs an idle file.
        results = recover_all(scene.root, 5.0)
        assert "carried" in _states(results), results
        assert scene.path.read_bytes().endswith(late + since)
        more = _late(scene, "late", numbers=range(2, 4)) if _only_one_left(scene) else b""
        assert scene.recover_and_judge() == []
        assert scene.path.read_bytes().count(more) >= 1


def _only_one_left(scene: Theatre) -> bool:
    return len(list(scene.root.glob(".brainsurgeon/inflight/*.file"))) == 1


@pytest.mark.parametrize("appended", [False, True], ids=["appended", "inserted"])
@pytest.mark.parametrize("step", ["durable", "put_back"], ids=["old", "new"])
def test_rule_b_a_recovery_that_is_killed_anywhere_doubles_nothing(
    children: Children, step: str, appended: bool
) -> None:
    world = "quiet" if step == "durable" else "held"

    def prepare(scene: Theatre) -> Order:
        _killed(children, scene, step, world)
        if appended:
            program.appends(scene.path, scene.ledger)
        _late(scene, "late", "other")
        return Order(str(scene.root), str(scene.ledger.path), act="recover", seconds_later=5.0)

    with theatre() as scene:
        calls = children.run(prepare(scene)).calls
        assert scene.recover_and_judge() == []
    failures = []
    for number, call in enumerate(calls, 1):
        for when in ("after", "torn") if call.startswith("write") else ("after",):
            with theatre() as scene:
                order = prepare(scene)
                assert children.run(replace(order, die_at_call=number, when=when)).killed
                if number % 2:
                    program.appends(scene.path, scene.ledger, "since")
                failures += [f"{when} {call}: {p}" for p in scene.recover_and_judge()]
    assert len(calls) > 5
    assert failures == [], "\n".join(failures[:20])


def test_rule_b_lines_without_an_id_are_told_apart_by_their_place(children: Children) -> None:
    """A late line with the same text as an older line is a line of its own."""
    ping = b'{"type":"ping"}\n'
    with theatre() as scene:
        scene.path.write_bytes(scene.original + ping)
        set_idle(scene.path)
        _killed(children, scene, "durable")
        content = scene.path.read_bytes()
        assert content.count(ping) == 1
        other = scene.path.with_suffix(".tmp")  # the gateway rewrites it: another inode
        other.write_bytes(content)
        other.rename(scene.path)
        program.append(_displaced(scene), ping)
        recover_all(scene.root, 5.0)
        recover_all(scene.root, 70.0)
        assert scene.path.read_bytes().count(ping) == 2


@pytest.mark.parametrize(
    "act", [program.deletes, program.renames_away, program.replaces_by_another]
)
def test_rule_c_late_lines_without_their_session_become_an_orphan(
    children: Children, act: program.AgentProgram
) -> None:
    with theatre() as scene:
        _killed(children, scene, "durable")
        act(scene.path, scene.ledger)
        was_there = scene.path.exists()
        late = _late(scene, "late")
        (result,) = recover_all(scene.root, 5.0)
        assert result.state == "orphaned", result
        assert scene.path.exists() == was_there, "created without being asked"
        (orphan,) = list_orphans(Layout(scene.root))
        assert orphan.file.read_bytes() == late
        assert orphan.session == str(NAME)
        assert orphan.size == len(late)
        assert scene.recover_and_judge() == []
        assert len(list_orphans(Layout(scene.root))) == 1


def test_rule_c_an_orphan_is_reported_by_doctor_and_verify(children: Children) -> None:
    with theatre() as scene:
        _killed(children, scene, "durable")
        program.deletes(scene.path, scene.ledger)
        _late(scene, "late")
        recover_all(scene.root, 5.0)
        (orphan,) = list_orphans(Layout(scene.root))
        for command in (["doctor"], ["verify"]):
            done = _bsd(scene.root, *command)
            assert str(orphan.file.name) in done or str(orphan.file.parent) in done, (command, done)


def _bsd(root: Path, *arguments: str) -> str:
    done = forked.run("--root", str(root), *arguments, "--json")
    return done.stdout + done.stderr


@pytest.mark.parametrize("room", [0, 1, 40])
def test_rule_d_a_short_write_is_truncated_back(children: Children, room: int) -> None:
    with theatre() as scene:
        _killed(children, scene, "durable")
        late = _late(scene, "late")
        before = scene.path.read_bytes()
        full = Order(
            str(scene.root),
            str(scene.ledger.path),
            act="recover",
            seconds_later=5.0,
            largest_file=len(before) + room,
        )
        report = children.run(full)
        assert report.ended.startswith("failed"), report
        assert scene.path.read_bytes() == before
        recover_all(scene.root, 5.0)
        assert scene.path.read_bytes() == before + late
        assert scene.recover_and_judge() == []


def test_rule_e_a_whole_last_line_without_its_end_is_carried_with_one(children: Children) -> None:
    data = line("late", 0)
    with theatre() as scene:
        _killed(children, scene, "durable")
        before = scene.path.read_bytes()
        fd = os.open(_displaced(scene), os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, data[:-1])
            (result,) = recover_all(scene.root, 70.0)
            assert result.state == "watched", "he may still finish it"
            assert scene.path.read_bytes() == before
        finally:
            os.close(fd)
        scene.ledger.wrote(data)
        (result,) = recover_all(scene.root, 70.0)
        assert scene.path.read_bytes() == before + data
        assert scene.recover_and_judge() == []


def test_rule_e_half_a_last_line_becomes_an_orphan(children: Children) -> None:
    data = line("late", 0)
    with theatre() as scene:
        _killed(children, scene, "durable")
        before = scene.path.read_bytes()
        whole = _late(scene, "early")
        program.append(_displaced(scene), data[:30])
        recover_all(scene.root, 5.0)
        assert scene.path.read_bytes() == before + whole
        (orphan,) = list_orphans(Layout(scene.root))
        assert orphan.file.read_bytes() == data[:30]
        assert scene.recover_and_judge() == []


def test_rule_f_a_record_whose_lock_is_held_is_left_alone(children: Children) -> None:
    with theatre() as scene:
        _killed(children, scene, "exchanged")
        _late(scene, "late")
        before = scene.path.read_bytes()
        with own_lock(Layout(scene.root), NAME, 0.0):
            (result,) = recover_all(scene.root, 70.0)
        assert result.state == "busy"
        assert scene.path.read_bytes() == before
        assert _displaced(scene).exists()
        assert scene.recover_and_judge() == []


def test_late_lines_of_an_earlier_commit_find_the_session_after_a_later_one(
    children: Children,
) -> None:
    """Two commits within the 60 s: late lines for the first do not disturb the second."""
    with theatre() as scene:
        _killed(children, scene, "durable")
        set_idle(scene.path)
        first = _displaced(scene)
        appended = line("between", 0, message={"role": "toolResult", "content": "y" * 3000})
        program.append(scene.path, appended)
        scene.ledger.wrote(appended)
        set_idle(scene.path)
        report = children.run(Order(str(scene.root), str(scene.ledger.path)))
        assert report.ended == "committed", report
        data = line("late", 0)
        program.append(first, data)
        scene.ledger.wrote(data)
        problems = scene.recover_and_judge()
        assert problems == []
        ids = [json.loads(raw)["id"] for raw in scene.path.read_bytes().splitlines()]
        assert sorted(ids[-2:]) == ["between-0", "late-0"]


def test_every_world_is_whole_without_a_crash(children: Children) -> None:
    problems = {}
    for world in WORLDS:
        with theatre() as scene:
            children.run(Order(str(scene.root), str(scene.ledger.path), world=world))
            problems[world] = scene.recover_and_judge()
    assert {world: found for world, found in problems.items() if found} == {}
