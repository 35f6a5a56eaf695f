"""Other programs' sessions on the command line."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from tests.cli.conftest import Call, out_of
from tests.commands import Ended
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines, subagent_lines
from tests.transcripts.agents.sources.tree import Home, away, raw, without_restored


def with_sources(bsd: Call, top: Path, *arguments: str, kind: str = "pi", **paths: Path) -> Ended:
    """Call bsd with settings that name these directories as sources."""
    settings = top / "config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(
        "".join(
            f'[[sources]]\nkind = "{kind}"\nname = "{name}"\npath = "{path}"\n'
            for name, path in paths.items()
        )
    )
    return bsd(*arguments, XDG_CONFIG_HOME=str(top / "config"))


def test_a_subagents_file_from_the_list_to_its_last_byte(bsd: Call, tmp_path: Path) -> None:
    claude = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    path = claude.path.with_suffix("") / "subagents" / "agent-a7be2f0c41d9.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(old := raw(subagent_lines()))
    set_idle(path)

    def call(*arguments: str) -> Ended:
        ended = with_sources(bsd, tmp_path, *arguments, kind="claude-code", claude=claude.source)
        assert (ended.code, ended.err) == (0, "")
        return ended

    project, session = "claude:-home-me-project", CLAUDE_CODE.session
    listed = {one["session"] for one in call("sessions", "--json").document["sessions"]}
    name = f"{project}:{session}/{path.stem}"
    assert {name, f"{project}/{session}"} <= listed
    done = call("extract", name, "--keep-recent", "2", "--json").document
    assert out_of(done, name)["values"] == 4
    assert away(old, path.read_bytes()) == 4
    set_idle(path)
    call("restore-all", name, "--yes", "--json")
    assert without_restored(path.read_bytes()) == old


def test_a_source_that_is_not_there_is_told_beside_the_list(bsd: Call, tmp_path: Path) -> None:
    (here := tmp_path / "here" / "-p").mkdir(parents=True)
    gone = tmp_path / "gone"
    ended = with_sources(bsd, tmp_path, "sessions", "--json", here=here.parent, gone=gone)
    assert ended.code == 0
    assert len(ended.document["sessions"]) == 4
    assert f"There is no {gone}, which the settings name as gone." in ended.err
    assert "Try: correct `path`" in ended.err
    assert str(here) not in ended.err
    # A user who asks for other sessions is told about those sessions.
    ended = with_sources(bsd, tmp_path, "sessions", "--agent", "main", gone=gone)
    assert (ended.code, ended.err.count("gone")) == (0, 0)
    ended = with_sources(bsd, tmp_path, "sessions", "--agent", "gone:-p", gone=gone)
    assert ended.code != 0
    assert "There is no" in ended.err


def test_a_source_that_cannot_be_read_is_told(
    bsd: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed := tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    # a test may run as root, which is refused no directory
    monkeypatch.setattr(os, "scandir", refusing)
    ended = with_sources(bsd, tmp_path, "sessions", closed=closed)
    assert ended.code == 0
    assert f"The source closed: reading {closed}: Permission denied\nTry: run as" in ended.err


def test_a_source_belongs_to_one_root_until_somebody_moves_it(bsd: Call, tmp_path: Path) -> None:
    claude = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    first, second = Call(tmp_path / "first", bsd.capture, bsd.patch), bsd
    first.root.mkdir()

    def call(root: Call, *arguments: str) -> Ended:
        set_idle(claude.path)
        return with_sources(root, tmp_path, *arguments, kind="claude-code", claude=claude.source)

    assert "none yet" in call(first, "sources").out
    assert call(first, "extract", "--keep-recent", "2").code == 0
    (listed,) = call(first, "sources", "list", "--json").document["sources"]
    assert (listed["served_by"], listed["left_alone"]) == (str(first.root), None)

    theirs = f"claude is served by the root {first.root}"
    (listed,) = call(second, "sources", "--json").document["sources"]
    assert (listed["served_by"], listed["left_alone"]) == (str(first.root), theirs)
    assert theirs in call(second, "sources").out
    before = claude.path.read_bytes()
    name = f"claude:-home-me-project/{CLAUDE_CODE.session}"
    ended = call(second, "extract", name)
    assert theirs in ended.err
    ended = call(second, "restore-all", name, "--yes")
    assert theirs in ended.err
    assert claude.path.read_bytes() == before
    assert f"{theirs}: this root only reads it" in call(second, "sessions").err
    assert f"{theirs}: its sessions are verified there" in call(second, "verify").out
    assert call(second, "verify").code == 0
    checks = call(second, "doctor", "--json").document["checks"]
    assert any(theirs in one["message"] for one in checks if one["name"] == "sources")
    for line in ("show", "context"):
        ended = call(second, line, name)
        assert ended.code == 0
        assert f"{theirs}: this root only reads it" in ended.err

    ended = call(second, "sources", "claim", "claude")
    assert ended.code == 2
    assert "`bsd sources claim claude --yes`" in ended.err
    ended = call(second, "sources", "claim", "claude", "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert f"only {first.root} can restore the values" in ended.out
    assert "is served by" in call(first, "extract", name).err
    ended = call(second, "sources", "claim", "nothing")
    assert ended.code == 1
    assert "there is no source nothing" in ended.err


def test_an_archive_that_cannot_be_read_is_told(
    bsd: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "sessions").mkdir()
    (closed := tmp_path / "archived_sessions").mkdir()
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    ended = with_sources(bsd, tmp_path, "sessions", kind="codex", codex=here)
    assert (ended.code, f"reading {closed}" in ended.err) == (0, True)


def test_who_has_no_openclaw_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    root = tmp_path / "none" / "yet"
    settings = tmp_path / "bsd.toml"
    source = f'[[sources]]\nkind = "claude-code"\npath = "{claude.source}"\n'
    settings.write_text(f'root = "{root}"\n{source}')
    assert run(["--config", str(settings), "sessions"]) == 0
    assert not root.parent.exists(), "a command that only reads makes nothing"
    assert run(["--config", str(settings), "extract", "--min-value-length", "40"]) == 0
    assert root.stat().st_mode & 0o777 == 0o700
    assert b"[[extracted-" in claude.path.read_bytes()
    assert (root / "extracted").is_dir()
    mistyped = tmp_path / "mistyped"
    assert run(["--config", str(settings), "--root", str(mistyped), "sessions"]) == 78
    assert not mistyped.exists()
    close_logs()
