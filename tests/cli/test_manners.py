"""Messages for users who made a usual mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.fake_actions import Cli


@pytest.mark.parametrize(
    ("content", "told", "hint"),
    [
        (None, "invalid value for '--file': '{}': No such file", "`bsd replace --help`"),
        (b"\xff", "{} is not UTF-8: invalid start byte at byte 0", "save it as UTF-8"),
        (b" \n", "{} is empty", "write JSON into it, as in [{{"),
        (b"[", "{} is not JSON: Expecting value: line 1 column 2 (char 1)", "as in [{{"),
    ],
)
def test_a_file_that_somebody_named(
    cli: Cli, tmp_path: Path, content: bytes | None, told: str, hint: str
) -> None:
    file = tmp_path / "operations.json"
    if content is not None:
        file.write_bytes(content)
    assert cli("replace", "main/a", "--file", str(file)) == 2
    first, second = cli.err.splitlines()
    assert first.startswith(f"Error: {told.format(file)}")
    assert second.startswith(f"Try: {hint.format()}")


@pytest.mark.parametrize("line", ["replace main/a --file", "edit main/a e1 --file"])
def test_a_directory_is_no_file(cli: Cli, tmp_path: Path, line: str) -> None:
    assert cli(*line.split(), str(tmp_path)) == 2
    assert f"'{tmp_path}': Is a directory\nTry: " in cli.err


def test_an_entry_that_is_no_json_names_its_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "entry.json"
    file.write_text("{")
    assert cli("edit", "main/a", "e1", "--file", str(file)) == 2
    assert cli.err.startswith(f"Error: {file}: this is not JSON")


@pytest.mark.parametrize("group", ["config", "workspace", "service"])
def test_a_group_alone_shows_its_commands(cli: Cli, group: str) -> None:
    assert cli(group) == 2
    assert cli.err.startswith(f"Usage: bsd {group} [OPTIONS] COMMAND")
    assert cli.out == ""


def test_a_group_alone_is_an_error_for_programs(cli: Cli) -> None:
    assert cli("--json", "config") == 2
    assert json.loads(cli.out) == {"error": "missing command", "hint": "`bsd config --help`"}


def test_a_bad_value_without_advice_of_its_own_leads_to_the_help(cli: Cli) -> None:
    assert cli("config", "set", "keep_recent", "many") == 2
    assert cli.err.endswith("\nTry: `bsd config set --help`\n")


def test_the_time_of_a_run_is_not_for_setting(cli: Cli) -> None:
    assert cli("config", "set", "last_run_at", '"2026-01-01T00:00:00Z"') == 0
    assert cli.out == ""
    assert "last_run_at cannot be set: bsd records the time of its last run there\n" in cli.err


def test_restoring_a_session_that_is_not_there_asks_nobody(cli: Cli) -> None:
    assert cli("restore-all", "main/zzz") == 1
    assert cli.err.startswith("Error: there is no session main/zzz\n")


def test_the_way_not_to_be_asked_names_the_sessions(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert cli("restore-all", "main/a", "other/a") == 2
    assert cli.err.endswith("\nTry: `bsd restore-all main/a other/a --yes`\n")


def test_a_log_that_may_not_be_written_stops_nobody_who_looks(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = cli.root / "logs" / "brainsurgeon.log"
    log.parent.mkdir()
    log.touch()
    allowed = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != log and allowed(path, mode))
    assert cli("trash", "list") == 0
    assert log.read_bytes() == b""
