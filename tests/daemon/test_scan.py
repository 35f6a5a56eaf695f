"""The scan finds every change by stat, once, and never reports a change of bsd's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.daemon.directories import Trouble
from bsd.daemon.scan import Scan
from bsd.transcripts.change import Written

A = SessionName("main", "a")
B = SessionName("other", "b")


@pytest.fixture
def layout(layout: Layout) -> Layout:
    for name in (A, B):
        write(layout, name)
    return layout


def file_of(layout: Layout, name: SessionName) -> Path:
    return layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"


def write(layout: Layout, name: SessionName) -> Written:
    path = file_of(layout, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"{}\n")
    return seen(layout, name)


def seen(layout: Layout, name: SessionName) -> Written:
    return Written.of(file_of(layout, name).stat())


def knowing(layout: Layout, sessions: list[tuple[SessionName, Written]]) -> Scan:
    """A scan after others have noted how these were left."""
    scan = Scan(layout)
    for name, left in sessions:
        scan.note(name, left)
    return scan


def test_at_first_everything_is_new_and_then_nothing(layout: Layout) -> None:
    scan = Scan(layout)
    assert dict(scan.step()) == {A: seen(layout, A), B: seen(layout, B)}
    assert list(scan.step()) == []
    assert len(scan) == 2


def test_what_is_known_from_before_is_not_new(layout: Layout) -> None:
    scan = knowing(layout, [(A, seen(layout, A)), (SessionName("main", "gone"), seen(layout, A))])
    assert dict(scan.step()) == {SessionName("main", "gone"): None, B: seen(layout, B)}
    assert list(scan.step()) == []


def test_an_append_a_touch_and_another_file_are_changes(layout: Layout) -> None:
    scan = Scan(layout)
    list(scan.step())
    write(layout, A)
    assert [name for name, _ in scan.step()] == [A]
    os.utime(file_of(layout, A), ns=(1, 1))
    assert [name for name, _ in scan.step()] == [A]
    copy = layout.root / "copy"
    shutil.copy2(file_of(layout, A), copy)
    copy.replace(file_of(layout, A))
    assert [name for name, _ in scan.step()] == [A]


def test_our_own_writing_is_no_change(layout: Layout) -> None:
    scan = Scan(layout)
    list(scan.step())
    scan.note(A, write(layout, A))
    assert not scan.changed(A)
    assert list(scan.step()) == []
    write(layout, A)
    assert scan.changed(A)


def test_a_hint_counts_until_somebody_has_looked(layout: Layout) -> None:
    scan = knowing(layout, [(A, seen(layout, A)), (B, seen(layout, B))])
    assert not scan.changed(A)
    written = write(layout, A)
    assert scan.changed(A)
    assert scan.changed(A)
    assert list(scan.step()) == []  # the caller knows it already
    scan.note(A, written)
    assert not scan.changed(A)


def test_what_the_scan_reported_is_still_worth_following(layout: Layout) -> None:
    scan = knowing(layout, [(A, seen(layout, A)), (B, seen(layout, B))])
    write(layout, A)
    assert [name for name, _ in scan.step()] == [A]
    assert scan.changed(A)


def test_what_was_refused_is_reported_again(layout: Layout) -> None:
    scan = Scan(layout)
    list(scan.step())
    scan.forget(A)
    assert [name for name, _ in scan.step()] == [A]


def test_vanished_sessions_agents_and_directories_are_reported_once(layout: Layout) -> None:
    more = SessionName("main", "more")
    write(layout, more)
    scan = Scan(layout)
    list(scan.step())
    file_of(layout, more).unlink()
    shutil.rmtree(layout.agents / "other")
    assert dict(scan.step()) == {more: None, B: None}
    shutil.rmtree(file_of(layout, A).parent)
    assert list(scan.step()) == [(A, None)]
    assert list(scan.step()) == []
    assert len(scan) == 0
    write(layout, A)
    assert [name for name, _ in scan.step()] == [A]


def test_a_vanished_session_is_worth_a_hint_once(layout: Layout) -> None:
    scan = knowing(layout, [(A, seen(layout, A))])
    file_of(layout, A).unlink()
    assert scan.changed(A)
    assert not scan.changed(A)


@pytest.mark.parametrize("missing", ["agents", "root"])
def test_if_the_disk_is_gone_the_sessions_are_not(layout: Layout, missing: str) -> None:
    scan = Scan(layout)
    list(scan.step())
    away = layout.root.with_name("away")
    (layout.agents if missing == "agents" else layout.root).rename(away)
    assert list(scan.step()) == []
    expected = Trouble.AGENTS_MISSING if missing == "agents" else Trouble.ROOT_MISSING
    assert [problem.kind for problem in scan.problems] == [expected]
    away.rename(layout.agents if missing == "agents" else layout.root)
    assert list(scan.step()) == []
    assert scan.problems == ()


def test_only_sessions_count(layout: Layout) -> None:
    sessions = file_of(layout, A).parent
    for name in ("a.jsonl.lock", "a.trajectory.jsonl", "sessions.json", "a.jsonl.bak-1-2"):
        (sessions / name).write_bytes(b"")
    (sessions / "dir.jsonl").mkdir()
    (sessions / "link.jsonl").symlink_to(file_of(layout, B))
    (layout.agents / "a file").write_bytes(b"")
    (layout.agents / "no name").mkdir()
    (layout.agents / "circle").symlink_to("circle")
    scan = Scan(layout)
    assert {name for name, _ in scan.step()} == {A, B}
    assert scan.problems == ()


def test_links_out_of_the_root_are_not_followed(tmp_path: Path, layout: Layout) -> None:
    outside = tmp_path / "outside" / "sessions"
    outside.mkdir(parents=True)
    (outside / "s.jsonl").write_bytes(b"")
    (layout.agents / "evil").symlink_to(outside.parent)
    scan = Scan(layout)
    assert {name for name, _ in scan.step()} == {A, B}
    assert [problem.kind for problem in scan.problems] == [Trouble.OUTSIDE]
    assert not scan.changed(SessionName("evil", "s"))


def test_who_is_behind_such_a_link_now_is_not_gone(tmp_path: Path, layout: Layout) -> None:
    scan = Scan(layout)
    list(scan.step())
    (layout.agents / "main").rename(tmp_path / "away")
    (tmp_path / "outside").mkdir()
    (layout.agents / "main").symlink_to(tmp_path / "outside")
    assert list(scan.step()) == []


def test_links_inside_are(layout: Layout) -> None:
    (layout.agents / "alias").symlink_to(layout.agents / "main")
    assert {name for name, _ in Scan(layout).step()} == {A, B, SessionName("alias", "a")}


def test_a_note_during_the_walk_is_respected(layout: Layout) -> None:
    names = {SessionName("main", f"s{number}") for number in range(20)}
    for name in names:
        write(layout, name)
    scan = Scan(layout)
    list(scan.step())
    for name in names:
        write(layout, name)
    walk = scan.step()
    first, _ = next(walk)
    new = SessionName("main", "new")
    for name in names - {first}:
        scan.note(name, write(layout, name))
    scan.note(new, write(layout, new))
    assert list(walk) == []
    assert list(scan.step()) == []


def test_who_has_time_is_left_for_another_walk_and_who_is_known_is_not(layout: Layout) -> None:
    scan = Scan(layout)
    assert list(scan.step(lambda _: True)) == []
    assert (len(scan), scan.left) == (2, 2)
    assert scan.changed(A), "who uses it is heard"
    scan.note(A, seen(layout, A))
    write(layout, A)
    assert dict(scan.step(lambda _: True)) == {A: seen(layout, A)}
    assert (len(scan), scan.left) == (2, 1)
    assert dict(scan.step()) == {B: seen(layout, B)}
    assert (len(scan), scan.left) == (2, 0)
