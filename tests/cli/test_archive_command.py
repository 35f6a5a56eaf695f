"""`bsd archive`: its answers about deleted sessions, and about sessions that share an entry."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bsd.core.config import PruningConfig
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from tests.cli.conftest import Call
from tests.maintenance.keeping import DAY, keep
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import NAME, Clock, conversation, jsonl, make_caller


def test_what_has_just_gone_does_not_stay_for_ever(bsd: Call, root: Path) -> None:
    path = add_session(root, str(NAME), jsonl(*conversation()))
    set_idle(path, 2 * DAY)
    keep(Layout(root), Clock())
    path.unlink()
    said = bsd("archive", "list").out
    assert "just now" in said
    assert "180d on" in said
    assert "never" not in said
    bsd("config", "set", "archive_sessions", "never")
    assert "180d" not in bsd("archive", "list").out


def test_who_keeps_an_entry_is_to_forget_that_entry_alone(bsd: Call, root: Path) -> None:
    layout, clock = Layout(root), Clock()
    caller = make_caller(layout, clock)
    for name in (str(NAME), "main/fork"):
        add_session(root, name, jsonl(*conversation(4)))
        caller.extract(SessionName.parse(name))
    clock.ahead += 120  # a minute has passed since the file was displaced
    caller.recover()
    for file in layout.extracted.glob("*/[0-9]*.json"):
        os.utime(file, (time.time() - 2 * DAY,) * 2)
    RetentionRun(layout, actor="cli").clean_all(PruningConfig())
    done = bsd("archive", "forget", str(NAME), "e1", "--yes")
    assert done.code == 0
    assert "main/fork still keeps it: `bsd archive forget main/fork e1`" in done.err


GONE = ("main/4f2a1111-aaaa", "main/4f2b", "other_agent/77aa")


@pytest.fixture
def gone(bsd: Call, root: Path) -> Call:
    """Three sessions that only the archive has."""
    for name in GONE:
        set_idle(add_session(root, name, jsonl(*conversation())), 2 * DAY)
    keep(Layout(root), Clock())
    for name in GONE:
        agent, _, session = name.partition("/")
        (root / "agents" / agent / "sessions" / f"{session}.jsonl").unlink()
    return bsd


@pytest.mark.parametrize("text", ["main/4f2a", "4f2a", "ma/4f2a1", "4F2A", "main/4f2a1111-aaaa"])
def test_the_archive_takes_beginnings_of_names(gone: Call, text: str) -> None:
    shown = gone("--json", "archive", "show", text)
    assert (shown.code, shown.err) == (0, "")
    assert shown.document["session"]["session"] == GONE[0]
    # An id, too; it distinguishes sessions of the same name.
    id_ = shown.document["session"]["id"]
    assert gone("--json", "archive", "show", id_[:-3]).document["session"]["id"] == id_


def test_who_changes_the_archive_is_told_the_whole_name(gone: Call, root: Path) -> None:
    back = gone("archive", "bring-back", "main/4f2a")
    assert back.code == 0
    assert f"main/4f2a is {GONE[0]}" in back.err
    assert f"{GONE[0]} is back" in back.out
    forgotten = gone("archive", "forget", "77", "--yes")
    assert forgotten.code == 0
    assert "77 is other_agent/77aa" in forgotten.err
    assert "deleted the data of other_agent/77aa for good" in forgotten.out
    # A session in its place can be named so, too.
    ended = gone("archive", "forget", "main/alph", "--yes")
    assert "main/alph is main/alpha" in ended.err


def test_a_session_comes_back_into_another_file(bsd: Call, root: Path, tmp_path: Path) -> None:
    layout, clock = Layout(root), Clock()
    path = add_session(root, str(NAME), jsonl(*conversation(4)))
    whole = path.read_bytes()
    caller = make_caller(layout, clock)
    caller.extract(NAME)
    assert path.read_bytes() != whole
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    out = tmp_path / "out.jsonl"
    done = bsd("archive", "bring-back", str(NAME), "--to", str(out))
    assert done.code == 0
    assert f"{out} is {NAME} with" in done.out
    assert out.read_bytes() == whole
    assert not path.exists()
    again = bsd("archive", "bring-back", str(NAME), "--to", str(out))
    assert (again.code, again.out, out.read_bytes()) == (1, "", whole)
    assert f"{out} already exists" in again.err
    other = tmp_path / "other.jsonl"
    assert bsd("archive", "bring-back", "main/none", "--to", str(other)).code == 1
    assert not other.exists()


@pytest.mark.parametrize("command", ["show", "bring-back", "forget"])
def test_several_in_the_archive_are_listed_and_nothing_is_done(gone: Call, command: str) -> None:
    yes = ["--yes"] if command == "forget" else []
    ended = gone("archive", command, "main/4f", *yes)
    assert ended.code == 2
    assert "the names of 2 sessions in the archive begin with main/4f" in ended.err
    assert all(name in ended.err for name in GONE[:2])
    for text in ("", "main/", "/4f2a", "zz", "main/zz"):
        assert gone("archive", command, text, *yes).code in {1, 2}, text
    assert len(gone("--json", "archive", "list").document["sessions"]) == len(GONE)


@pytest.mark.parametrize("line", ["show", "context", "extract", "restore-all --yes", "summary"])
def test_a_session_that_only_the_archive_has_is_told_so(gone: Call, line: str) -> None:
    for text in (GONE[0], "4f2a", "MAIN/4f2a"):
        command, *more = line.split()
        ended = gone(command, text, *more)
        assert ended.code != 0
        assert f"there is no session {GONE[0]} in its place: the archive has it" in ended.err
        assert f"`bsd archive show {GONE[0]}`" in ended.err
        assert f"`bsd archive bring-back {GONE[0]}`" in ended.err
    assert "archive" not in gone("show", "main/never-was").err
