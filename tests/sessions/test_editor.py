"""Requests of people and programs to the editor, and the files on the disk after each."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from bsd.core.audit import RESTORE_FAILED, AuditLog
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict, Forbidden, Invalid, NotFound, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.verify import verify
from bsd.planning.extract import plan_extraction
from bsd.planning.result import Status
from bsd.sessions import idle, session
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.store.originals import SessionStore
from bsd.store.state import StateDb
from bsd.transcripts.reader import ChangedWhileReading, Line, TranscriptFile
from tests.actions import performed
from tests.actions.performed import Caller
from tests.logs import capture_logs
from tests.openclaw_tree import set_idle
from tests.refusing import raising
from tests.session_files import HEADER, LONG, NAME, Clock, conversation, entry, make_caller, write

MISSING = "[Content unavailable - extracted file missing]"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def text_of(line: dict[str, object]) -> str:
    text: str = line["message"]["content"][0]["text"]  # type: ignore[index]
    return text


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_backlog_gives_way_between_two_commits(
    layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    path = write(layout, conversation(3))
    small = partial(plan_extraction, budget_bytes=1)
    monkeypatch.setattr("bsd.actions.extract.plan_extraction", small)
    asked: list[int] = []

    def others_wait() -> bool:
        asked.append(path.read_bytes().count(b"[[extracted-"))
        return goes_on

    result = caller.extract(NAME, goes_on=others_wait)
    assert result.status is Status.EXTRACTED
    assert result.unfinished is not goes_on
    assert asked == ([1, 2, 3][: len(asked)] if goes_on else [1])
    assert result.values == (3 if goes_on else 1)
    with Session(layout, NAME).lock(0.0):
        pass  # not held by any process


def test_old_results_leave_and_come_back(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    original = path.read_bytes()

    result = caller.extract(NAME)

    assert (result.status, result.entries, result.values) == (Status.EXTRACTED, 3, 3)
    assert result.bytes_before == len(original)
    assert result.bytes_after == path.stat().st_size < len(original)
    assert [text_of(line) for line in lines(path)[2:5]] == [
        f"[[extracted-e{n}]]" for n in (1, 2, 3)
    ]
    assert verify(layout).clean

    answer = performed.restore(caller, NAME, "e2")

    assert answer["restored"]
    assert answer["keys_restored"] == ["message.content[0].text"]
    assert text_of(lines(path)[3]) == f"2 {LONG}"
    assert text_of(lines(path)[2]) == "[[extracted-e1]]"

    idle = performed.restore_all(caller, NAME)

    assert (idle.status, idle.values) == (Status.RESTORED, 2)
    restored = lines(path)
    for line in restored:
        line.pop("_restored", None)
    assert restored == [json.loads(line) for line in original.splitlines()]
    assert verify(layout).clean


def test_a_second_extraction_changes_nothing(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    caller.extract(NAME)
    before = path.stat()
    result = caller.extract(NAME)
    assert result.status is Status.UNCHANGED
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_tells_what_the_run_does_and_touches_nothing(
    layout: Layout, caller: Caller
) -> None:
    path = write(layout, conversation())
    before = path.read_bytes(), path.stat()
    trial = performed.extraction(caller, NAME)
    assert (path.read_bytes(), path.stat()) == before
    assert not layout.extracted.exists()
    assert not layout.locks.exists()
    real = caller.extract(NAME)
    assert trial.dry_run
    for name in ("status", "entries", "values", "bytes_before", "bytes_after", "tokens_saved"):
        assert getattr(trial, name) == getattr(real, name)


def test_overrides_hold_for_one_call(layout: Layout, caller: Caller) -> None:
    write(layout, conversation())
    assert caller.extract(NAME, overrides={"min_value_length": 5000}).entries == 0
    assert caller.extract(NAME, overrides={"keep_recent": 6}).entries == 2
    with pytest.raises(Invalid) as error:
        caller.extract(NAME, overrides={"keep_recent": 101, "scope": "some"})
    assert {one.field for one in error.value.errors} == {"keep_recent", "scope"}


def test_a_restored_entry_stays_for_its_window_and_then_leaves_again_into_its_old_file(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    write(layout, conversation(1))
    caller.extract(NAME)
    files = sorted(path.name for path in layout.store_dir(NAME).iterdir())
    performed.restore(caller, NAME, "e1")
    assert caller.extract(NAME).reasons["recently_restored"] == 1
    clock.ahead += 700
    assert caller.extract(NAME).entries == 1
    assert sorted(path.name for path in layout.store_dir(NAME).iterdir()) == files
    again = performed.restore(caller, NAME, "e1")
    assert again["previous_restored_at"] < str(lines(layout.session_file(NAME))[2]["_restored"])
    assert "_extractable: false" in again["suggestion"]


def test_a_missing_file_is_said_and_the_line_stays_repairable(
    layout: Layout, caller: Caller
) -> None:
    path = write(layout, conversation(1))
    caller.extract(NAME)
    before = path.read_bytes()
    stored = next(layout.store_dir(NAME).glob("*_tool_result.json"))
    content = stored.read_bytes()
    stored.unlink()
    with capture_logs() as logs:
        answer = performed.restore(caller, NAME, "e1")
    assert answer["unavailable"] == {"message.content[0].text": MISSING}
    assert ("warn", "Missing extracted file for e1") in [(x["log_level"], x["event"]) for x in logs]
    assert path.read_bytes() == before
    assert [finding.kind for finding in verify(layout).findings] == ["missing_file", "index_stale"]

    stored.write_bytes(content)
    assert performed.restore(caller, NAME, "e1")["restored"]


def test_a_corrupted_file_is_an_error_in_log_and_audit(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation(1))
    caller.extract(NAME)
    before = path.read_bytes()
    stored = next(layout.store_dir(NAME).glob("*_tool_result.json"))
    stored.write_bytes(stored.read_bytes().replace(b"x", b"y"))
    with capture_logs() as logs:
        result = performed.restore_all(caller, NAME)
    assert list(result.unavailable) == ["e1 message.content[0].text"]
    assert ("error", f"Corrupted extracted file {stored}") in [
        (line["log_level"], line["event"]) for line in logs
    ]
    *_, failed, told = AuditLog(layout.audit_file).search(b"")
    assert (failed["action"], failed["entryId"], failed["why"]) == (RESTORE_FAILED, "e1", "corrupt")
    assert told["action"] == "corrupted_extracted_file"
    assert path.read_bytes() == before
    assert [finding.kind for finding in verify(layout).findings] == ["corrupt_file"]


def test_a_backup_mounted_read_only_can_be_verified(
    layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, conversation(1))
    caller.extract(NAME)
    shutil.rmtree(layout.locks)
    layout.locks.mkdir()
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    found = verify(layout)
    assert (found.clean, found.placeholders) == (True, 1)
    assert list(layout.locks.iterdir()) == [], "where no lock can be taken, none is needed"
    assert verify(layout, repair=True).clean
    assert list(layout.locks.iterdir()) != []


def test_an_extraction_that_fails_is_an_error_in_the_log(
    layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(layout, conversation(1))
    before = path.read_bytes()

    monkeypatch.setattr(SessionStore, "add", raising(Unavailable("no space left")))
    with capture_logs() as logs:
        result = caller.extract(NAME)
    assert (result.status, path.read_bytes()) == (Status.FAILED, before)
    [told] = [line for line in logs if line["event"].startswith("Extraction failed")]
    assert told == {
        "event": "Extraction failed for main/s1/e1, rolled back",
        "log_level": "error",
        "module": "extraction",
        "session": "main/s1",
        "entries": 1,
        "error": "no space left",
    }


def test_log_and_audit_name_what_was_done_and_by_whom(layout: Layout, caller: Caller) -> None:
    write(layout, conversation(1))
    with capture_logs() as logs:
        caller.extract(NAME)
        performed.restore(caller, NAME, "e1", ["text"])
    extracted = next(line for line in logs if line["event"] == "Extracted")
    size = len(f"1 {LONG}".encode())
    assert extracted == {
        "event": "Extracted",
        "log_level": "debug",
        "module": "extraction",
        "entry_id": "e1",
        "keys_extracted": ["message.content[0].text"],
        "sizes_bytes": {"message.content[0].text": size},
        "session": "main/s1",
    }
    restored = next(line for line in logs if line["event"] == "Restored")
    assert restored["keys_restored"] == ["message.content[0].text"]
    assert restored["sizes_bytes"] == {"message.content[0].text": size}
    assert any(line["event"].startswith("Entry 2: tool_result") for line in logs)
    assert "extract: main/s1, entries 1" in [line["event"] for line in logs]
    *_, extract, restore = AuditLog(layout.audit_file).search(b"")
    assert (extract["actor"], extract["action"], extract["agent"], extract["sessionId"]) == (
        "cli",
        "extract",
        "main",
        "s1",
    )
    assert (restore["action"], restore["entryId"], restore["values"]) == ("restore", "e1", 1)


def test_everything_bsd_makes_is_private(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    path.chmod(0o640)
    caller.extract(NAME)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    for top in (layout.own, layout.extracted):
        for found in [top, *top.rglob("*")]:
            if found.suffix == ".file":
                continue  # the displaced session keeps the session's own mode
            wanted = 0o700 if found.is_dir() else 0o600
            assert stat.S_IMODE(found.stat().st_mode) == wanted, found


def test_a_pinned_entry_stays_and_a_forced_one_leaves(layout: Layout, caller: Caller) -> None:
    write(layout, conversation(2))
    assert performed.set_extractable(caller, NAME, "e1", False)["previous"] is None
    assert performed.set_extractable(caller, NAME, "e0", True)["extractable"] is True
    result = caller.extract(NAME)
    assert result.reasons["pinned"] == 1
    assert [line["id"] for line in lines(layout.session_file(NAME)) if "_extracted" in line] == [
        "e0",
        "e2",
    ]
    assert performed.set_extractable(caller, NAME, "e1", None)["previous"] is False


# --- sessions in use --------------------------------------------------------------------------


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def held_by_init(path: Path) -> None:
    lock_of(path).write_text(json.dumps({"pid": 1, "createdAt": "2026-02-01T00:00:00Z"}))


def test_a_locked_session_is_waited_for_at_most_so_long(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation())
    before = path.read_bytes()
    held_by_init(path)
    result = caller.extract(NAME)
    assert (result.status, result.hint) == (Status.BUSY, "again later")
    assert 29 < sum(clock.slept) <= 30, "in all"
    assert clock.slept[:3] == [0.05, 0.1, 0.2]
    assert path.read_bytes() == before
    assert lock_of(path).exists()
    with pytest.raises(Busy):
        performed.set_extractable(make_caller(layout, clock, wait=0), NAME, "e1", True)


def test_a_lock_that_is_given_back_ends_the_waiting(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation())
    held_by_init(path)
    clock.meanwhile = lambda: lock_of(path).unlink(missing_ok=True)
    assert caller.extract(NAME).status is Status.EXTRACTED
    assert not lock_of(path).exists()


def test_a_running_session_is_left_alone(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    registry = path.with_name("sessions.json")
    registry.write_text(json.dumps({"agent:main:main": {"sessionId": "s1", "status": "running"}}))
    caller = make_caller(layout, clock, wait=0)
    result = caller.extract(NAME)
    assert result.status is Status.BUSY
    assert "is running" in (result.reason or "")
    registry.write_text(json.dumps({"agent:main:main": {"sessionId": "s1", "status": "done"}}))
    assert caller.extract(NAME).status is Status.EXTRACTED


def test_a_session_just_written_to_is_waited_for(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation())
    set_idle(path, 0.5)
    assert caller.extract(NAME).status is Status.EXTRACTED
    assert 1.0 < sum(clock.slept) < 2.0


def test_an_append_between_plan_and_commit_makes_it_plan_again(
    layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(layout, conversation())
    late = json.dumps(entry(99, "user", "one more thing")) + "\n"
    keep = SessionStore.add
    appended = False

    def keep_and_append(self: object, keeps: object, source: object) -> None:
        nonlocal appended
        keep(self, keeps, source)  # type: ignore[arg-type]
        if not appended:
            appended = True
            with path.open("a") as stream:
                stream.write(late)

    monkeypatch.setattr("bsd.store.originals.SessionStore.add", keep_and_append)
    result = caller.extract(NAME)
    assert result.status is Status.EXTRACTED
    assert path.read_text().endswith(late)
    assert len(list(layout.store_dir(NAME).glob("0*.json"))) == 3
    assert verify(layout).clean


# --- sessions of others -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"type":"session","id":"s"}\n{"type":"message","message":{}}\n', "version 1"),
        ('{"type":"user","uuid":"u","message":{"content":"hi"}}\n', "foreign"),
        ("not json at all\n", "no entries"),
        ("", "no entries"),
    ],
)
def test_other_transcripts_are_left_alone(
    layout: Layout, caller: Caller, content: str, why: str
) -> None:
    path = write(layout, [])
    path.write_text(content)
    set_idle(path)
    result = caller.extract(NAME)
    assert result.status is Status.LEFT_ALONE
    assert why in (result.reason or "")
    assert path.read_text() == content


def test_an_agent_that_moved_to_sqlite_is_left_alone(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    before = path.read_bytes()
    database = layout.agents / "main" / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE transcript_events(session_id, seq, event_json)")
    result = caller.extract(NAME)
    assert result.status is Status.LEFT_ALONE
    assert "openclaw-agent.sqlite" in (result.reason or "")
    assert path.read_bytes() == before


def test_links_out_of_the_root_are_refused(layout: Layout, caller: Caller, tmp_path: Path) -> None:
    outside = Layout(tmp_path / "outside")
    secret = write(outside, conversation())
    before = secret.read_bytes()
    (layout.agents / "evil").mkdir()
    (layout.agents / "evil" / "sessions").symlink_to(secret.parent)
    (layout.agents / "main" / "sessions" / "link.jsonl").symlink_to(secret)
    with pytest.raises(Forbidden, match="leads out of"):
        caller.extract(SessionName("evil", "s1"))
    with pytest.raises(Forbidden, match="not a regular file"):
        caller.extract(SessionName("main", "link"))
    assert secret.read_bytes() == before


def test_unknown_sessions_entries_and_keys_are_errors(layout: Layout, caller: Caller) -> None:
    write(layout, conversation(1))
    with pytest.raises(NotFound):
        caller.extract(SessionName("main", "other"))
    with pytest.raises(NotFound, match="Entry not found in session"):
        performed.restore(caller, NAME, "nope")
    with pytest.raises(Conflict, match="has no extracted content"):
        performed.restore(caller, NAME, "e1")
    caller.extract(NAME)
    with pytest.raises(Invalid, match="output"):
        performed.restore(caller, NAME, "e1", ["output"])


def test_two_agents_whose_names_run_together_keep_apart(layout: Layout, caller: Caller) -> None:
    one, other = SessionName("a_b", "c"), SessionName("a", "b_c")
    for name in (one, other):
        write(layout, conversation(1), name)
        caller.extract(name)
    assert layout.store_dir(one) != layout.store_dir(other)
    assert len(list(layout.extracted.glob("[!.]*"))) == 2


# --- real transcripts -------------------------------------------------------------------------


def real_sessions(layout: Layout, shared_data: Path) -> dict[SessionName, bytes]:
    originals = {}
    for source in sorted(shared_data.glob("*.jsonl")):
        name = SessionName("main", source.stem)
        path = layout.agents / "main" / "sessions" / source.name
        path.write_bytes(source.read_bytes())
        set_idle(path)
        originals[name] = source.read_bytes()
    return originals


def without_restored(content: bytes) -> bytes:
    """Strip the member that a restoration adds, always the last in its line."""
    kept = []
    for line in content.split(b"\n"):
        at = line.rfind(b',"_restored":"')
        kept.append(line[:at] + b"}" if at >= 0 else line)
    return b"\n".join(kept)


def test_real_transcripts_come_back_byte_for_byte(
    layout: Layout, caller: Caller, shared_data: Path
) -> None:
    originals = real_sessions(layout, shared_data)
    everything = {"trigger_types": ["thinking", "tool_call", "tool_result", "assistant", "user"]}
    touched = 0
    for name in originals:
        touched += caller.extract(name, overrides=everything).entries
        assert caller.extract(name, overrides=everything).entries == 0
    assert touched > 500
    assert verify(layout).clean
    for name, original in originals.items():
        performed.restore_all(caller, name)
        assert without_restored(layout.session_file(name).read_bytes()) == original
        performed.restore_all(caller, name, leaving=True)
        assert layout.session_file(name).read_bytes() == original
    assert verify(layout).clean


def test_a_long_real_session_shrinks_by_half(
    layout: Layout, caller: Caller, shared_data: Path
) -> None:
    real_sessions(layout, shared_data)
    result = caller.extract(
        SessionName("main", "openclaw-v3-long"),
        overrides={
            "keep_recent": 3,
            "min_value_length": 500,
            "trigger_types": ["thinking", "tool_call", "tool_result"],
        },
    )
    assert result.bytes_after <= result.bytes_before / 2


def test_the_header_is_never_edited(layout: Layout, caller: Caller) -> None:
    long_header = HEADER | {"content": LONG, "_extractable": True}
    path = write(layout, [long_header, *conversation()[1:]])
    caller.extract(NAME)
    assert lines(path)[0] == long_header


# --- from one extraction to the next ----------------------------------------------------------


def test_with_a_state_only_what_is_new_is_judged_again(layout: Layout, clock: Clock) -> None:
    budget = RetryBudget(clock=clock.now, sleep=clock.sleep)
    caller = Caller(
        layout=layout,
        config=ConfigService(layout.config_file),
        budget=budget,
        state=StateDb(layout.state_db),
    )
    path = write(layout, conversation(50))
    assert sum(caller.extract(NAME).reasons.values()) == 56
    with path.open("a") as stream:
        for number in range(90, 96):
            result = entry(number, "toolResult", LONG)
            stream.write(
                json.dumps(result) + "\n" + json.dumps(entry(-number, "assistant", "ok")) + "\n"
            )
    again = caller.extract(NAME)
    assert again.entries == 5
    assert sum(again.reasons.values()) < 20
    restored = performed.restore(caller, NAME, "e3")
    assert restored["restored"]
    assert caller.extract(NAME).reasons["recently_restored"] == 1
    assert verify(layout).clean


def test_a_late_line_comes_back_before_the_next_commit(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation(2))
    caller.extract(NAME)
    (displaced,) = layout.inflight.glob("*.file")
    with displaced.open("a") as stream:  # a writer had opened it before the exchange
        stream.write(json.dumps(entry(50, "toolResult", "first")) + "\n")
    with path.open("a") as stream:
        stream.write(json.dumps(entry(51, "toolResult", f"second {LONG}")) + "\n")
        stream.writelines(json.dumps(entry(n, "assistant", "ok")) + "\n" for n in range(60, 65))
    result = caller.extract(NAME)
    assert result.entries == 1
    ids = [line["id"] for line in lines(path)]
    assert ids.count("e50") == 1
    assert ids.index("e50") < ids.index("e51")
    assert verify(layout).clean


def test_what_a_crash_kept_before_its_commit_is_used(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation(1))
    original = path.read_bytes().splitlines(keepends=True)[2]
    store = layout.store_dir(NAME)
    store.mkdir(parents=True, mode=0o700)
    kept = store / "0002_tool_result.json"
    kept.write_bytes(original)
    kept.chmod(0o600)
    assert caller.extract(NAME).entries == 1
    assert [file.name for file in store.glob("0*")] == [kept.name]
    assert verify(layout).clean


def test_a_session_that_cannot_be_read_is_not_held_open(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, conversation())
    opened: list[TranscriptFile] = []

    class Shrinking(TranscriptFile):
        def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
            opened.append(self)
            raise ChangedWhileReading("it is shorter than before")

    monkeypatch.setattr(session, "open_file", Shrinking)
    for open_it in (Session(layout, NAME).open, Session(layout, NAME).open_to_read):
        with pytest.raises(ChangedWhileReading):
            open_it()
    assert [one._fd for one in opened] == [-1, -1]


@pytest.mark.parametrize("moment", ["rest.strength", "rest.in_use", "session.open_file"])
def test_a_directory_that_goes_meanwhile_takes_the_session_along(
    layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = write(layout, conversation())
    module, function = moment.split(".")
    where = {"rest": idle, "session": session}[module]
    go_on = getattr(where, function)

    def away(*arguments: object) -> object:
        path.parent.rename(f"{path.parent}.away")
        return go_on(*arguments)

    monkeypatch.setattr(where, function, away)
    result = caller.extract(NAME)
    assert (result.status, result.error) == (Status.FAILED, NotFound)
    assert Path(f"{path.parent}.away", path.name).exists()
    assert not path.parent.exists()
