"""Commands about one entry, and the tools of seeds 000 and 001."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.errors import Busy
from tests.cli.fake_actions import Cli
from tests.refusing import raising

_RESTORED: dict[str, Any] = {
    "restored": True,
    "entry_id": "e1",
    "keys_restored": ["content", "output"],
    "sizes_bytes": {"content": 1024, "output": 10},
}
_CONTEXT: dict[str, Any] = {
    "session": "main/b",
    "total_entries": 5,
    "extracted_entries": 1,
    "extracted_ids": ["e1"],
    "extractable_entries": 2,
    "size_bytes": 2048,
    "extracted_size_bytes": 4096,
    "last_extracted_at": None,
    "entries": [],
}


def test_restore_says_what_came_back(cli: Cli) -> None:
    cli.actions.answer = _RESTORED
    assert cli("restore", "main/a", "e1", "--keys", "content, output") == 0
    assert cli.actions.asked == [("restore", "main/a", "e1", ["content", "output"])]
    assert cli.out.splitlines()[0] == "Restored 2 values (1.0 KB) of e1 in main/a"


def test_restore_gives_the_seeds_advice(cli: Cli) -> None:
    cli.actions.answer = _RESTORED | {
        "previous_restored_at": "2026-02-20T17:30:00Z",
        "suggestion": "consider setting _extractable: false",
    }
    cli("restore", "main/a", "e1")
    assert "2026-02-20T17:30:00Z. consider setting _extractable: false" in cli.out


def test_what_is_unavailable_is_told(cli: Cli) -> None:
    missing = "[Content unavailable - extracted file missing]"
    cli.actions.answer = _RESTORED | {"keys_restored": [], "unavailable": {"output": missing}}
    assert cli("restore", "main/a", "e1") == 1
    assert cli.err == f"output: {missing}\n"


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("FALSE", False), ("20", 20), ("0", 0), ("unset", None)]
)
def test_values_of_extractable(cli: Cli, text: str, value: bool | int | None) -> None:
    cli.actions.answer = {
        "updated": True,
        "entry_id": "e1",
        "extractable": value,
        "previous": None,
    }
    assert cli("set-extractable", "main/a", "e1", text) == 0
    ((_, _, _, given),) = cli.actions.asked
    assert given == value
    assert type(given) is type(value)


@pytest.mark.parametrize("text", ["yes", "1.5", "", "٣", "9" * 10])
def test_other_values_of_extractable_are_refused(cli: Cli, text: str) -> None:
    assert cli("set-extractable", "main/a", "e1", text) == 2
    assert cli.actions.asked == []


@pytest.mark.parametrize(
    "line",
    [
        "restore_remote --session b --entry e1 --keys content,output",
        "restore_remote --session main/b --entry e1 --keys content,output",
        "purge_control restore e1 --session b --keys content,output",
        "purge_control --session b restore e1 --keys content,output",
        "purge_control --action restore --entry e1 --session b --keys content,output",
    ],
)
def test_the_tools_that_restore(cli: Cli, line: str) -> None:
    cli.actions.answer = _RESTORED
    cli.actions.content = {"content": "long, long ago", "output": {"then": [1]}}
    assert cli(*line.split()) == 0
    assert cli.actions.asked == [("restore", "main/b", "e1", ["content", "output"])]
    assert cli.out == (
        "Restored 2 keys for entry e1\nKeys: content, output\n"
        '\ncontent:\nlong, long ago\n\noutput:\n{"then": [1]}\n'
    )


def test_a_session_in_use_gives_the_text(cli: Cli) -> None:
    cli.actions.content = {"content": "long, long ago"}
    cli.actions.acts = raising(Busy("session main/b is in use: its lock is held"))
    line = ("restore_remote", "--session", "b", "--entry", "e1")
    assert cli(*line) == 0
    assert cli.out.startswith("Text only: The text is only here: the session is in use, and no ")
    assert cli.out.endswith("\n\ncontent:\nlong, long ago\n")
    assert cli(*line, "--inline") == 4, "what was asked for is not done"
    assert "long, long ago" in cli.out
    document = cli.document(*line)
    assert (document["restored"], document["inline"]) == (False, "not now")
    assert document["texts"] == {"content": "long, long ago"}
    cli.actions.asked.clear()
    assert cli(*line, "--text-only") == 0
    assert cli.actions.asked == [], "nobody has tried"


def test_a_long_text_is_printed_a_page_at_a_time(cli: Cli) -> None:
    cli.actions.answer = _RESTORED
    cli.actions.content = {"content": "x" * 40_000 + "y", "output": "z"}
    line = ("restore_remote", "--session", "b", "--entry", "e1")
    assert cli(*line) == 0
    assert cli.out.endswith(
        "x\n\n(24502 more characters: --keys content,output --offset 15500 --text-only)\n"
    )
    assert cli(*line, "--keys", "content,output", "--offset", "40000", "--text-only") == 0
    assert cli.out.endswith("\n\ncontent:\ny\n\noutput:\nz\n")


def test_what_cannot_be_had_is_a_failure(cli: Cli) -> None:
    missing = {"content": "[Content unavailable - extracted file missing]"}
    cli.actions.unavailable = missing
    cli.actions.answer = _RESTORED | {
        "restored": False, "keys_restored": [], "unavailable": missing,
    }  # fmt: skip
    assert cli("restore_remote", "--session", "b", "--entry", "e1") == 1
    assert "extracted file missing" in cli.out


def test_get_context_in_the_originals_words(cli: Cli) -> None:
    cli.actions.answer = _CONTEXT
    assert cli("purge_control", "get_context", "--session", "b") == 0
    assert cli.out == (
        "Session: main/b\nTotal entries: 5\nExtracted entries: 1\n\nExtracted entry IDs:\n  - e1\n"
    )
    cli.actions.answer = _CONTEXT | {"extracted_ids": []}
    cli("purge_control", "--action", "get_context", "--session", "b")
    assert cli.out.endswith("Extracted entry IDs:\n  (none)\n")
    assert cli.document("purge_control", "get_context", "--session", "b") == cli.actions.answer


@pytest.mark.parametrize(
    "line",
    [
        "purge_control set_extractable e1 false --session b",
        "purge_control --action set_extractable --entry e1 --value false --session b",
    ],
)
def test_set_extractable_as_a_tool(cli: Cli, line: str) -> None:
    cli.actions.answer = {"entry_id": "e1", "extractable": False, "previous": None}
    assert cli(*line.split()) == 0
    assert cli.actions.asked == [("set_extractable", "main/b", "e1", False)]
    assert cli.out == "Set _extractable=false for entry e1\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("restore_remote --entry e1", "session parameter is required"),
        ("restore_remote --session b", "entry parameter is required"),
        ("purge_control get_context", "session parameter is required"),
        ("purge_control restore --session b", "entry parameter is required for restore action"),
        (
            "purge_control set_extractable --session b",
            "entry parameter is required for set_extractable action",
        ),
        (
            "purge_control set_extractable e1 --session b",
            "value parameter is required for set_extractable action (true, false, or integer)",
        ),
        (
            "purge_control delete --session b",
            "Unknown action 'delete'. Valid actions: get_context, restore, set_extractable",
        ),
        ("purge_control restore e1 x --session b", "'x' is an extra argument"),
        ("restore_remote --session a --entry e1", "several agents have a session a"),
        ("restore_remote --session ../b --entry e1", "agent '..' is not a valid name"),
        ("restore_remote --session .. --entry e1", "session '..' is not a valid name"),
    ],
)
def test_what_the_tools_refuse(cli: Cli, line: str, message: str) -> None:
    assert cli(*line.split()) == 2
    first, second = cli.err.splitlines()
    assert first == f"Error: {message}"
    assert second.startswith("Try: ")
    assert cli.actions.asked == []


def test_a_session_that_no_agent_has(cli: Cli) -> None:
    assert cli("restore_remote", "--session", "zzz", "--entry", "e1") == 1
    assert cli.err == "Error: there is no session zzz\nTry: `bsd sessions` lists them\n"
