"""Lines that would take many times their size in memory, and how much memory each command uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.daemon.state import Ledger
from bsd.maintenance.doctor import examine
from bsd.maintenance.verify import verify
from bsd.planning.result import SessionResult, Status
from bsd.sessions.commit.late import is_json
from bsd.transcripts.agents.openclaw.registry import read_registry
from tests.actions import performed
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, make_caller, write

_MB = 1 << 20
_ALLOWED = 150 * _MB  # and three times the line

# Prints its peak memory itself: `getrusage` here would include the process that started it.
_MEASURED = """
import atexit, runpy, sys
def tell():
    with open("/proc/self/status") as status:
        print("PEAK", *(line for line in status if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(tell)
sys.argv[0] = "bsd"
runpy.run_module("bsd", run_name="__main__")
"""


def peak(*arguments: str) -> int:
    """The peak memory of a bsd process, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert "Traceback" not in done.stderr
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("PEAK"))
    return int(told.split()[2]) * 1024


def heavy(element: bytes, size: int) -> bytes:
    many = element * (size // len(element))
    return (
        b'{"type":"message","id":"heavy","parentId":"e1","message":{"role":"toolResult",'
        b'"content":[{"type":"text","text":"t"}],"details":[%b0]}}\n' % many
    )


def spoken(text: bytes) -> bytes:
    return (
        b'{"type":"message","id":"heavy","parentId":"e1","message":{"role":"toolResult",'
        b'"toolCallId":"c","toolName":"read","content":[{"type":"text","text":"%b"}]}}\n' % text
    )


def put_in(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    set_idle(path)


@pytest.mark.soak
@pytest.mark.parametrize(
    "line",
    [
        heavy(b"[],", 8 * _MB),
        heavy(b'{"a":"b"},', 8 * _MB),
        heavy(b"[],", 700_000),
        spoken(b"abc\\n" * (2 * _MB) + "😀".encode()),
    ],
    ids=["lists", "objects", "small enough", "wide text"],
)
def test_no_command_takes_more_than_three_times_the_line(layout: Layout, line: bytes) -> None:
    require_linux()
    put_in(write(layout, conversation()), line)
    allowed = _ALLOWED + 3 * len(line)
    root = ("--root", str(layout.root))
    for command in (
        ("extract", "--dry-run"),
        ("show", str(NAME)),
        ("search", "look"),
        ("verify",),
        ("extract",),
        ("restore", str(NAME), "heavy"),
    ):
        assert peak(*root, *command) < allowed, command


def test_it_is_told_of_and_the_rest_is_looked_after(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    put_in(path, heavy(b"[],", 2 * _MB))
    result = make_caller(layout, clock).extract(NAME)
    assert result.status is Status.EXTRACTED
    assert result.reasons["too_large_in_memory"] == 1
    found = verify(layout)
    assert found.clean
    told = [one for one in found.findings if one.kind == "too_large_in_memory"]
    assert [one.where for one in told] == [f"{NAME} #3"]
    (check,) = (one for one in examine(layout) if one.name == "sessions")
    assert f"1 line that would take too much memory: {NAME} #3" in check.message
    assert performed.restore_all(make_caller(layout, clock), NAME).status is Status.RESTORED


def test_status_tells_of_it_until_the_session_was_read_without_it() -> None:
    ledger = Ledger()
    name = SessionName("main", "s1")

    def worked(partial: bool, **reasons: int) -> dict[str, int]:
        result = SessionResult(str(name), Status.UNCHANGED, reasons=reasons, partial=partial)
        ledger.worked(name, result, 0.0)
        told: dict[str, int] = ledger.left_alone()["reasons"]
        return told

    (reason,) = worked(partial=False, too_large_in_memory=1)
    assert "memory" in reason
    assert worked(partial=True, too_recent=3) == {reason: 1}, "it was not read this time"
    assert worked(partial=False, too_recent=3) == {}


def test_a_list_of_conversations_that_is_too_large_is_a_problem(layout: Layout) -> None:
    directory = layout.agents / "main"
    registry = directory / "sessions" / "sessions.json"
    registry.parent.mkdir(parents=True, exist_ok=True)
    registry.write_bytes(b"[" + b"[]," * 400_000 + b"0]")
    assert "memory" in (read_registry(directory).problem or "")


def test_a_late_line_that_is_too_large_may_be_torn() -> None:
    assert not is_json(heavy(b"[],", 2 * _MB))
    assert is_json(json.dumps({"id": "a"}).encode())
