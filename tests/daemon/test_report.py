"""What the daemon says of itself: the same to whoever wants JSON and to whoever wants objects."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bsd.sample import session_lines
from tests.daemon.fast_forward import Clock, machine
from tests.daemon.running import configure
from tests.openclaw_tree import add_session, set_at_rest

pytestmark = pytest.mark.daemon


@pytest.mark.parametrize("name", [b"root", b"r\xff\xfet"])
def test_a_status_is_the_same_in_both_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    root = tmp_path / os.fsdecode(name)
    try:
        root.mkdir()
    except OSError:  # macOS
        pytest.skip("names of files are UTF-8 here")
    for number in range(3):
        path = add_session(root, f"main/s{number}", b"".join(session_lines(turns=2, seed=number)))
        set_at_rest(path)
    configure(root)
    with machine(root, Clock(time.time()), monkeypatch) as running:
        before = running.daemon.status()
        assert len(before["sessions"]) == 3
        assert before["root"] == str(root)
        assert json.loads(running.daemon.status_json()) == before
        running.daemon._parts.ledger.count("crashes")
        (root / "agents" / "main" / "sessions" / "s1.jsonl").unlink()
        running.daemon.run_job("scan")
        after = running.daemon.status()
        assert after["totals"]["crashes"] == 1
        assert [each["session"] for each in after["sessions"]] == [
            each["session"] for each in before["sessions"] if each["session"] != "main/s1"
        ]
        assert json.loads(running.daemon.status_json()) == after
