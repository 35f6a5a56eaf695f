"""`bsd workspace …`: tables for people, documents for programs, exit codes for scripts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from bsd.workspaces import create_session_sandbox, touch_session
from bsd.workspaces.place import open_root, workspace_in_use

_HOUR = 3600.0


@dataclass
class Bsd:
    """`bsd … workspace …` with an OpenClaw root and a workspace root of its own."""

    top: Path
    capture: pytest.CaptureFixture[str]
    err: str = ""

    @property
    def spaces(self) -> Path:
        return self.top / "spaces"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        place = ["--workspace-root", str(self.spaces)]
        at = arguments.index("--") if "--" in arguments else len(arguments)
        words = [*arguments[:at], *place, *arguments[at:]]
        ended = run(["--root", str(self.top / "root"), "workspace", *words])
        out, self.err = self.capture.readouterr()
        assert ended == code, (ended, out, self.err)
        assert "internal error" not in self.err
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(arguments[0], "--json", *arguments[1:], code=code))

    def audit(self) -> list[dict[str, Any]]:
        path = self.top / "root" / ".brainsurgeon" / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def bsd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bsd]:
    (tmp_path / "root").mkdir()
    yield Bsd(tmp_path, capsys)
    close_logs()


def stale(bsd: Bsd, session_id: str, hours: float) -> None:
    create_session_sandbox(session_id, bsd.spaces)
    touch_session(session_id, bsd.spaces, clock=lambda: time.time() - hours * _HOUR)


def test_from_creation_to_the_end(bsd: Bsd) -> None:
    made = bsd.json("create", "a")
    assert made == {"session_id": "a", "path": str(bsd.spaces / "a"), "created": True}
    assert "already exists" in bsd("create", "a")
    assert bsd.json("create")["created"]
    done = bsd.json("run", "a", "--no-isolate", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done["stdout"], done["stderr"], done["exit_code"]) == ("out\n", "err\n", 0)
    assert done["metadata"]["execution_count"] == 1
    assert bsd("run", "a", "--no-isolate", "--env", "X=1", "--", "sh", "-c", "echo $X") == "1\n"
    assert "(not isolated: not asked for)" in bsd.err
    bsd("run", "a", "--no-isolate", "--", "false", code=1)
    assert "false: exit code 1" in bsd.err
    done = bsd.json("run", "a", "--no-isolate", "--time-limit", "0.2", "--", "sleep", "9", code=1)
    assert done["timed_out"]
    assert bsd.json("touch", "a")["metadata"]["session_id"] == "a"
    assert "counts as used now" in bsd("touch", "a")
    rows = bsd.json("list", "--sizes")["workspaces"]
    assert {row["session_id"]: row["execution_count"] for row in rows}["a"] == 4
    assert all(row["bytes"] > 0 for row in rows)
    assert bsd("list").splitlines()[0].split() == ["ID", "UNUSED", "RUNS", "LAST", "ERROR"]
    bsd("prune", "--older-than", "0m", "--yes")
    assert bsd.json("list")["workspaces"] == []
    actions = [line["action"] for line in bsd.audit()]
    assert actions == ["workspace_create"] * 2 + ["workspace_run"] * 4 + ["workspace_prune"]
    last = bsd.audit()[-1]
    assert (last["actor"], last["workspacesDeleted"], last["errors"]) == ("cli", 2, 0)
    assert "a" in last["sessions"]
    assert last["bytesFreed"] > 0


def test_prune_says_what_would_go_and_asks_first(bsd: Bsd) -> None:
    for hours in (30, 50):
        stale(bsd, f"h{hours}", hours)
    stale(bsd, "fresh", 1)
    (bsd.spaces / "legacy").mkdir()
    out = bsd("prune", "--dry-run")
    assert out.splitlines()[:2] == ["h50", "h30"]
    assert out.splitlines()[2].startswith("Would prune 2 sessions (1 skipped), reclaimed ")
    assert "legacy is skipped: there is no .metadata.json" in bsd.err
    bsd("prune", code=2)
    assert "there is no terminal" in bsd.err
    assert "Try: `bsd workspace prune --yes`" in bsd.err
    told = bsd.json("prune", "--dry-run")
    done = bsd.json("prune", "--yes")
    assert {**told, "dry_run": False} == done
    assert done["deleted_sessions"] == ["h50", "h30"]
    assert done["skipped_sessions"] == {"legacy": "missing_metadata"}
    assert bsd.json("prune", "--max-count", "5", "--yes")["deleted_sessions"] == []
    assert bsd.json("prune", "--max-bytes", "0", "--yes")["deleted_sessions"] == ["fresh"]


def test_repair_and_what_cannot_be(bsd: Bsd) -> None:
    (bsd.spaces / "bare").mkdir(parents=True)
    (bsd.spaces / "busy").mkdir()
    assert "it would count as used at" in bsd("repair", "bare", "--dry-run")
    with open_root(bsd.spaces) as root, workspace_in_use(root, "busy"):
        document = bsd.json("repair", code=1)
    by_id = {one["session_id"]: one for one in document["workspaces"]}
    assert by_id["bare"]["repaired"]
    assert by_id["busy"]["error"] == "workspace busy is in use"
    assert "bare needs no repair" in bsd("repair", "bare")
    bsd("touch", "busy", code=1)
    assert "`bsd workspace repair busy` writes it" in bsd.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "--no-isolate", "none", "--", "true"], 1, "there is no workspace none"),
        (["touch", "../x"], 2, "is not a valid name"),
        (["create", ".x"], 2, "begins with a dot"),
        (["run", "a"], 2, "missing argument"),
        (["run", "a", "--time-limit", "nan", "--", "true"], 2, "must be a number of seconds"),
        (["run", "a", "--env", "X", "--", "true"], 2, "is not of the form NAME=VALUE"),
        (["prune", "--older-than", "soon", "--yes"], 2, "Invalid duration 'soon'"),
        (["prune", "--max-count", "-1", "--yes"], 2, "--max-count"),
        (["repair", "none"], 1, "there is no workspace none"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_errors(arguments: list[str], code: int, words: str, bsd: Bsd) -> None:
    bsd("create", "a")
    bsd(*arguments, code=code)
    assert words in bsd.err
    assert "Try:" in bsd.err or code == 2


def test_a_missing_root_is_an_error(bsd: Bsd) -> None:
    assert bsd.json("list", code=1)["error"] == f"there is no workspace root {bsd.spaces}"
    bsd("prune", "--yes", code=1)
    assert not bsd.spaces.exists()


def test_the_root_of_the_settings_or_the_directory_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workspaces need no OpenClaw directory, and make none."""
    monkeypatch.chdir(tmp_path)
    assert run(["workspace", "create", "a"]) == 0
    assert os.listdir(tmp_path / "workspace" / "a") == [".metadata.json"]
    monkeypatch.setenv("BRAINSURGEON_WORKSPACE_ROOT", str(tmp_path / "set"))
    assert run(["workspace", "create", "b"]) == 0
    assert (tmp_path / "set" / "b").is_dir()
    assert not (Path(os.environ["HOME"]) / ".openclaw").exists()
    capsys.readouterr()
    assert run(["--root", str(tmp_path / "nowhere"), "workspace", "list"]) == 78
    assert "there is no directory" in capsys.readouterr().err


def test_output_goes_through_to_the_byte(bsd: Bsd) -> None:
    bsd("create", "a")
    assert bsd("run", "a", "--no-isolate", "--", "printf", "no newline\\tä") == "no newline\tä"
