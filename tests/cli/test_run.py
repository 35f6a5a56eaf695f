"""The edge of the program: every way a call can end."""

from __future__ import annotations

import io
import json
import signal
import sys

import pytest

from bsd.cli.main import run
from bsd.cli.stopping import Stopped
from tests.cli.fake_actions import Cli
from tests.refusing import raising


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("extrac", "`bsd extract`"),
        ("sesions --json", "`bsd sessions`"),
        ("purge-control", "`bsd purge_control`"),
        ("qqq", "`bsd --help`"),
        ("config st", "`bsd config set`"),
        ("extract --dryrun", "`--dry-run`; `bsd extract --help` lists all options"),
        ("extract --keep-recent many", "`bsd extract --help`"),
        ("restore main/a", "`bsd restore --help`"),
        ("sessions extra", "`bsd sessions --help`"),
        ("--rot x sessions", "`--root`; `bsd --help` lists all options"),
    ],
)
def test_usage_errors_name_the_nearest(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    error, attempt = capsys.readouterr().err.splitlines()
    assert error.startswith("Error: ")
    assert attempt == f"Try: {hint}"


def test_json_may_stand_before_or_after_the_command(cli: Cli) -> None:
    cli("--json", "config", "path")
    before = json.loads(cli.out)
    assert cli.document("config", "path") == before


def test_an_error_is_a_document_and_a_message(cli: Cli) -> None:
    assert cli("show", "main/a", "--entry", "1", "--json") == 1
    assert json.loads(cli.out)["error"] == "there is no entry 1 in main/a"
    assert cli.err.startswith("Error: there is no entry 1 in main/a\n")


def test_no_traceback_reaches_the_user(cli: Cli) -> None:
    cli.actions.acts = raising(RuntimeError("never foreseen"))
    assert cli("context", "main/a") == 1
    assert cli.err.startswith("Error: internal error: RuntimeError: never foreseen\nTry: ")
    assert "Traceback" not in cli.err


def test_a_wait_that_is_stopped_is_told(cli: Cli) -> None:
    cli.actions.acts = raising(Stopped(15))
    assert cli("restore", "main/a", "e1", "--json") == 143
    assert json.loads(cli.out)["error"].startswith("stopped")
    assert cli.err.startswith("Error: stopped")


def test_a_signal_after_the_work_is_done_keeps_the_answer(cli: Cli) -> None:
    answer = {"restored": True, "entry_id": "e1", "keys_restored": ["text"], "sizes_bytes": {}}
    cli.actions.answer = answer
    cli.actions.acts = lambda: signal.raise_signal(signal.SIGINT)
    assert cli("restore", "main/a", "e1", "--json") == 130
    assert json.loads(cli.out) == answer


def test_an_interrupted_look_ends_quietly(cli: Cli) -> None:
    cli.actions.acts = raising(KeyboardInterrupt)
    assert cli("context", "main/a") == 130
    assert "Traceback" not in cli.err


@pytest.mark.parametrize("stream", ["ascii", "utf-8"])
def test_any_encoding_can_be_printed_to(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=stream))
    cli.actions.answer = {
        "session": "main/a",
        "total_entries": 1,
        "extracted_entries": 1,
        "extracted_ids": ["é\udcff\x1b[31m"],
        "extractable_entries": 1,
        "size_bytes": 1,
        "extracted_size_bytes": 1,
        "last_extracted_at": None,
        "entries": [],
    }
    assert run(["--root", str(cli.root), "purge_control", "get_context", "--session", "b"]) == 0
    shown = raw.getvalue()
    assert b"\\udcff\\x1b[31m" in shown
    assert b"\x1b" not in shown
