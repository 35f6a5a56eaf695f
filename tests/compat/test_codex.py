"""Changes of the real Codex in its threads' files, and the extracted values afterwards.

This file checks facts about the program's own files; tests/sessions checks bsd on generated files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone
from bsd.core.layout import SessionName
from bsd.maintenance import catalog
from bsd.maintenance.bring_back import bring_back
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.programs import program_of
from tests.actions import performed
from tests.actions.performed import Caller
from tests.compat.codex import Codex
from tests.compat.provider import provider
from tests.openclaw_tree import set_idle
from tests.pictures import PNG
from tests.transcripts.agents.sources.tree import EVERYTHING, away, without_restored
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.compat

MARKED = b'"_extracted"'
AWAY = b"[[extracted-"
_LONG_AGO_SECONDS = 60 * 86400.0


@pytest.fixture
def codex(codex_program: str, tmp_path: Path) -> Iterator[Codex]:
    with provider() as made:
        yield Codex.at(codex_program, tmp_path, made)


def caller(codex: Codex) -> Caller:
    return Caller(layout=codex.layout, config=ConfigService(codex.layout.config_file))


def extracted(codex: Codex) -> tuple[str, bytes, SessionName]:
    """A thread with extracted values, its original content, and its name."""
    thread = codex.legacy_thread()
    old, name = codex.file(thread).read_bytes(), codex.name(thread)
    assert caller(codex).extract(name, overrides=EVERYTHING).status is Status.EXTRACTED
    assert away(old, codex.file(thread).read_bytes()) >= 6
    return thread, old, name


def lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def listed(codex: Codex) -> dict[SessionName, str | None]:
    return {info.name: info.status for info in catalog.sessions(codex.layout)}


def test_archived_taken_back_and_resumed(codex: Codex) -> None:
    thread, old, name = extracted(codex)
    path = codex.file(thread)
    taken, before = path.read_bytes(), path.stat()
    codex.run("archive", thread)
    archived = codex.home / "archived_sessions" / path.name
    assert codex.file(thread) == archived
    now = archived.stat()
    assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert listed(codex) == {name: "archived"}
    found = verify(codex.layout)
    assert (found.clean, found.findings) == (True, [])
    assert found.placeholders >= 6

    with codex.server() as server:
        for refused in ("thread/resume", "thread/fork"):
            answer = server.ask(refused, threadId=thread)
            assert "archived" in answer["error"]["message"], refused
    assert archived.read_bytes() == taken

    codex.rest()
    assert performed.restore_all(caller(codex), name).status is Status.RESTORED
    assert without_restored(archived.read_bytes()) == old
    codex.rest()
    again = caller(codex).extract(name, overrides=EVERYTHING | {"keep_after_restore_seconds": 0})
    assert again.status is Status.EXTRACTED
    codex.run("unarchive", thread)
    assert codex.file(thread) == path
    assert listed(codex) == {name: None}
    codex.rest()
    performed.restore_all(caller(codex), name)
    with codex.server() as server:
        server.call("thread/resume", threadId=thread)
        server.turn(thread, "go on")
    results = [
        item["output"]
        for item in codex.provider.requests[-1]["input"]
        if item.get("type") == "function_call_output"
    ]
    assert len(results) == 5
    assert all("\n899\n900" in str(output) for output in results)
    assert without_restored(path.read_bytes()).startswith(old)


_NAMES = re.compile(r"(?:[a-z]+_)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|(?:call|fc|rs|msg)_[0-9]+")


def test_values_that_are_never_sent_leave_and_requests_stay_the_same(codex: Codex) -> None:
    """Pictures in events, and the histories of all compactions but the newest two."""
    picture = "data:image/png;base64," + PNG
    with codex.server() as server:
        thread = server.call("thread/start", historyMode="legacy")["thread"]["id"]
        server.turn(thread, "look " * 200, picture)
        for number in range(3):
            server.turn(thread, f"please count {number}")
            server.call("thread/compact/start", threadId=thread)
            server.completed()
        server.turn(thread, "after the compactions")
    with codex.file(thread).open("ab") as file:  # as earlier versions write it
        image = {"type": "image_generation_end", "call_id": "i", "result": PNG}
        line = {"timestamp": "2026-11-20T08:00:00.000Z", "type": "event_msg", "payload": image}
        file.write(json.dumps(line).encode() + b"\n")
    codex.rest()
    old, before = codex.file(thread).read_bytes(), codex.top / "before"
    shutil.copytree(codex.home, before)

    def resumed() -> str:
        with codex.server() as server:
            server.call("thread/resume", threadId=thread)
            server.turn(thread, "go on")
        return _NAMES.sub("", json.dumps(codex.provider.requests[-2]["input"]))

    sent = resumed()
    shutil.rmtree(codex.home)
    before.rename(codex.home)
    codex.rest()
    only_shown = EVERYTHING | {"scope": "display"}
    assert caller(codex).extract(codex.name(thread), overrides=only_shown).status is (
        Status.EXTRACTED
    )
    lean = codex.file(thread).read_bytes()
    gone = {path for line in lines(lean) for path in line.get("_extracted", {}).get("keys", ())}
    assert {"payload.images[0]", "payload.result"} <= gone
    assert any(path.startswith("payload.replacement_history") for path in gone)
    assert [b"_extracted" in line for line in lean.splitlines() if b'"compacted"' in line] == [
        True,
        False,
        False,
    ]
    assert resumed() == sent
    now = codex.file(thread).read_bytes()
    assert now.startswith(lean)
    codex.rest()
    assert performed.restore_all(caller(codex), codex.name(thread)).status is Status.RESTORED
    assert without_restored(codex.file(thread).read_bytes()) == old + now[len(lean) :]


def test_a_thread_is_not_moved_while_bsd_changes_it(codex: Codex) -> None:
    thread = codex.legacy_thread(turns=1)
    path, name = codex.file(thread), codex.name(thread)
    lock = program_of(codex.layout, name.agent).lock(name, codex.layout.transcript(name))
    common = codex.home / "thread-writer-locks" / ".coordination.lock"
    with lock:
        process = codex.start("archive", thread)
        wait_for(lambda: _has_open(process.pid, common), "Codex, which waits for the lock then")
        assert codex.file(thread) == path
    assert process.wait(DEADLINE_SECONDS) == 0
    assert codex.file(thread).parent.name == "archived_sessions"


def _has_open(pid: int, path: Path) -> bool:
    try:
        found = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    except OSError:
        return False
    return str(path) in found


def test_a_compacted_thread_is_only_appended_to(codex: Codex) -> None:
    thread, old, name = extracted(codex)
    taken = codex.file(thread).read_bytes()
    with codex.server() as server:
        server.call("thread/resume", threadId=thread)
        server.call("thread/compact/start", threadId=thread)
        server.completed()
    now = codex.file(thread).read_bytes()
    assert now.startswith(taken)
    assert b'"compacted"' in now[len(taken) :]
    codex.rest()
    assert performed.restore_all(caller(codex), name).status is Status.RESTORED
    assert without_restored(codex.file(thread).read_bytes()) == old + now[len(taken) :]


def test_a_fork_copies_placeholders_and_no_markers(codex: Codex) -> None:
    thread, _, name = extracted(codex)
    taken = codex.file(thread).read_bytes()
    with codex.server() as server:
        fork = server.call("thread/fork", threadId=thread)["thread"]["id"]
    copied = codex.file(fork).read_bytes()
    head, *rest = lines(copied)
    assert head["payload"]["forked_from_id"] == thread
    parents = lines(taken)
    assert [line["payload"] for line in rest[: len(parents)]] == [
        line["payload"] for line in parents
    ]
    assert all("_extracted" not in line for line in rest)
    assert copied.count(AWAY) == taken.count(AWAY)
    # Times are those of the fork, so values named by their time have another name there.
    assert rest[1]["timestamp"] != parents[1]["timestamp"]
    assert set(listed(codex)) == {name, codex.name(fork)}


@pytest.mark.parametrize("parent", ["there", "deleted"])
def test_a_fork_gets_everything_back(codex: Codex, parent: str) -> None:
    thread, old, name = extracted(codex)
    with codex.server() as server:
        fork = server.call("thread/fork", threadId=thread)["thread"]["id"]
    if parent == "deleted":
        codex.run("delete", "--force", thread)
        [store] = stores_without_transcript(codex.layout)
        assert store.session == name
        assert store.where == (f"the same conversation continues in {codex.name(fork)}",)
    codex.rest()
    found = verify(codex.layout)
    assert (found.placeholders, found.unmarked) == ((8, 8) if parent == "deleted" else (16, 8))
    assert performed.restore_all(caller(codex), codex.name(fork)).status is Status.RESTORED
    now = codex.file(fork).read_bytes()
    assert AWAY not in now
    parents = [line["payload"] for line in lines(old)]
    assert [line["payload"] for line in lines(now)[1 : len(parents) + 1]] == parents


def test_a_migrated_thread_keeps_placeholders_without_room_for_values(codex: Codex) -> None:
    thread, old, name = extracted(codex)
    taken = codex.file(thread).read_bytes()
    codex.run("migrate-rollouts", "--apply")
    now = codex.file(thread).read_bytes()
    assert now.count(AWAY) >= taken.count(AWAY) >= 6
    assert MARKED not in now
    assert lines(now)[0]["payload"]["history_mode"] == "paginated"
    assert listed(codex) == {name: None}
    codex.rest()
    assert caller(codex).extract(name).status is Status.UNCHANGED
    result = performed.restore_all(caller(codex), name)
    assert len(result.unavailable) == now.count(AWAY)
    assert all("--to FILE" in why for why in result.unavailable.values())
    assert codex.file(thread).read_bytes() == now
    found = verify(codex.layout)
    assert found.placeholders == now.count(AWAY)
    assert [each for each in found.findings if each.is_open] == []
    # All extracted values can be read, whether or not their original line still exists.
    texts = {value.text for line in lines(old) for value in CODEX.values(line)}
    there = [line for line in lines(now) if AWAY.decode() in json.dumps(line)]
    for line in there:
        entry = CODEX.info(line).id
        assert entry is not None
        content = performed.extracted_content(caller(codex), name, entry)["content"]
        assert set(content.values()) <= texts
        assert content


@pytest.mark.parametrize("archived", [False, True], ids=["in its place", "archived"])
def test_a_compressed_thread_is_read_copied_and_brought_back(
    codex: Codex, *, archived: bool
) -> None:
    thread, old, name = extracted(codex)
    if archived:
        codex.run("archive", thread)
    path = codex.file(thread)
    taken = path.read_bytes()
    set_idle(path, _LONG_AGO_SECONDS)
    packed = path.with_name(f"{path.name}.zst")
    with codex.server() as server:
        server.call("rollout/compress")
        wait_for(lambda: packed.exists() and not path.exists(), "the packed file")
    assert listed(codex) == {name: "archived" if archived else None}
    found = verify(codex.layout)
    assert (found.clean, found.findings, found.placeholders) == (True, [], taken.count(AWAY))
    with caller(codex).reader(name) as opened:
        assert opened.transcript.read(0, opened.transcript.size) == taken
        assert opened.transcript.identity.size == packed.stat().st_size < len(taken)
        assert "compressed" in (opened.left_alone or "")
    result = performed.restore_all(caller(codex), name)
    assert result.status is Status.LEFT_ALONE
    assert "compressed" in (result.reason or "")
    codex.rest()
    copied = take_snapshots(codex.layout, "30d", RetryBudget(), scope=SnapshotScope(at_once=True))
    assert copied.sessions == 1
    with pytest.raises(LeftAlone):
        Trash(codex.layout, "14d").delete(name, permanent=True)
    packed.unlink()
    assert bring_back(codex.layout, find_deleted(codex.layout, str(name))).files == 1
    if archived:
        codex.run("unarchive", thread)
    with codex.server() as server:
        server.call("thread/resume", threadId=thread)
    assert without_restored(codex.file(thread).read_bytes()) == old


def test_a_deleted_thread_leaves_a_store_that_is_named_and_can_go(codex: Codex) -> None:
    thread, _, name = extracted(codex)
    codex.run("delete", "--force", thread)
    assert codex.files() == {}
    assert [store.session for store in stores_without_transcript(codex.layout)] == [name]
    assert verify(codex.layout).clean
    Trash(codex.layout, "14d").delete(name, permanent=True)
    assert list(stores_without_transcript(codex.layout)) == []
