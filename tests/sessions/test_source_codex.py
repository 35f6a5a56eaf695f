"""Codex's threads: its locks, versions without them, and threads known by byte offsets."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.overview import overview
from bsd.core.errors import Busy
from bsd.core.filesystem import strength
from bsd.planning.result import Status
from bsd.transcripts.agents.programs import program_of
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.codex import codex_line, codex_lines, codex_meta, codex_turn
from tests.transcripts.agents.sources.tree import Home, away, raw, without_restored


@pytest.fixture
def codex(tmp_path: Path) -> Home:
    home = Home.of(CODEX, tmp_path, codex_lines())
    locks = home.path.parents[4] / "thread-writer-locks"
    locks.mkdir()
    (locks / ".coordination.lock").touch()
    return home


def lock_of(home: Home, name: str | None = None) -> Path:
    return (
        home.path.parents[4] / "thread-writer-locks" / (name or f"{home.name.session[-36:]}.lock")
    )


@contextmanager
def held(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("lock", [None, ".coordination.lock"], ids=["thread", "coordination"])
def test_a_thread_is_left_alone_while_codex_holds_its_lock(
    codex: Home, clock: Clock, lock: str | None
) -> None:
    caller = make_caller(codex.layout, clock, wait=0.0)
    old = codex.path.read_bytes()
    with held(lock_of(codex, lock)):
        result = caller.extract(codex.name)
        assert (result.status, codex.path.read_bytes()) == (Status.BUSY, old)
        assert "Codex" in (result.reason or "")
    assert caller.extract(codex.name).status is Status.EXTRACTED


def test_codex_cannot_open_a_thread_while_it_is_changed(codex: Home, clock: Clock) -> None:
    lock_of(codex).touch()
    program = program_of(codex.layout, codex.name.agent)

    def lock() -> AbstractContextManager[object]:
        return program.lock(codex.name, codex.path)

    with lock(), lock_of(codex, ".coordination.lock").open("a") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert program.in_use(codex.name.session) is None
    with held(lock_of(codex, ".coordination.lock")), pytest.raises(Busy), lock():
        pass


def test_locks_that_are_not_as_they_are_known_keep_bsd_out(codex: Home, clock: Clock) -> None:
    lock_of(codex, ".coordination.lock").unlink()
    result = make_caller(codex.layout, clock, wait=0.0).extract(codex.name)
    assert result.status is Status.BUSY
    assert not lock_of(codex, ".coordination.lock").exists()


def test_an_older_codex_that_holds_the_file_open_keeps_it(tmp_path: Path, clock: Clock) -> None:
    home = Home.of(CODEX, tmp_path, codex_lines())
    if strength(home.path.parent).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    caller = make_caller(home.layout, clock, wait=0.0)
    with home.path.open("ab") as file:
        assert caller.extract(home.name).status is Status.BUSY
        file.write(b"x\n")
    set_idle(home.path)
    assert caller.extract(home.name).status is Status.EXTRACTED
    assert home.path.read_bytes().endswith(b"\nx\n")


@pytest.mark.parametrize("meta", [{"history_mode": "paginated"}, {"history_base": {"end": 5}}])
def test_lines_of_a_thread_with_byte_offsets_stay_where_they_are(
    tmp_path: Path, clock: Clock, meta: dict[str, Any]
) -> None:
    home = Home.of(CODEX, tmp_path, [codex_meta(**meta), *codex_lines()[1:]])
    caller, old = make_caller(home.layout, clock), home.path.read_bytes()
    result = caller.extract(home.name, overrides={"keep_recent": 0})
    assert (result.status, result.bytes_saved) == (Status.EXTRACTED, 0)
    assert result.tokens_saved > 1000
    lean = home.path.read_bytes()
    assert [len(line) for line in lean.split(b"\n")] == [len(line) for line in old.split(b"\n")]
    assert away(old, lean) == result.values == 9  # results and pictures; nothing that is shown
    CODEX.reads(lean)

    entry = next(line for line in map(json.loads, lean.splitlines()) if "_extracted" in line)
    performed.restore(caller, home.name, f"function_call_output.{entry['payload']['call_id']}")
    assert b"_restored" not in home.path.read_bytes()
    assert away(old, home.path.read_bytes()) == 8
    set_idle(home.path)
    again = caller.extract(home.name, overrides={"keep_recent": 0})
    assert again.reasons["recently_restored"] == 1
    clock.ahead += 601
    assert caller.extract(home.name, overrides={"keep_recent": 0}).values == 1
    lean = home.path.read_bytes()
    assert away(old, lean) == 9
    set_idle(home.path)
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert home.path.read_bytes() == old
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == lean


@pytest.mark.parametrize("mode", ["legacy", "paginated"])
def test_late_lines_move_no_line_of_a_thread_with_byte_offsets(
    tmp_path: Path, clock: Clock, mode: str
) -> None:
    home = Home.of(CODEX, tmp_path, [codex_meta(history_mode=mode), *codex_lines()[1:]])
    make_caller(home.layout, clock).extract(home.name)
    [displaced] = home.layout.inflight.glob("*.file")
    lean, late, since = home.path.read_bytes(), b'{"late":1}\n', b'{"since":1}\n'
    for path, line in ((displaced, late), (home.path, since)):
        with path.open("ab") as file:
            file.write(line)
    clock.ahead += 120
    assert [each.lines for each in make_caller(home.layout, clock).recover()] == [1]
    added = since + late if mode == "paginated" else late + since
    assert home.path.read_bytes() == lean + added


def test_a_thread_with_an_unknown_history_is_refused(tmp_path: Path, clock: Clock) -> None:
    home = Home.of(CODEX, tmp_path, [codex_meta(history_mode="new"), *codex_lines()[1:]])
    result = make_caller(home.layout, clock).extract(home.name)
    assert result.status is Status.LEFT_ALONE
    assert "of mode 'new'" in (result.reason or "")


def compaction(number: int, **more: Any) -> dict[str, Any]:
    said = {"type": "input_text", "text": f"compacted {number} " * 80}
    history = [{"type": "message", "role": "user", "content": [said]}]
    return codex_line(number, "compacted", message="", replacement_history=history, **more)


def compactions_left(home: Home) -> list[int]:
    """Return the numbers of the compactions that are still whole."""
    found = [json.loads(line) for line in home.path.read_bytes().splitlines()]
    texts = [
        line["payload"]["replacement_history"][0]["content"][0]["text"]
        for line in found
        if line["type"] == "compacted"
    ]
    return [int(text.split()[1]) for text in texts if text.startswith("compacted")]


def test_only_the_newest_two_compactions_stay_whole(codex: Home, clock: Clock) -> None:
    with codex.path.open("ab") as file:
        file.write(raw([compaction(100), compaction(101), *codex_turn(110)]))
    old, caller = codex.path.read_bytes(), make_caller(codex.layout, clock)
    assert caller.extract(codex.name).status is Status.EXTRACTED
    assert compactions_left(codex) == [100, 101]
    more = raw([compaction(130), *codex_turn(140)])
    with codex.path.open("ab") as file:
        file.write(more)
    set_idle(codex.path)
    assert caller.extract(codex.name).status is Status.EXTRACTED
    assert compactions_left(codex) == [101, 130]
    assert performed.restore_all(caller, codex.name).status is Status.RESTORED
    assert without_restored(codex.path.read_bytes()) == old + more


@pytest.mark.parametrize("marker", ["rolled back", "references"])
def test_compactions_that_codex_may_read_again_stay_whole(
    tmp_path: Path, clock: Clock, marker: str
) -> None:
    rolled_back = codex_line(150, "event_msg", type="thread_rolled_back", num_turns=1)
    last = (
        [rolled_back, *codex_turn(160)]
        if marker == "rolled back"
        else [compaction(150, replacement_history_entries=[])]
    )
    numbers = [100, 101, 102, 103]
    lines = [*codex_lines(), *map(compaction, numbers), *codex_turn(110), *last]
    home = Home.of(CODEX, tmp_path, lines)
    assert make_caller(home.layout, clock).extract(home.name).status is Status.EXTRACTED
    assert compactions_left(home)[:4] == numbers


def test_the_overview_says_what_fills_the_directory(codex: Home, clock: Clock) -> None:
    home = codex.path.parents[4]
    for name in ("logs_2.sqlite", "logs_2.sqlite-wal", "state_5.sqlite", "archived_sessions/a"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(b"x" * (1 << 20))
    (home / "other.sqlite").write_bytes(b"x" * (1 << 22))
    [agent] = overview(make_caller(codex.layout, clock)).agents
    found = {files.what: (files.bytes, bool(files.advice)) for files in agent.directory}
    assert found["log (logs_2.sqlite)"] == (2 << 20, True)
    assert found["list of threads (state_5.sqlite)"] == (1 << 20, False)
    assert found["archived threads (archived_sessions)"][0] >= 1 << 20
    assert set(found) - {"threads (sessions)"} == set(list(found)[:3])  # the largest first
    assert 0 < found["threads (sessions)"][0] < 1 << 20
