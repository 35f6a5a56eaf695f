"""A kill -9 between any two steps of a delete or restore loses no file and leaves no half state."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from tests.actions import performed
from tests.maintenance.killed_moves import NAME
from tests.maintenance.trashing import SESSION, put, register, registry, trash_of, tree
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, conversation, make_caller, write
from tests.sessions.test_branched import BRANCH, branch_off, texts
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.crash

KID = SessionName("main", "kid")

Tree = dict[str, tuple[int, bytes]]


def first_root(tmp_path: Path, *, deleted: bool) -> Tree:
    layout = Layout(tmp_path / "0")
    layout.agents.mkdir(parents=True)
    for name in (NAME, KID):
        put(layout, name)
    register(
        layout,
        "main",
        registry(
            x={"sessionId": "x"},
            a={"sessionId": "s1"},
            b={"sessionId": "kid", "parentSessionId": "s1"},
            y={"sessionId": "y"},
        ),
    )
    before = sessions(layout)
    if deleted:
        trash_of(layout).delete(NAME)
    return before


def sessions(layout: Layout) -> Tree:
    found = tree(layout)
    root = str(layout.root)
    return {
        path.removeprefix(root): said
        for path, said in found.items()
        if not path.endswith("/extracted")
    }


def kill_at_every_step(tmp_path: Path, act: str, most: int = 1000) -> list[Layout]:
    how = (act, str(tmp_path), str(most))
    done = subprocess.run(
        [sys.executable, "-m", "tests.maintenance.killed_moves", *how],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    count = int(done.stdout)
    assert count > 3 or count == most
    return [Layout(tmp_path / str(number)) for number in range(1, count + 1)]


def recovered(layout: Layout) -> Trash:
    trash = trash_of(layout)
    trash.items()
    trash.recover()
    assert not list(layout.moving.glob("*"))
    left = [path.name for path in layout.agents.rglob("*") if ".bsd" in path.name]
    left += [path.name for path in layout.agents.rglob("*.lock")]
    assert left == []
    return trash


def test_a_delete_is_finished_or_undone(tmp_path: Path) -> None:
    before = first_root(tmp_path, deleted=False)
    finished = 0
    for layout in kill_at_every_step(tmp_path, "delete"):
        trash = recovered(layout)
        items = trash.items()
        if items:
            finished += 1
            assert {item.name for item in items} == {NAME, KID}
            assert not list(layout.agents.rglob("*.jsonl"))
            assert not list(layout.extracted.iterdir())
            trash.restore(str(NAME))
        assert sessions(layout) == before
        assert not list(layout.trash.iterdir()) if layout.trash.exists() else True
    assert finished


def test_a_permanent_delete_is_finished_or_undone(tmp_path: Path) -> None:
    before = first_root(tmp_path, deleted=False)
    for layout in kill_at_every_step(tmp_path, "permanent"):
        trash = recovered(layout)
        assert trash.items() == []
        assert not list(layout.trash.iterdir()) if layout.trash.exists() else True
        if list(layout.agents.rglob("*.jsonl")):
            assert sessions(layout) == before
        else:
            assert not list(layout.extracted.iterdir())


def test_a_branch_of_what_goes_for_good_loses_nothing(tmp_path: Path) -> None:
    first = Layout(tmp_path / "0")
    path = write(first, conversation(2))
    before = texts(path)
    make_caller(first, Clock()).extract(NAME)
    set_idle(path)
    shutil.rmtree(first.inflight)  # it recognises the session by its former place
    branch_off(first, NAME, BRANCH)
    gone = 0
    for layout in kill_at_every_step(tmp_path, "permanent"):
        recovered(layout)
        gone += not layout.store_dir(NAME).exists()
        assert performed.restore_all(make_caller(layout, Clock()), BRANCH).unavailable == {}
        assert texts(layout.session_file(BRANCH)) == before
    assert gone > 1


def test_a_restore_is_finished(tmp_path: Path) -> None:
    before = first_root(tmp_path, deleted=True)
    for layout in kill_at_every_step(tmp_path, "restore"):
        trash = recovered(layout)
        assert trash.items() == []
        assert sessions(layout) == before
        assert not list(layout.trash.iterdir())


def test_a_removal_is_finished(tmp_path: Path) -> None:
    first_root(tmp_path, deleted=True)
    for layout in kill_at_every_step(tmp_path, "remove"):
        trash = recovered(layout)
        assert [item.name for item in trash.items()] == [KID]
        assert len(list(layout.trash.iterdir())) == 4  # transcript, store, archive, meta


def test_a_session_used_since_the_crash_stays(tmp_path: Path) -> None:
    first_root(tmp_path, deleted=False)
    layout = kill_at_every_step(tmp_path, "delete", 1)[0]  # killed after the journal
    path = layout.session_file(NAME)
    with path.open("ab") as writer:
        writer.write(b'{"id":"since"}\n')
    trash = recovered(layout)
    assert path.read_bytes().endswith(b'{"id":"since"}\n')
    assert (layout.store_dir(NAME) / "0000_thinking.json").exists()
    assert [item.name for item in trash.items()] == [KID]


def test_a_session_begun_anew_since_the_crash_keeps_what_is_its_own(tmp_path: Path) -> None:
    first_root(tmp_path, deleted=False)
    # Its transcript was gone; its entries and its store were not.
    layout = kill_at_every_step(tmp_path, "delete", 2)[1]
    path = layout.agents / "main/sessions/s1.jsonl"
    assert not path.exists()
    path.write_bytes(b'{"type":"session","version":3}\n')
    listed = (path.parent / "sessions.json").read_bytes()
    trash = recovered(layout)
    assert path.read_bytes() == b'{"type":"session","version":3}\n'
    assert b'"sessionId": "s1"' in listed
    assert b'"sessionId": "s1"' in (path.parent / "sessions.json").read_bytes()
    assert (layout.store_dir(NAME) / "0000_thinking.json").exists()
    item = trash.find(str(NAME))
    assert (item.size, item.extracted_files) == (len(SESSION), 0), "the new session may need them"


def test_what_another_bsd_is_at_is_left_to_it(tmp_path: Path) -> None:
    first_root(tmp_path, deleted=False)
    layout = Layout(tmp_path / "0")

    def look(step: str) -> None:
        if step == "transcript":
            trash_of(layout).recover()
            assert len(list(layout.moving.iterdir())) == 1

    trash_of(layout, after_step=look).delete(NAME)
    assert not list(layout.moving.iterdir())
