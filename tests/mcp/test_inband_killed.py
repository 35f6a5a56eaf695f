"""Killed at any moment, a call is carried out exactly once all the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from tests.actions.performed import history_of
from tests.mcp.conftest import LONG, NAME, Agent, Desk
from tests.needs import require_linux
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.crash

EVERY = int(os.environ.get("BSD_KILL_EVERY", "7"))  # all of them take ten seconds
NOISE = "BEGIN OF LOG " + "noise " * 40 + "END OF LOG"
# A second replacement would be visible: it would contain the first.
NESTED = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": f"<{NOISE}>"}
_TIMES = re.compile(rb'"(_restored|at)":"[^"]*"')


def plain(session: bytes) -> bytes:
    return _TIMES.sub(b"", session)


def prepare(root: Path, *, kept: bool) -> None:
    """A session with calls of all kinds that are due."""
    desk = Desk(Layout(root))
    desk.path.parent.mkdir(parents=True)
    desk.settings(keep_restore_remote_calls=kept, keep_purge_control_calls=kept)
    agent = Agent(desk)
    old = agent.past()
    desk.look()
    agent.user("again")
    agent.calls(
        ("c1", "restore_remote", {"entry": old}),
        ("c2", "purge_control", {"action": "set_extractable", "entry": old, "value": 7}),
    )
    agent.result("c1", "restore_remote", "?")
    agent.result("c2", "purge_control", "?")
    agent.calls(("c3", "read", {"path": "log"}))
    agent.result("c3", "read", NOISE)
    agent.calls(("c4", "context", {"action": "replace", "targets": [NESTED]}))
    agent.result("c4", "context", "?")
    agent.says("done")
    assert LONG.encode() not in desk.path.read_bytes()


@pytest.mark.parametrize(("kept", "every"), [(False, EVERY), (True, 2 * EVERY)])
def test_killed_at_its_disk_calls(tmp_path: Path, kept: bool, every: int) -> None:
    require_linux()
    prepare(tmp_path / "0", kept=kept)
    shutil.copytree(tmp_path / "0", tmp_path / "whole", copy_function=shutil.copy2)
    whole = Desk(Layout(tmp_path / "whole"))
    assert whole.look()
    expected = plain(whole.path.read_bytes())
    assert b'"<BEGIN OF LOG' in expected
    assert b"<<BEGIN" not in expected
    killed = subprocess.run(
        [sys.executable, "-m", "tests.mcp.killed_calls", str(tmp_path), str(every)],
        check=True,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        cwd=Path(__file__).parents[3],
    ).stdout.split()
    assert len(killed) > 1
    for number in killed:
        desk = Desk(Layout(tmp_path / number.decode()))
        desk.rest()
        desk.caller().recover()
        for _ in range(2):
            desk.look()
            desk.rest()
        assert plain(desk.path.read_bytes()) == expected, number
        history = history_of(desk.caller().layout, NAME)
        assert [one.action for one in history if one.state == "done"] == [
            "in_band",
            "extract",
        ], number
        assert not desk.look(), number
