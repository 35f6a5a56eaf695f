"""The notes of a project are copied with its sessions, and come back with any of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bsd.core.layout import SessionName
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.doctor import Level, examine
from bsd.maintenance.forget import Forget
from bsd.maintenance.project_memory import copy_memory, memory_copies
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock

NOTES = {
    "MEMORY.md": b"# Shop\n- the basket lies in basket.py\n",
    "topics/prices.md": "café: 3 €\r\n".encode(),
    "topics/deep/\N{ROCKET}.md": b"\xff\xfe no text\0",
}


@pytest.fixture
def home(tmp_path: Path) -> ClaudeHome:
    home = ClaudeHome.of(tmp_path, 2, small=True)
    for name, content in NOTES.items():
        write(home, name, content)
    return home


def memory(home: ClaudeHome) -> Path:
    return home.source / "-home-me-project" / "memory"


def write(home: ClaudeHome, name: str, content: bytes, days: float = 3) -> None:
    path = memory(home) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    set_idle(path, days * DAY)


def notes(home: ClaudeHome) -> dict[str, tuple[bytes, int]]:
    """The existing files, with their times."""
    top = memory(home)
    return {
        str(path.relative_to(top)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in top.rglob("*")
        if path.is_file()
    }


def agent(home: ClaudeHome) -> str:
    return home.names[0].agent


def copies(home: ClaudeHome) -> list[Path]:
    return [
        path for _, top in memory_copies(home.layout) for path in top.rglob("*") if path.is_file()
    ]


def test_it_is_copied_once_for_the_project_and_again_when_it_changed(
    home: ClaudeHome, clock: Clock
) -> None:
    assert len(keep(home.layout, clock).memory) == 3
    assert len(copies(home)) == 3
    assert keep(home.layout, clock).memory == []
    write(home, "MEMORY.md", b"changed", days=2)
    assert [path.name for path in keep(home.layout, clock).memory] == ["MEMORY.md"]
    (memory(home) / "topics" / "prices.md").unlink()
    keep(home.layout, clock)
    assert {path.name for path in copies(home)} == {"MEMORY.md", "\N{ROCKET}.md"}
    shutil.rmtree(memory(home) / "topics")
    write(home, "topics", b"a file now")
    (memory(home) / "MEMORY.md").unlink()
    write(home, "MEMORY.md/index.md", b"in a directory now")
    keep(home.layout, clock)
    assert {path.name for path in copies(home)} == {"topics", "index.md"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in copies(home))


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_whole_project_that_is_deleted_comes_back_with_its_memory(
    home: ClaudeHome, clock: Clock, how: str
) -> None:
    before, first = notes(home), home.now()
    keep(home.layout, clock)
    shutil.rmtree(memory(home).parent)
    if how == "empty":
        memory(home).mkdir(parents=True)
    keep(home.layout, clock)  # deleted notes do not delete their copy
    done = bring_back(home.layout, str(home.names[0]), clock)
    assert {Path(path).name for path in done.memory} == {Path(name).name for name in NOTES}
    assert (done.memory_stays, done.left_out) == ([], [])
    assert notes(home) == before
    again = bring_back(home.layout, str(home.names[1]), clock)
    assert again.memory == []
    assert {path: content for path, (content, *_) in home.now().items()} == {
        path: content for path, (content, *_) in first.items()
    }
    assert not list((home.layout.own / "returning").iterdir())


def test_a_file_that_is_in_its_place_stays_and_is_named(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    home.delete_older_than(1)
    write(home, "MEMORY.md", b"newer", days=0)
    write(home, "topics/prices.md", NOTES["topics/prices.md"], days=0)
    done = bring_back(home.layout, str(home.names[0]), clock)
    assert done.memory_stays == [str(memory(home) / "MEMORY.md")]
    assert [Path(path).name for path in done.memory] == ["\N{ROCKET}.md"]
    assert notes(home)["MEMORY.md"][0] == b"newer"
    assert home.layout.session_file(home.names[0]).exists()


def test_under_another_project_no_memory_comes_along(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    shutil.rmtree(memory(home).parent)
    other = SessionName("claude-code:-home-me-other", home.names[0].session)
    done = bring_back(home.layout, str(home.names[0]), clock, renamed=other)
    assert done.memory == []
    assert not (home.source / "-home-me-other" / "memory").exists()


def test_no_link_is_followed_and_each_is_named(
    home: ClaudeHome, clock: Clock, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.md").write_text("a secret")
    (memory(home) / "linked.md").symlink_to(elsewhere / "secret.md")
    (memory(home) / "linked").symlink_to(elsewhere)
    os.mkfifo(memory(home) / "pipe.md")
    done = keep(home.layout, clock)
    assert len(done.left_out) == 3
    assert {path.name for path in copies(home)} == {Path(name).name for name in NOTES}

    shutil.rmtree(memory(home))
    memory(home).symlink_to(elsewhere)
    [why] = keep(home.layout, clock).left_out
    assert str(memory(home)) in why
    assert "symbolic link" in why
    checks = [check for check in examine(home.layout) if check.name == "memory"]
    assert [check.level for check in checks] == [Level.WARN]
    home.layout.session_file(home.names[0]).unlink()
    answer = bring_back(home.layout, str(home.names[0]), clock)
    assert (answer.memory, answer.memory_stays) == ([], [])
    assert any("symbolic link" in text for text in answer.left_out)
    assert sorted(os.listdir(elsewhere)) == ["secret.md"]


def test_what_cannot_be_read_takes_no_copy_along(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    prices = memory(home) / "topics" / "prices.md"
    prices.unlink()
    prices.symlink_to("/etc/passwd")
    assert keep(home.layout, clock).left_out
    assert len(copies(home)) == 3


def test_a_file_in_the_place_of_a_directory_stops_no_session(
    home: ClaudeHome, clock: Clock
) -> None:
    keep(home.layout, clock)
    home.layout.session_file(home.names[0]).unlink()
    shutil.rmtree(memory(home) / "topics")
    (memory(home) / "topics").write_text("a file")
    done = bring_back(home.layout, str(home.names[0]), clock)
    assert home.layout.session_file(home.names[0]).exists()
    assert [text.split(" is not a directory")[0] for text in done.left_out] == [
        str(memory(home) / "topics")
    ] * 2
    assert (memory(home) / "topics").read_text() == "a file"


def test_a_copy_that_is_not_ours_stops_no_session(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    home.layout.session_file(home.names[0]).unlink()
    shutil.rmtree(memory(home))
    next(path for path in copies(home) if path.name == "MEMORY.md").chmod(0o666)
    done = bring_back(home.layout, str(home.names[0]), clock)
    assert len(done.memory) == 2
    assert any("MEMORY.md" in text for text in done.left_out)


def test_a_kill_leaves_no_file_behind(home: ClaudeHome, clock: Clock) -> None:
    class KilledError(Exception):
        pass

    def kill(step: str) -> None:
        if step == "placed":
            raise KilledError

    keep(home.layout, clock)
    shutil.rmtree(memory(home).parent)
    with pytest.raises(KilledError):
        bring_back(home.layout, str(home.names[0]), clock, after_step=kill)
    done = bring_back(home.layout, str(home.names[0]), clock)
    assert len(done.memory) == 2, "one was in its place"
    assert set(notes(home)) == set(NOTES)
    assert not list(home.source.rglob("*.bsd-restored"))


def test_it_is_kept_as_long_as_a_copy_of_a_session(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    shutil.rmtree(memory(home).parent)
    keep(home.layout, clock)
    clock.ahead += 300 * DAY
    budget = RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep)

    def retention() -> None:
        run = RetentionRun(
            home.layout, actor="test", clock=clock.now, steady=clock.now, trust_clock=True
        )
        run.clean_gone("180d")

    first, *others = deleted_sessions(home.layout)
    for each in others:
        Forget(home.layout, budget=budget).session(each.name)
    retention()  # which takes the last session, then the memory
    assert deleted_sessions(home.layout) == []
    assert first.name.agent == agent(home) or first.parent
    assert copies(home) == []


def test_it_stays_while_its_project_is_there(home: ClaudeHome, clock: Clock) -> None:
    copy_memory(home.layout, agent(home))
    clock.ahead += 300 * DAY
    run = RetentionRun(
        home.layout, actor="test", clock=clock.now, steady=clock.now, trust_clock=True
    )
    run.clean_gone("180d")
    assert len(copies(home)) == 3


def test_nothing_else_takes_a_copy_for_a_session(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock)
    assert verify(home.layout).clean
    assert deleted_sessions(home.layout) == []
    assert len(keep(home.layout, clock).gone) == 0
    assert next(memory_copies(home.layout))[0] == agent(home)


def test_without_copies_of_sessions_none_is_made(home: ClaudeHome, clock: Clock) -> None:
    keep(home.layout, clock, keep="off")
    assert copies(home) == []
