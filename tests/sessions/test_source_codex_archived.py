"""Archived threads of Codex: the same sessions in another place, after moves in both directions."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, Forbidden, NotFound
from bsd.core.layout import SessionName
from bsd.daemon import directories
from bsd.daemon.directories import Trouble
from bsd.daemon.scan import Scan, sessions_by_stat
from bsd.maintenance import catalog
from bsd.maintenance.doctor import Level, examine
from bsd.maintenance.search import search
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.commit.displaced import State
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.codex import codex_lines, codex_meta
from tests.transcripts.agents.sources.tree import LONG, Home, away, raw, without_restored


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.of(CODEX, tmp_path, codex_lines())
    locks = home.source.parent / "thread-writer-locks"
    locks.mkdir()
    (locks / ".coordination.lock").touch()
    return home


def archive(home: Home, *, day_goes: bool = False) -> Path:
    """Archive as `codex archive` does."""
    archived = home.source.parent / "archived_sessions" / home.path.name
    archived.parent.mkdir(exist_ok=True)
    home.path.rename(archived)
    if day_goes:
        for directory in list(home.path.parents)[:3]:
            directory.rmdir()
    return archived


def unarchive(home: Home) -> None:
    """Unarchive as `codex unarchive` does: the day is in the name, and the time is new."""
    home.path.parent.mkdir(parents=True, exist_ok=True)
    (home.source.parent / "archived_sessions" / home.path.name).rename(home.path)
    set_idle(home.path)


@pytest.mark.parametrize("day_goes", [False, True], ids=["day", "no day"])
def test_an_archived_thread_is_the_session_that_it_was(
    home: Home, clock: Clock, day_goes: bool
) -> None:
    old = home.path.read_bytes()
    caller = make_caller(home.layout, clock)
    assert (
        caller.extract(home.name, by_hand=True, overrides={"keep_recent": 0}).status
        is Status.EXTRACTED
    )
    path = archive(home, day_goes=day_goes)

    [info] = catalog.sessions(home.layout)
    assert (info.name, info.status, info.size) == (home.name, "archived", path.stat().st_size)
    assert info.extracted_entries > 0
    assert [(each.name, each.sessions) for each in catalog.agents(home.layout)] == [
        (home.name.agent, 1)
    ]
    assert list(catalog.names(home.layout, home.name.agent)) == [home.name]
    assert home.layout.has_agent(home.name.agent)
    found = verify(home.layout)
    assert (found.clean, found.sessions) == (True, 1)
    assert found.placeholders == away(old, path.read_bytes()) > 0
    assert {hit.session for hit in search(home.layout, "long old text")} == {home.name}

    entry = next(
        row["id"] for row in performed.context(caller, home.name)["entries"] if row["extracted"]
    )
    content = performed.extracted_content(caller, home.name, entry)["content"]
    assert any(text.endswith(LONG) for text in content.values())  # a picture begins with `data:,`
    performed.restore(caller, home.name, entry)
    performed.undo(caller, home.name)
    performed.undo(caller, home.name)
    assert path.read_bytes() == old
    assert caller.extract(home.name, overrides={"keep_recent": 0}).status is Status.UNCHANGED
    again = caller.extract(home.name, by_hand=True, overrides={"keep_recent": 0})
    assert again.status is Status.EXTRACTED
    assert away(old, path.read_bytes()) > 0
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert without_restored(path.read_bytes()) == old
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # no file of bsd beside it
    unarchive(home)
    [info] = catalog.sessions(home.layout)
    assert (info.name, info.status) == (home.name, None)


def test_codex_cannot_move_a_thread_while_it_is_changed(home: Home, clock: Clock) -> None:
    path = archive(home)
    old = path.read_bytes()
    caller = make_caller(home.layout, clock, wait=0.0)
    with (home.source.parent / "thread-writer-locks" / ".coordination.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert caller.extract(home.name).status is Status.BUSY
    assert path.read_bytes() == old
    assert caller.extract(home.name).status is Status.EXTRACTED


def there_and_back(home: Home) -> None:
    archive(home)
    unarchive(home)


@pytest.mark.parametrize("move", [archive, there_and_back])
def test_a_thread_that_moves_while_bsd_waits_is_changed_where_it_lies(
    home: Home, clock: Clock, move: Callable[[Home], object]
) -> None:
    pending = [move]
    os.utime(home.path)  # written to just now: bsd has to wait for it

    def meanwhile() -> None:
        if pending:
            pending.pop()(home)

    clock.meanwhile = meanwhile
    assert make_caller(home.layout, clock).extract(home.name).status is Status.EXTRACTED
    assert b"[[extracted-" in home.layout.session_file(home.name).read_bytes()
    assert not pending


def test_late_lines_find_a_thread_that_was_archived(home: Home, clock: Clock) -> None:
    assert make_caller(home.layout, clock).extract(home.name).status is Status.EXTRACTED
    [displaced] = home.layout.inflight.glob("*.file")
    with displaced.open("ab") as file:
        file.write(late := raw([codex_lines()[-1]]))
    path = archive(home)
    before = path.read_bytes()
    clock.ahead += 120
    found = make_caller(home.layout, clock).recover()
    assert [(each.state, each.lines) for each in found] == [(State.FINISHED, 1)]
    assert path.read_bytes() == before + late
    assert not home.path.exists()


def test_what_is_in_its_place_comes_before_what_lies_in_the_archive(home: Home) -> None:
    path = archive(home)
    home.path.write_bytes(path.read_bytes() + b"{}\n")
    assert home.layout.session_file(home.name) == home.path
    [info] = catalog.sessions(home.layout)
    assert (info.size, info.status) == (home.path.stat().st_size, None)
    [agent] = catalog.agents(home.layout)
    assert agent.sessions == 1
    assert str(path) in (agent.note or "")


def test_a_name_leads_nowhere_else(home: Home) -> None:
    path = archive(home)
    other = SessionName("codex:2025:09:25", home.name.session)
    for name in (other, SessionName(home.name.agent, "rollout-none")):
        with pytest.raises(NotFound):
            home.layout.session_file(name)
    assert home.layout.archived_as(other) is None
    path.rename(path.with_name("x"))
    path.symlink_to(path.with_name("x"))
    with pytest.raises(Forbidden):
        home.layout.session_file(home.name)
    assert list(catalog.names(home.layout)) == []


def test_an_archive_that_is_a_link_is_named_and_not_followed(home: Home, tmp_path: Path) -> None:
    path = archive(home)
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(tmp_path / "elsewhere")
    assert list(catalog.names(home.layout)) == []
    with pytest.raises(BsdError):
        home.layout.session_file(home.name)
    assert Trouble.OUTSIDE in [
        each.kind for each in directories.find_directories(home.layout).problems
    ]
    told = [each for each in examine(home.layout) if each.name == "sources"]
    assert [each.level for each in told] == [Level.OK, Level.WARN]
    assert "symbolic link" in told[1].message


def test_the_scan_sees_no_change_in_a_move_and_every_other(home: Home) -> None:
    scan = Scan(home.layout)
    [(name, seen)] = scan.step()
    assert name == home.name
    assert seen is not None
    scan.note(name, seen)
    path = archive(home, day_goes=True)
    assert not scan.changed(name)
    assert list(scan.step()) == []
    assert list(sessions_by_stat(home.layout)) == [(name, seen)]
    with path.open("ab") as file:
        file.write(b"{}\n")
    assert [each for each, _ in scan.step()] == [name]
    with path.open("ab") as file:
        file.write(b"{}\n")
    assert scan.changed(name)
    unarchive(home)
    assert [each for each, _ in scan.step()] == [name]
    home.path.unlink()
    assert list(scan.step()) == [(name, None)]


def test_an_archive_of_which_nothing_can_be_said_now_loses_no_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Scan(home.layout)
    archive(home)
    list(scan.step())
    scandir = os.scandir

    def refusing(path: Path) -> object:
        if str(path).endswith("archived_sessions"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert list(scan.step()) == []
    assert [each.kind for each in scan.problems] == [Trouble.NO_ACCESS]


def test_a_thread_taken_back_to_an_earlier_turn_has_two_files_that_are_edited(
    home: Home, clock: Clock
) -> None:
    """The thread continues in a second file, whose name holds the thread's id and a suffix."""
    name = SessionName(home.name.agent, f"{home.name.session}_01a20439-b8a3-7291-bd43-f95da5b14fcc")
    path = home.path.with_name(f"{name.session}.jsonl")
    path.write_bytes(raw([codex_meta(history_mode="paginated"), *codex_lines()[1:]]))
    set_idle(path)
    assert set(catalog.names(home.layout)) == {home.name, name}
    for one in (home.name, name):
        assert make_caller(home.layout, clock).extract(one).status is Status.EXTRACTED
