"""`bsd top` and the first lines of `bsd run`: their text, and on which terminals they appear."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.cells import cell_len

from bsd.cli.client import Client, NotRunning
from bsd.cli.run_start import start_lines
from bsd.cli.top import TopView, sessions_in_use
from bsd.core.config import PruningConfig
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.core.settings import HttpAddress
from bsd.daemon.service import Daemon
from tests.cli.conftest import Call
from tests.http.fake_daemon import sample_status
from tests.openclaw_tree import set_idle


class Answers:
    """A client whose daemon stops in the end."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.left = list(documents)

    def get(self, _path: str) -> dict[str, Any]:
        if not self.left:
            raise NotRunning("the daemon is not running", hint="`bsd run` starts it")
        return self.left.pop(0)


class Scanned:
    """A result of a scan: three sessions, the third left for later."""

    left = 1

    def __len__(self) -> int:
        return 3


def status() -> dict[str, Any]:
    changed = {
        "session": "main/alpha",
        "status": "extracted",
        "values": 4,
        "bytes_saved": 4096,
        "reason": None,
        "at": "2026-11-26T12:00:00.000Z",
    }
    return {**sample_status(), "pid": os.getpid(), "children": [], "sessions": [changed]}


def test_it_needs_a_terminal_and_a_daemon(bsd: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = bsd("top")
    assert (refused.code, "Try: `bsd status --json`" in refused.err) == (2, True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert bsd("--json", "top").code == 2
    assert bsd("top").code == 3


def test_the_screen_fits_and_says_when_the_daemon_has_stopped(root: Path) -> None:
    os.utime(root / "agents/main/sessions/alpha.jsonl")
    view = TopView(Layout(root))
    client = cast("Client", Answers(status()))
    view.look(client)
    for width, height in ((60, 24), (160, 50), (60, 12)):
        lines = view.lines(1_795_700_000.0, width, height)
        assert len(lines) <= height
        assert lines[-1] == "q leaves"
        tables = lines[lines.index("") :]
        assert max(map(cell_len, tables)) <= width
    text = "\n".join(lines for lines in view.lines(1_795_700_000.0, 160, 50))
    assert f"process {os.getpid()}: " in text
    assert "LAST CHANGES" in text
    assert "4.0 KB" in text
    view.look(client)
    assert view.lines(1_795_700_000.0, 80, 24)[0].startswith("the daemon is not running")


def test_what_bsd_itself_has_written_is_no_use(root: Path) -> None:
    os.utime(root / "agents/main/sessions/alpha.jsonl")
    os.utime(root / "agents/main/sessions/beta.jsonl")
    changed = status()
    changed["sessions"][0]["at"] = iso_utc(time.time())
    view = TopView(Layout(root))
    view.look(cast("Client", Answers(changed)))
    used = {str(each.name) for each in view.sessions}
    assert ("main/alpha" in used, "main/beta" in used) == (False, True)


def test_sessions_in_use_are_those_just_written_to(root: Path) -> None:
    now = 1_800_000_000.0
    for number, path in enumerate(sorted(root.glob("agents/*/sessions/*.jsonl"))):
        set_idle(path)
        os.utime(path, (now - 100 * number, now - 100 * number))
    found = [str(each.name) for each in sessions_in_use(Layout(root), now)]
    assert found == ["main/alpha", "main/beta"]


@pytest.mark.parametrize(
    ("address", "page"),
    [
        (HttpAddress("0.0.0.0", 8000), "http://127.0.0.1:8000/"),
        (HttpAddress("::1", 8001), "http://[::1]:8001/"),
        (None, "`bsd run --http 127.0.0.1:8000` serves it"),
    ],
)
def test_the_start_of_a_daemon_is_five_lines_that_end_with_the_page(
    root: Path, address: HttpAddress | None, page: str
) -> None:
    counts = SimpleNamespace(ready=2, working=0, waiting=0)
    state = SimpleNamespace(
        layout=Layout(root),
        settings=SimpleNamespace(readonly=False),
        config=SimpleNamespace(current=PruningConfig()),
        queue=SimpleNamespace(counts=lambda: counts),
        scan=Scanned(),
    )
    scheduler = SimpleNamespace(next_run=lambda _: 1_795_703_600.0)
    daemon = cast("Daemon", SimpleNamespace(state=state, scheduler=scheduler))
    lines = list(start_lines(daemon, [address] if address else [], 1_795_700_000.0))
    assert len(lines) == 5
    assert lines[0].endswith(f"runs on {root}; Ctrl-C ends it")
    assert "3 sessions to check" in lines[2]
    assert lines[-1].split("page")[1].strip() == page
