"""Every interface gives the same facts about a session's extracted values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, rest
from tests.daemon.running import configure, running
from tests.http.api import over_socket
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample
from tests.waiting import wait_for


def listed(bsd: Call) -> dict[str, Any]:
    document = bsd("--json", "sessions").document
    (found,) = [one for one in document["sessions"] if one["session"] == "main/alpha"]
    return dict(found)


@pytest.mark.parametrize("is_read", [False, True], ids=["not-indexed", "indexed"])
def test_after_restore_all_nothing_is_out(bsd: Call, root: Path, *, is_read: bool) -> None:
    path = root / "agents/main/sessions/alpha.jsonl"
    rest(root)
    before = path.stat().st_size
    assert bsd("extract", "main/alpha").code == 0
    if is_read:
        bsd("search", "anything")
    found = listed(bsd)
    assert found["extracted_entries"] == path.read_bytes().count(b'"_extracted":{"ref"')
    assert found["extracted_bytes"] > before - path.stat().st_size > 0
    if is_read:
        assert found["saved_bytes"] == before - path.stat().st_size
    assert "extracted, in store or archive" in bsd("sessions").out
    rest(root)
    assert bsd("restore-all", "--yes").code == 0
    found = listed(bsd)
    assert (found["extracted_entries"], found["extracted_bytes"]) == (0, 0)
    assert not found.get("saved_bytes")
    assert "extracted, in store" not in bsd("sessions").out


def test_what_was_packed_is_said_to_be_out_too(bsd: Call, root: Path) -> None:
    rest(root)
    assert bsd("extract", "main/alpha").code == 0
    before = listed(bsd)
    for file in (root / "extracted").rglob("*.json"):
        set_idle(file, 25 * 3600)
    assert bsd("retention").code == 0
    after = listed(bsd)
    assert {**after, "updated": 0} == {**before, "updated": 0}


@pytest.mark.daemon
def test_a_daemon_tells_of_all_that_is_in_the_trash_and_of_jobs_that_ran(tmp_path: Path) -> None:
    root = tmp_path / "root"
    path = add_session(root, "main/sample", sample(12, 1))
    add_session(root, "main/gone", sample(2, 2))
    configure(root, enabled=True, trash_retention="never")
    size = path.stat().st_size
    with running(root, tmp_path) as daemon:
        wait_for(lambda: path.stat().st_size < size)
        assert over_socket(daemon.socket, "/api/sessions/main/gone", "DELETE")[0] == 200

        def is_told() -> bool:
            return bool(daemon.status()["retention"]["trash"]["all_sessions"] == 1)

        wait_for(is_told)
        trash = daemon.status()["retention"]["trash"]
        assert trash["sessions"] == 0, "nothing of it is due"
        assert trash["all_bytes"] > 0
        told = daemon.bsd("status").stdout
        assert "trash      1 session (" in told
        assert "tokens of text" in told

        def have_run() -> set[str]:
            return {one["name"] for one in daemon.ask("jobs")["jobs"] if one["last_run"]}

        wait_for(lambda: have_run() >= {"index", "keep_sessions", "recover", "scan"})
        assert "never" not in daemon.bsd("jobs").stdout
        over_socket(daemon.socket, "/api/sessions/main/sample/restore-all", "POST")
        document = json.loads(daemon.bsd("--json", "sessions").stdout)
        (row,) = [one for one in document["sessions"] if one["session"] == "main/sample"]
        assert row["extracted_entries"] == path.read_bytes().count(b'"_extracted":{"ref"')
