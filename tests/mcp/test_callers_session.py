"""A caller's own session, found without its name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bsd.core.errors import Invalid
from bsd.core.layout import Layout, SessionName
from bsd.core.processes import starttime
from bsd.mcp.scope import Scope, ancestors, sessions_of_client
from bsd.transcripts.agents.program import Process
from bsd.transcripts.agents.programs import at_work
from tests.mcp.conftest import NAME, Desk
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.tree import Home
from tests.waiting import wait_for

ME = os.getpid()


@contextmanager
def process(*argv: str, cwd: Path, program: str = "/bin/sleep") -> Iterator[int]:
    """Another process, with any name."""
    with subprocess.Popen(argv, executable=program, cwd=cwd) as child:
        try:
            # It starts a moment before the system knows its command line.
            if os.path.isdir("/proc"):
                wait_for(lambda: running(child.pid), "what it was called with")
            yield child.pid
        finally:
            child.kill()


def running(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# --- Claude Code ---


@pytest.fixture
def claude(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())


def says(home: Home, pid: int = ME, **more: object) -> None:
    """Let a process state its session."""
    directory = home.source.parent / "sessions"
    directory.mkdir(exist_ok=True)
    said = {"pid": pid, "sessionId": home.name.session, "status": "busy", **more}
    (directory / f"{pid}.json").write_text(json.dumps(said))


def test_claude_code_says_which_session_a_process_has(claude: Home) -> None:
    assert sessions_of_client(claude.layout, ME) == ()
    says(claude)
    assert sessions_of_client(claude.layout, ME) == (claude.name,)


def test_the_nearest_process_counts(claude: Home) -> None:
    require_linux()
    says(claude)
    with process("sleep", "60", cwd=claude.source) as child:
        assert [one.pid for one in ancestors(child)][:2] == [child, ME]
        assert sessions_of_client(claude.layout, child) == (claude.name,)
        other = "11111111-2222-3333-4444-555555555555"
        shutil.copy(claude.path, claude.path.with_name(f"{other}.jsonl"))
        says(claude, child, sessionId=other)
        assert sessions_of_client(claude.layout, child) == (SessionName(claude.name.agent, other),)


@pytest.mark.parametrize("form", [int, str])
def test_an_earlier_process_of_the_same_number_has_ended(claude: Home, form: type) -> None:
    require_linux()
    started = starttime(ME)
    assert started is not None
    says(claude, procStart=form(started + 1))
    assert sessions_of_client(claude.layout, ME) == ()
    says(claude, procStart=form(started))
    assert sessions_of_client(claude.layout, ME) == (claude.name,)
    says(claude, procStart="Sun Nov 22 17:00:00 2026")  # in a form that cannot be compared
    assert sessions_of_client(claude.layout, ME) == (claude.name,)


@pytest.mark.parametrize(
    "said", ["", "[]", "null", '{"sessionId": 7}', '{"sessionId": "../../x"}', "[" * 100_000]
)
def test_what_says_nothing(claude: Home, said: str) -> None:
    says(claude)
    (claude.source.parent / "sessions" / f"{ME}.json").write_text(said)
    assert sessions_of_client(claude.layout, ME) == ()


def test_a_pipe_is_not_waited_for(claude: Home) -> None:
    directory = claude.source.parent / "sessions"
    directory.mkdir()
    os.mkfifo(directory / f"{ME}.json")
    assert sessions_of_client(claude.layout, ME) == ()


# --- Codex ---


@pytest.fixture
def codex(tmp_path: Path) -> Home:
    return Home.of(CODEX, tmp_path, CODEX.lines())


def test_codex_holds_the_lock_of_its_thread(codex: Home) -> None:
    require_linux()
    locks = codex.source.parent / "thread-writer-locks"
    locks.mkdir()
    lock = locks / f"{codex.name.session[-36:]}.lock"
    with lock.open("w") as file:
        assert sessions_of_client(codex.layout, ME) == ()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert at_work(codex.layout, Process(ME)) == [codex.name]
        assert at_work(codex.layout, Process(1)) == []


def test_an_older_codex_holds_its_file_open(codex: Home) -> None:
    require_linux()
    with codex.path.open("ab"), codex.path.open("rb"):
        assert sessions_of_client(codex.layout, ME) == (codex.name,)
    assert sessions_of_client(codex.layout, ME) == ()


# --- pi ---


@pytest.fixture
def pi(tmp_path: Path) -> tuple[Home, Path]:
    """A session of pi for a directory, and that directory."""
    home = Home.of(PI, tmp_path, PI.lines())
    work = tmp_path / "work: here"
    work.mkdir()
    name = str(work).removeprefix("/").replace("/", "-").replace(":", "-")
    directory = home.source / f"--{name}--"
    shutil.move(home.path.parent, directory)
    layout = home.layout
    [(agent, _)] = [one for one in layout.session_dirs() if one[1] == directory]
    path = directory / home.path.name
    return Home(home.kind, layout, SessionName(agent, home.name.session), path), work


@pytest.mark.parametrize("argv", [("pi",), ("node", "/usr/bin/pi"), ("/opt/bin/pi", "--continue")])
def test_pi_writes_to_a_session_of_its_directory(
    pi: tuple[Home, Path], argv: tuple[str, ...]
) -> None:
    home, work = pi
    begun = time.time() - 60
    at = Process(ME, 1, begun, work, argv)
    assert at_work(home.layout, at) == [], "it was written to before"
    home.path.touch()
    assert at_work(home.layout, at) == [home.name]
    assert at_work(home.layout, Process(ME, 1, begun, work, ("claude",))) == []
    assert at_work(home.layout, Process(ME, 1, begun, work.parent, argv)) == []
    later = home.path.with_name(f"2026-01-01T00-00-00-000Z_{'0' * 8}.jsonl")
    shutil.copy(home.path, later)
    os.utime(later, (time.time() + 9, time.time() + 9))
    assert [one.session for one in at_work(home.layout, at)] == [later.stem, home.path.stem]


def test_a_process_of_pi_by_what_the_system_tells(pi: tuple[Home, Path]) -> None:
    require_linux()
    home, work = pi
    with process("pi", "60", cwd=work) as child:
        home.path.touch()
        assert sessions_of_client(home.layout, child) == (home.name,)
        set_idle(home.path)
        assert sessions_of_client(home.layout, child) == ()


# --- choice among several sessions ---

OTHER = SessionName("other", "s9")


def scope(*own: SessionName, agent: str | None = None) -> Scope:
    return Scope(agent, client=lambda _: own)


def test_it_is_the_callers_own(away: Desk) -> None:
    assert scope(NAME).find(away.layout, None) == NAME
    assert scope(NAME).find(away.layout, None, "msg-456") == NAME
    assert scope(NAME).find(away.layout, None, "nowhere") == NAME, "which will say so"


def test_of_several_it_is_the_one_that_has_the_entry(away: Desk) -> None:
    assert scope(OTHER, NAME).find(away.layout, None, "msg-456") == NAME
    with pytest.raises(Invalid, match="session parameter is required") as refused:
        scope(OTHER, NAME).find(away.layout, None)
    assert "main/s1" in str(refused.value.hint)


def test_where_the_program_tells_nothing_it_is_the_only_one_with_that_entry(away: Desk) -> None:
    assert scope().find(away.layout, None, "msg-456") == NAME
    assert scope(agent="main").find(away.layout, None, "msg-456") == NAME
    for entry in ("m0", "nowhere", "msg-45", None):
        with pytest.raises(Invalid, match="session parameter is required") as refused:
            scope().find(away.layout, None, entry)
        assert "AGENT/SESSION" in str(refused.value.hint)
    with pytest.raises(Invalid):
        scope(agent="other").find(away.layout, None, "msg-456")


def test_several_that_have_it_are_named(away: Desk) -> None:
    second = away.layout.agents / "main" / "sessions" / "s2.jsonl"
    shutil.copy(away.path, second)
    store = away.layout.store_dir(SessionName("main", "s2"))
    shutil.copytree(away.layout.store_dir(NAME), store)
    index = store / "index.json"
    index.write_text(index.read_text().replace("main/s1", "main/s2"))
    with pytest.raises(Invalid, match="several have the entry msg-456") as refused:
        scope().find(away.layout, None, "msg-456")
    assert "main/s1, main/s2" in str(refused.value.hint)
    assert scope(NAME).find(away.layout, None, "msg-456") == NAME


def test_whose_reach_is_bounded_stays_bounded(away: Desk) -> None:
    assert Scope(session=OTHER, client=lambda _: (NAME,)).find(away.layout, None) == OTHER
    bounded = scope(NAME, agent="other")
    assert bounded.own(away.layout) == ()
    with pytest.raises(Invalid):
        bounded.find(away.layout, None)


def test_a_link_out_of_the_root_is_not_followed(away: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(away.layout.extracted, outside)
    away.layout.extracted.symlink_to(outside)
    with pytest.raises(Exception, match="leads out of"):
        scope().find(Layout(away.layout.root), None, "msg-456")
