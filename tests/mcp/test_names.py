"""Which calls are calls of bsd's tools."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.mcp.transcript_calls import NEEDLES, own_tool_name
from bsd.mcp.transcript_commands import ShellCommand, find_shell_command
from bsd.transcripts.agents.openclaw.format import OPENCLAW


@pytest.mark.parametrize(
    ("name", "arguments", "tool"),
    [
        ("restore_remote", {}, "restore_remote"),
        ("purge_control", "oops", "purge_control"),
        ("mcp__bsd__search_extracted", {}, "search_extracted"),
        ("anything__purge_control", {}, "purge_control"),
        ("restore", {"entry_id": "e1"}, "restore"),
        ("restore", {"entry": "e1"}, "restore"),
        ("restore", {}, "restore"),
        ("restore", "oops", "restore"),
        ("restore", {"snapshot": "of a database"}, None),
        ("mcp__bsd__restore", {"snapshot": "x"}, "restore"),
        ("BrainSurgeon__context", {}, "context"),
        ("postgres__restore", {"entry_id": "e1"}, None),
        ("mcp__bsd__read_extracted", {}, "read_extracted"),
        ("bsd_restore_remote", {}, "restore_remote"),
        ("bsd_restore", {"snapshot": "x"}, "restore"),
        ("postgres_restore", {"entry_id": "e1"}, None),
        ("context", {"action": "replace", "targets": []}, "context"),
        ("context", {"action": "compress"}, None),
        ("context", "oops", None),
        ("restore_remote_host", {}, None),
        ("read", {"entry_id": "e1"}, None),
        ("", {}, None),
    ],
)
def test_tools_by_name(name: str, arguments: Any, tool: str | None) -> None:
    assert own_tool_name(name, arguments) == tool


@pytest.mark.parametrize(
    ("command", "ran"),
    [
        ("bsd restore_remote --session s --entry e", ShellCommand("restore_remote", alone=True)),
        ("/usr/local/bin/bsd --root '/a b' restore_remote --entry e",
         ShellCommand("restore_remote", alone=True)),
        ("OPENCLAW_ROOT=/x bsd purge_control restore e", ShellCommand("purge_control", alone=True)),
        ("cd /tmp && bsd restore main/s e", ShellCommand("restore", alone=False)),
        ("ls; bsd purge_control get_context | cat", ShellCommand("purge_control", alone=False)),
        ("bsd set-extractable main/s e false", None),  # for people
        (["bsd", "restore_remote", "--entry", "e"], ShellCommand("restore_remote", alone=True)),
        ("echo 'bsd restore_remote --entry e'", None),
        ("grep restore_remote notes.txt", None),
        ("bsd status", None),
        ("bsd show main/s --entry restore", None),
        ("bsd 'unclosed restore_remote", None),
        ("", None),
        (7, None),
    ],
)  # fmt: skip
def test_commands_that_a_shell_ran(command: Any, ran: ShellCommand | None) -> None:
    for name, key in (("exec", "command"), ("mcp__host__Bash", "cmd")):
        found = find_shell_command(OPENCLAW.command(name, {key: command}))
        assert (found and ShellCommand(found.tool, found.alone)) == ran
    assert OPENCLAW.command("read", {"command": command}) is None


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("--json restore_remote --session s --entry e --keys a,b",
         {"session": "s", "entry": "e", "keys": ["a", "b"]}),
        ("purge_control set_extractable e1 false --session a/s",
         {"action": "set_extractable", "entry": "e1", "value": "false", "session": "a/s"}),
        ("purge_control --action restore --entry e1", {"action": "restore", "entry": "e1"}),
        ("restore_remote --help", None),
        ("restore_remote --nonsense", None),
        ("purge_control restore e1 e2 e3", None),
        ("restore main/s e1", None),
    ],
)  # fmt: skip
def test_what_a_command_was_given(words: str, arguments: dict[str, Any] | None) -> None:
    ran = find_shell_command(f"bsd {words}")
    assert ran is not None
    assert ran.arguments == arguments


def test_a_shell_without_arguments() -> None:
    assert find_shell_command(OPENCLAW.command("exec", None)) is None
    assert find_shell_command(OPENCLAW.command("exec", {})) is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"toolCall","name":"restore","arguments":{}}',
        b'{"type":"toolCall","name": "mcp__bsd__context" ,"arguments":{}}',
        b'{"name":"purge_control"}',
        b'{"name":"exec","arguments":{"command":"bsd restore main/s e"}}',
        b'{"name":"exec","arguments":{"command":"/opt/bsd --root x purge_control get_context"}}',
        b'{"name":"exec","arguments":{"command":["bsd","restore_remote","--entry","e"]}}',
    ],
)
def test_no_line_with_a_call_is_passed_over(raw: bytes) -> None:
    assert any(needle in raw for needle in NEEDLES)
