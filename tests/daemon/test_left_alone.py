"""A real daemon leaves alone values that are recent or pinned, and sessions that are in use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.filesystem import strength
from bsd.core.layout import Layout, SessionName
from tests.actions import performed
from tests.actions.performed import Caller
from tests.daemon.running import configure, running
from tests.needs import require_linux
from tests.openclaw_tree import add_session, set_status
from tests.session_files import sample
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

PLACEHOLDER = b"[[extracted-"
RECENT = 3

_HOLD = "import sys; file = open(sys.argv[1], 'ab'); print(flush=True); sys.stdin.read()"


@pytest.fixture
def root(tmp_path: Path, root: Path) -> Path:
    require_linux()
    if strength(tmp_path).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    configure(root)
    return root


def is_extracted(path: Path) -> bool:
    return PLACEHOLDER in path.read_bytes()


def messages(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines() if line.startswith(b'{"type":"message"')]


def test_nothing_recent_or_pinned_is_touched(root: Path, tmp_path: Path) -> None:
    path = add_session(root, "main/pinned", sample(8, 1))
    entry = next(
        json.loads(line)["id"]
        for line in messages(sample(8, 1))
        if b'"role":"toolResult"' in line and len(line) > 4000
    )
    layout = Layout(root)
    caller = Caller(layout=layout, config=ConfigService(layout.config_file))
    performed.set_extractable(caller, SessionName("main", "pinned"), entry, False)
    pinned = path.read_bytes()
    with running(root, tmp_path) as daemon:
        wait_for(lambda: is_extracted(path), "the backlog to be extracted")
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
    before, after = messages(pinned), messages(path.read_bytes())
    assert after[-RECENT:] == before[-RECENT:]
    (kept,) = [line for line in after if entry.encode() in line.split(b",")[1]]
    assert kept in before
    assert b'"_extractable"' in kept
    assert sum(PLACEHOLDER in line for line in after) > 5


def test_what_another_program_has_open_waits_until_it_is_closed(root: Path, tmp_path: Path) -> None:
    held, free = (add_session(root, f"main/{name}", sample(8, 2)) for name in ("held", "free"))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        with running(root, tmp_path) as daemon:
            wait_for(lambda: is_extracted(free), "the other session to be extracted")
            wait_for(lambda: daemon.status()["totals"]["give_ups"].get("is_open"), "a try")
            assert held.read_bytes() == sample(8, 2)
            holder.communicate()
            wait_for(lambda: is_extracted(held), "it to be extracted when it is closed")


def test_a_session_in_a_run_waits_for_its_end(root: Path, tmp_path: Path) -> None:
    path = add_session(root, "main/busy", sample(8, 3))
    set_status(root, "main/busy", "running")
    with running(root, tmp_path) as daemon:
        wait_for(lambda: daemon.status()["totals"]["busy"], "a try")
        assert path.read_bytes() == sample(8, 3)
        set_status(root, "main/busy", "done")
        wait_for(lambda: is_extracted(path), "it to be extracted after the run")
