"""Other programs' sessions, taken apart and put together again, and nothing else about them."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.formats.owners import layout_of, owner_of
from bsd.foundation.errors import Busy, ConfigError, Invalid, LeftAlone
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.source_settings import SourceSettings
from bsd.lifecycle import catalog, statistics
from bsd.lifecycle.search import search
from bsd.lifecycle.summary import summarize
from bsd.lifecycle.trash import Trash
from bsd.lifecycle.verify import verify
from bsd.surgeon import Status
from bsd.surgery.edit import becoming, setting
from bsd.transcript.mount import strength
from bsd.transcript.recovered import State
from tests.files.surgeon.conftest import Clock, make_surgeon
from tests.openclaw_tree import set_at_rest
from tests.sources_tree import (
    CLAUDE_CODE,
    CODEX,
    KINDS,
    LONG,
    Home,
    Kind,
    away,
    claude_code_line,
    claude_code_lines,
    codex_line,
    codex_lines,
    codex_meta,
)

EVERYTHING = {
    "trigger_types": ["thinking", "tool_call", "tool_result", "assistant", "user", "system"],
    "min_value_length": 40,
    "keep_recent": 0,
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])


@pytest.fixture(params=KINDS, ids=[kind.kind for kind in KINDS])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    kind: Kind = request.param
    return Home.of(kind, tmp_path, kind.lines())


def without_restored(content: bytes) -> bytes:
    return re.sub(rb',"_restored":"[^"]*"', b"", content)


def test_its_sessions_are_listed_and_nothing_is_put_beside_them(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    [info] = catalog.sessions(home.layout)
    assert info.name == home.name
    before = {path for path in home.path.parents[3].rglob("*") if "home" in path.parts}
    old, mtime = home.path.read_bytes(), home.path.stat().st_mtime_ns
    result = surgeon.extract(home.name, overrides=EVERYTHING)
    assert (result.status, result.reason) == (Status.EXTRACTED, None)
    new = home.path.read_bytes()
    assert away(old, new) == result.values > 0
    assert len(home.kind.reads(new)) == len(home.kind.reads(old))
    for proof in (b"c2lnc2ln", b"gAAAgAAA"):  # signatures, encrypted reasoning
        assert new.count(proof) == old.count(proof)
    assert {path for path in home.path.parents[3].rglob("*") if "home" in path.parts} == before
    assert home.layout.store_dir(home.name).is_dir()
    assert home.path.stat().st_mtime_ns == mtime
    assert verify(home.layout).clean


def test_everything_comes_back_exactly(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    old = home.path.read_bytes()
    assert surgeon.extract(home.name, overrides=EVERYTHING).values > 0
    assert surgeon.restore_all(home.name).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == old


@each_kind
def test_recorded_sessions_come_back_exactly(
    kind: Kind, tmp_path: Path, shared_data: Path, clock: Clock
) -> None:
    for number, path in enumerate(sorted(shared_data.glob(kind.recorded))):
        (top := tmp_path / str(number)).mkdir()
        home = Home.of(kind, top, path)
        surgeon = make_surgeon(home.layout, clock)
        old = path.read_bytes()
        result = surgeon.extract(home.name, overrides=EVERYTHING | {"min_value_length": 800})
        new = home.path.read_bytes()
        assert away(old, new) == result.values > 0
        assert len(kind.reads(new)) == len(kind.reads(old))
        assert verify(home.layout).clean
        assert surgeon.restore_all(home.name).status is Status.RESTORED
        assert without_restored(home.path.read_bytes()) == old


def test_one_entry_comes_back_and_what_was_done_can_be_undone(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    old = home.path.read_bytes()
    surgeon.extract(home.name, overrides=EVERYTHING)
    taken = home.path.read_bytes()
    entry = next(row["id"] for row in surgeon.context(home.name)["entries"] if row["extracted"])
    keys = surgeon.restore(home.name, entry)["keys_restored"]
    assert away(old, without_restored(home.path.read_bytes())) == away(old, taken) - len(keys)
    surgeon.undo(home.name)
    assert home.path.read_bytes() == taken
    surgeon.undo(home.name)
    assert home.path.read_bytes() == old


def reasons(home: Home, clock: Clock, **settings: Any) -> Mapping[str, int]:
    found = make_surgeon(home.layout, clock).extract(home.name, dry_run=True, overrides=settings)
    return found.reasons


def test_the_decision_table_holds(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    due = reasons(home, clock, keep_recent=0)["extract"]
    assert due > 0
    assert "extract" not in reasons(home, clock, keep_recent=100)
    assert reasons(home, clock, keep_recent=100)["too_recent"] > 0
    assert "extract" not in reasons(home, clock, min_value_length=50_000)
    assert "extract" not in reasons(home, clock, trigger_types=["system"])
    assert reasons(home, clock, keep_recent=0, scope="display")["extract"] <= due

    surgeon.extract(home.name, overrides={"keep_recent": 0})
    away = [row["id"] for row in surgeon.context(home.name)["entries"] if row["extracted"]]
    assert len(away) == due
    assert reasons(home, clock, keep_recent=0)["already_extracted"] > 0
    surgeon.restore(home.name, away[0])
    assert reasons(home, clock, keep_recent=0)["recently_restored"] == 1
    surgeon.set_extractable(home.name, away[0], False)
    assert reasons(home, clock, keep_recent=0)["pinned"] == 1
    surgeon.set_extractable(home.name, away[0], True)
    assert reasons(home, clock, keep_recent=0)["extract"] == 1


def test_an_open_turn_and_a_name_used_twice_stay(home: Home, clock: Clock) -> None:
    lines = home.path.read_bytes().splitlines(keepends=True)
    due = reasons(home, clock, keep_recent=0)["extract"]
    third = (len(lines) + 2) // 3
    home.path.write_bytes(b"".join(lines[:-third] + lines[-third:][: third // 2 + 1]))
    set_at_rest(home.path)
    assert reasons(home, clock, keep_recent=0)["turn_open"] > 0
    home.path.write_bytes(b"".join([*lines, *lines[1:]]))
    set_at_rest(home.path)
    found = reasons(home, clock, keep_recent=0)
    assert found["duplicate_entry_id"] >= due
    assert "extract" not in found


def test_the_context_tool_changes_texts(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    old = home.path.read_bytes()
    entry = next(
        row for row in surgeon.context(home.name)["entries"] if row["type"] == "tool_result"
    )
    assert surgeon.discard(home.name, [entry["hash"]])["success"]
    assert b"[content discarded]" in home.path.read_bytes()
    surgeon.undo(home.name)
    assert home.path.read_bytes() == old


def test_a_person_may_change_texts_and_nothing_that_ties_entries(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    old = home.path.read_bytes()
    entry = next(
        row["id"] for row in surgeon.context(home.name)["entries"] if row["type"] == "tool_result"
    )
    document = json.loads(surgeon.show_entry(home.name, entry).text)
    tie = {"claude-code": ("parentUuid",), "codex": ("payload", "call_id"), "pi": ("parentId",)}
    with pytest.raises(Invalid):
        surgeon.edit(home.name, entry, setting([(tie[home.kind.kind], "another")]))
    assert home.path.read_bytes() == old
    text = json.dumps(document).replace(LONG, "short")
    surgeon.edit(home.name, entry, becoming(text))
    assert home.path.read_bytes() == _with_line(old, document, LONG, "short")


def _with_line(content: bytes, document: Any, old: str, new: str) -> bytes:
    lines = content.splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if json.loads(line) == document)
    lines[number] = lines[number].replace(old.encode(), new.encode())
    return b"".join(lines)


def late(home: Home) -> Path:
    """The file that an extraction has displaced, and that somebody may still write to."""
    [path] = home.layout.inflight.glob("*.file")
    return path


def test_late_lines_find_their_session(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    surgeon.extract(home.name)
    taken = home.path.read_bytes()
    with late(home).open("ab") as file:
        file.write(b'{"late": true}\n')
    clock.ahead += 120
    found = make_surgeon(home.layout, clock).recover()
    assert [each.lines for each in found] == [1]
    assert home.path.read_bytes() == taken + b'{"late": true}\n'


def test_a_source_that_is_named_no_longer_is_not_written_to(home: Home, clock: Clock) -> None:
    make_surgeon(home.layout, clock).extract(home.name)
    taken = home.path.read_bytes()
    with late(home).open("ab") as file:
        file.write(b'{"late": true}\n')
    clock.ahead += 120
    [found] = make_surgeon(Layout(home.layout.root), clock).recover()
    assert found.state is State.FAILED
    assert home.path.read_bytes() == taken
    assert late(home).read_bytes().endswith(b'{"late": true}\n')


def test_other_doors_know_these_sessions(home: Home, clock: Clock) -> None:
    surgeon = make_surgeon(home.layout, clock)
    surgeon.extract(home.name)
    assert summarize(home.layout, home.name).tool_calls == 6
    [hit] = search(home.layout, "done", agent=home.name.agent, limit=1)
    assert hit.session == home.name
    counted = statistics.warm(home.layout, list(catalog.sessions(home.layout)))[home.name]
    assert (counted.tool_calls, counted.tool_outputs) == (6, 6)
    assert counted.models
    assert counted.tokens["input"] == 9  # three answers, in however many lines


def test_they_are_not_for_bsd_to_delete(home: Home) -> None:
    old = home.path.read_bytes()
    with pytest.raises(LeftAlone):
        Trash(home.layout, "14d").delete(home.name)
    assert home.path.read_bytes() == old


def test_what_is_not_known_is_left_alone_and_counted(home: Home, clock: Clock) -> None:
    lines = home.path.read_bytes().replace(b'"type"', b'"kind"')
    home.path.write_bytes(lines)
    os.utime(home.path, (1e9, 1e9))
    result = make_surgeon(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    assert result.status is Status.LEFT_ALONE
    assert result.reason
    assert home.path.read_bytes() == lines


@pytest.mark.parametrize("kind", [CLAUDE_CODE, CODEX], ids=["claude-code", "codex"])
def test_openclaws_own_directories_hold_none_of_them(
    kind: Kind, tmp_path: Path, clock: Clock
) -> None:
    """Only where the settings say so: there their owner's signs of life are looked at."""
    home = Home.of(kind, tmp_path, kind.lines())
    layout = Layout(home.layout.root)
    path = layout.agents / "main" / "sessions" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(home.path.read_bytes())
    os.utime(path, (1e9, 1e9))
    result = make_surgeon(layout, clock).extract(SessionName("main", "s"), overrides=EVERYTHING)
    assert result.status is Status.LEFT_ALONE


def test_a_source_must_be_of_a_known_kind_and_the_right_directory(tmp_path: Path) -> None:
    for kind, path in (("cursor", tmp_path), ("claude-code", tmp_path / ".claude")):
        with pytest.raises(ConfigError) as caught:
            layout_of(tmp_path / "root", [SourceSettings(kind=kind, path=path)])
        assert caught.value.hint


# --- Claude Code ---


@pytest.fixture
def claude(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())


def test_a_session_is_left_alone_while_a_process_is_busy_with_it(
    claude: Home, clock: Clock
) -> None:
    running = claude.path.parents[2] / "sessions" / f"{os.getpid()}.json"
    running.parent.mkdir()
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "busy"}))
    surgeon = make_surgeon(claude.layout, clock, wait=0.0)
    assert surgeon.extract(claude.name).status is Status.BUSY
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "idle"}))
    assert surgeon.extract(claude.name).status is Status.EXTRACTED


def test_without_a_list_of_processes_it_waits_for_a_minute_of_quiet(
    claude: Home, clock: Clock
) -> None:
    then = clock.now() - 40
    os.utime(claude.path, (then, then))
    surgeon = make_surgeon(claude.layout, clock, wait=0.0)
    assert surgeon.extract(claude.name).status is Status.BUSY
    clock.ahead += 30
    assert surgeon.extract(claude.name).status is Status.EXTRACTED


@pytest.mark.parametrize("compacted", [False, True], ids=["bound", "compacted"])
def test_signatures_keep_what_they_cover(tmp_path: Path, clock: Clock, *, compacted: bool) -> None:
    lines = claude_code_lines(4)
    for line in lines[1:]:
        if line["type"] == "assistant":
            line["message"]["model"] = "claude-opus-5-5"
    if compacted:
        boundary = claude_code_line(100, "system", None, subtype="compact_boundary")
        boundary["parentUuid"] = None
        lines.insert(8, boundary)
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    make_surgeon(home.layout, clock).extract(home.name, overrides={"keep_recent": 0})
    kept_copies = home.path.read_bytes().count(b'"stdout": "[[extracted-')
    assert kept_copies == 4  # what is never sent leaves all the same
    sent = home.path.read_bytes().count(b'"content": "[[extracted-')
    assert sent == (2 if compacted else 1)  # after the last signature, before the compaction


# --- Codex ---


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
    surgeon = make_surgeon(codex.layout, clock, wait=0.0)
    old = codex.path.read_bytes()
    with held(lock_of(codex, lock)):
        result = surgeon.extract(codex.name)
        assert (result.status, codex.path.read_bytes()) == (Status.BUSY, old)
        assert "Codex" in (result.reason or "")
    assert surgeon.extract(codex.name).status is Status.EXTRACTED


def test_codex_cannot_open_a_thread_while_it_is_changed(codex: Home, clock: Clock) -> None:
    lock_of(codex).touch()
    owner = owner_of(codex.layout, codex.name.agent)

    def lock() -> AbstractContextManager[object]:
        return owner.lock(codex.name.session) or nullcontext()

    with lock(), lock_of(codex, ".coordination.lock").open("a") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert owner.in_use(codex.name.session) is None
    with held(lock_of(codex, ".coordination.lock")), pytest.raises(Busy), lock():
        pass


def test_locks_that_are_not_as_they_are_known_keep_bsd_out(codex: Home, clock: Clock) -> None:
    lock_of(codex, ".coordination.lock").unlink()
    result = make_surgeon(codex.layout, clock, wait=0.0).extract(codex.name)
    assert result.status is Status.BUSY
    assert not lock_of(codex, ".coordination.lock").exists()


def test_an_older_codex_that_holds_the_file_open_keeps_it(tmp_path: Path, clock: Clock) -> None:
    home = Home.of(CODEX, tmp_path, codex_lines())
    if strength(home.path.parent).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    surgeon = make_surgeon(home.layout, clock, wait=0.0)
    with home.path.open("ab") as file:
        assert surgeon.extract(home.name).status is Status.BUSY
        file.write(b"x\n")
    set_at_rest(home.path)
    assert surgeon.extract(home.name).status is Status.EXTRACTED
    assert home.path.read_bytes().endswith(b"\nx\n")


@pytest.mark.parametrize(
    "meta",
    [{"history_mode": "paginated"}, {"history_mode": "new"}, {"history_base": {"end": 5}}],
)
def test_threads_that_codex_knows_by_byte_offsets_are_refused(
    tmp_path: Path, clock: Clock, meta: dict[str, Any]
) -> None:
    home = Home.of(CODEX, tmp_path, [codex_meta(**meta), *codex_lines()[1:]])
    result = make_surgeon(home.layout, clock).extract(home.name)
    assert result.status is Status.LEFT_ALONE
    assert "paginated" in (result.reason or "")


# --- any placement ---

pieces = st.sampled_from(["", "short", LONG, "\u2028 \U0001f600 é " * 40, "[[extracted-x]] " * 50])
members = st.recursive(
    pieces | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "type", "signature", "b c", "content"]), inner)
    ),
    max_leaves=6,
)


@st.composite
def odd_lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A session in which values stand anywhere, in forms nobody has seen."""
    lines = [claude_code_line(0, "user", "begin")]
    for number in range(1, draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["user", "assistant"]))
        block = draw(st.sampled_from(["text", "tool_use", "tool_result", "image", "unknown"]))
        content: Any = [
            {"type": block, "text": draw(pieces), "input": draw(members), "id": f"i{number}"}
            | {"content": draw(members), "source": draw(members), "tool_use_id": f"i{number}"}
        ]
        more = {"toolUseResult": draw(members)} if draw(st.booleans()) else {}
        lines.append(claude_code_line(number, kind, draw(st.just(content) | pieces), **more))
    return [*lines, *claude_code_turn_at(len(lines))]


def claude_code_turn_at(first: int) -> list[dict[str, Any]]:
    answer = [{"type": "text", "text": "done"}]
    return [
        claude_code_line(first, "user", "more"),
        claude_code_line(first + 1, "assistant", answer, stop_reason="end_turn"),
    ]


@st.composite
def odd_rollouts(draw: st.DrawFn) -> list[dict[str, Any]]:
    lines = [codex_meta()]
    for number in range(1, draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["response_item", "event_msg", "turn_context", "compacted"]))
        what = draw(
            st.sampled_from(
                [
                    *("function_call_output", "custom_tool_call_output", "function_call"),
                    *("exec_command_end", "item_completed", "message", "mcp_tool_call_end"),
                ]
            )
        )
        payload = {key: draw(members) for key in ("output", "stdout", "item", "result", "content")}
        lines.append(codex_line(number, kind, type=what, call_id=f"c{number}", **payload))
    return [*lines, codex_line(90, "event_msg", type="task_complete")]


odd_sessions = st.tuples(st.just(CLAUDE_CODE), odd_lines()) | st.tuples(
    st.just(CODEX), odd_rollouts()
)


@given(odd_sessions, st.sampled_from([0, 1, 40, 500]), st.sampled_from([0, 10]))
@settings(max_examples=16)
def test_whatever_stands_anywhere_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    session: tuple[Kind, list[dict[str, Any]]],
    shortest: int,
    kept: int,
) -> None:
    home = Home.of(session[0], tmp_path_factory.mktemp("odd"), session[1])
    surgeon = make_surgeon(home.layout, Clock())
    old = home.path.read_bytes()
    wish = EVERYTHING | {"min_value_length": shortest, "keep_chars": kept}
    result = surgeon.extract(home.name, overrides=wish)
    assert result.status in (Status.EXTRACTED, Status.UNCHANGED), result
    if not kept and result.values:
        assert away(old, home.path.read_bytes()) == result.values
    surgeon.restore_all(home.name)
    assert without_restored(home.path.read_bytes()) == old
