"""Every interface refuses a file that is no session by name; verify covers its stored content.

Earlier versions extracted from such files if the user named them, and saw them nowhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.http.api import over_socket, serving
from tests.mcp.answers import call_until_answered
from tests.mcp.test_mcp import House, error, serve
from tests.openclaw_tree import add_session
from tests.session_files import LONG, conversation, jsonl

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
PLACEHOLDER = b"[[extracted-"
WHOLE = jsonl(*conversation(3))
SESSION = "main/s1"
# Names below the agent `main` of OpenClaw, and a word of the reason.
STRAYS = {
    f"main/{UUID}.checkpoint.{UUID}": "checkpoint",
    f"main/{UUID}.trajectory": "trajectory",
    "main/s1.jsonl.corrupt-1700000000": "repair",
}


def bsd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = forked.run("--root", str(root), *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def root(root: Path) -> Path:
    add_session(root, SESSION, WHOLE)
    return root


def extracted_by_an_earlier_version(root: Path, name: str) -> Path:
    """Make the store as if this file had been extracted like a session, by its name."""
    agent, _, session = name.partition("/")
    path = add_session(root, f"{agent}/other", WHOLE)
    assert bsd(root, "extract", f"{agent}/other").returncode == 0
    assert PLACEHOLDER in path.read_bytes()
    moved = path.rename(path.with_name(f"{session}.jsonl"))
    store = root / "extracted"
    (store / f"{agent}_other").rename(store / f"{agent}_{session}")
    history = root / ".brainsurgeon" / "history"
    (history / f"{agent}_other").rename(history / f"{agent}_{session}")
    index = store / f"{agent}_{session}" / "index.json"
    index.write_text(index.read_text().replace(f"{agent}/other", name))
    os.utime(moved, (1e9, 1e9))
    return moved


COMMANDS = [
    ("extract",),
    ("extract", "--dry-run"),
    ("restore-all", "--yes"),
    ("undo",),
    ("show",),
    ("context",),
    ("history",),
    ("delete", "--yes"),
    ("delete", "--yes", "--permanent"),
]


@pytest.mark.parametrize("name", STRAYS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_by_name_it_is_refused_with_the_reason(
    root: Path, name: str, command: tuple[str, ...]
) -> None:
    path = add_session(root, name, WHOLE)
    done = bsd(root, command[0], name, *command[1:])
    assert done.returncode == 1, done
    assert "is not a session" in done.stderr
    assert STRAYS[name] in done.stderr
    assert "Try: " in done.stderr
    assert path.read_bytes() == WHOLE
    for place in ("extracted", "archive", "trash"):
        assert not list((root / place).glob("*")), place


@pytest.mark.parametrize("name", STRAYS)
def test_an_entry_of_it_is_refused_too(root: Path, name: str) -> None:
    path = add_session(root, name, WHOLE)
    for command in (
        ("restore", name, "e1"),
        ("set-extractable", name, "e1", "true"),
    ):
        done = bsd(root, *command)
        assert done.returncode == 1, done
        assert STRAYS[name] in done.stderr
    assert path.read_bytes() == WHOLE


def test_among_others_it_is_refused_and_the_others_go_on(root: Path) -> None:
    name = next(iter(STRAYS))
    path = add_session(root, name, WHOLE)
    done = bsd(root, "extract", name, SESSION)
    assert done.returncode == 1
    assert "is not a session" in done.stderr
    assert path.read_bytes() == WHOLE
    assert PLACEHOLDER in (path.with_name("s1.jsonl")).read_bytes()


def test_all_sessions_are_the_same_as_before(root: Path) -> None:
    for name in STRAYS:
        add_session(root, name, WHOLE)
    listed = json.loads(bsd(root, "--json", "sessions").stdout)["sessions"]
    assert [one["session"] for one in listed] == [SESSION]
    assert "no_session" not in listed[0]
    assert bsd(root, "extract").returncode == 0
    assert bsd(root, "verify").returncode == 0
    for name in STRAYS:
        path = root / "agents/main/sessions" / f"{name.partition('/')[2]}.jsonl"
        assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("name", STRAYS)
def test_what_an_earlier_version_extracted_is_covered(root: Path, name: str) -> None:
    """verify, sessions and restore-all see the store; no further values leave the file."""
    path = extracted_by_an_earlier_version(root, name)
    before = path.read_bytes()

    listed = json.loads(bsd(root, "--json", "sessions").stdout)["sessions"]
    (stray,) = (one for one in listed if one["session"] == name)
    assert STRAYS[name] in stray["no_session"]
    assert stray["extracted_entries"] == 3
    shown = bsd(root, "sessions")
    assert f"{name} is not a session" in shown.stderr
    assert f"bsd restore-all {name}" in shown.stderr

    found = json.loads(bsd(root, "--json", "verify").stdout)
    assert found["placeholders"] == 3
    assert [(one["kind"], one["where"]) for one in found["findings"]] == [("no_session", name)]

    assert bsd(root, "extract").returncode == 0
    refused = bsd(root, "extract", name)
    assert refused.returncode == 1
    assert "is not a session" in refused.stderr
    assert path.read_bytes() == before

    assert bsd(root, "restore-all", "--yes").returncode == 0
    assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("name", STRAYS)
def test_by_its_name_it_comes_back_too(root: Path, name: str) -> None:
    path = extracted_by_an_earlier_version(root, name)
    assert bsd(root, "restore-all", name, "--yes").returncode == 0
    assert LONG.encode() in path.read_bytes()
    assert PLACEHOLDER not in path.read_bytes()


def test_what_is_missing_of_it_is_told(root: Path) -> None:
    name = next(iter(STRAYS))
    path = extracted_by_an_earlier_version(root, name)
    session = name.partition("/")[2]
    for file in (root / "extracted" / f"main_{session}").glob("0*.json"):
        file.unlink()
    assert bsd(root, "verify").returncode == 1
    assert bsd(root, "restore-all", "--yes").returncode == 1
    assert PLACEHOLDER in path.read_bytes()


@pytest.mark.daemon
def test_over_http_it_is_refused_too(root: Path) -> None:
    name = next(iter(STRAYS))
    path = add_session(root, name, WHOLE)
    with serving(root) as (_, settings):
        for method, action, body in (
            ("POST", "/extract", b"{}"),
            ("GET", "/entries", None),
            ("POST", "/entries/e1/restore", b"{}"),
            ("DELETE", "", None),
        ):
            where = f"/api/sessions/{name}{action}"
            status, answer = over_socket(settings.socket, where, method, body)
            assert status == 409, (method, action, answer)
            assert STRAYS[name] in answer["error"]
        status, listed = over_socket(settings.socket, "/api/sessions")
        assert [one["session"] for one in listed["sessions"]] == [SESSION]
        extracted_by_an_earlier_version(root, name)
        status, listed = over_socket(settings.socket, "/api/sessions")
        (stray,) = (one for one in listed["sessions"] if one["session"] == name)
        assert STRAYS[name] in stray["no_session"]
        status, answer = over_socket(
            settings.socket, f"/api/sessions/{name}/extract", "POST", b"{}"
        )
        assert status == 409
    assert PLACEHOLDER in path.read_bytes()


@pytest.mark.daemon
def test_over_mcp_it_is_refused_too(root: Path) -> None:
    name = next(iter(STRAYS))
    path = add_session(root, name, WHOLE)

    async def work(client: Any) -> None:
        for tool, asked in (
            ("restore", {"entry_id": "e1"}),
            ("purge_control", {"action": "get_context"}),
            ("purge_control", {"action": "set_extractable", "entry": "e1", "value": True}),
            ("read_extracted", {"entry": "e1"}),
        ):
            result = await call_until_answered(client, tool, {**asked, "session": name})
            assert STRAYS[name] in error(result), tool

    serve(House(root), work)
    assert path.read_bytes() == WHOLE


PROGRAMS = {
    "claude-code": ("projects", "-home-me", "agent-a1b2c3", "sub-agent"),
    "codex": ("sessions", "2026/01/02", "notes", "rollout-"),
    "pi": ("sessions", "--home-me--", ".notes", "begins with a dot"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_so_it_is_in_the_directories_of_other_programs(
    root: Path, tmp_path: Path, kind: str
) -> None:
    called, below, stem, why = PROGRAMS[kind]
    source = tmp_path / "home" / called
    path = source / below / f"{stem}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    os.utime(path, (1e9, 1e9))
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[sources]]\nkind = "{kind}"\npath = "{source}"\nname = "x"\n')
    agents = json.loads(bsd(root, "--json", "sessions").stdout)["agents"]
    (agent,) = (one["name"] for one in agents if one["name"].startswith("x:"))
    done = bsd(root, "extract", f"{agent}/{stem}")
    assert done.returncode == 1, done
    assert "is not a session" in done.stderr
    assert why in done.stderr
    assert path.read_bytes() == WHOLE
