"""Models that call bsd's tools in their own sessions, in the shipped programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.transcripts.agents.codex import CODEX
from tests.actions import performed
from tests.actions.performed import Caller
from tests.compat import pi_program
from tests.compat.claude_code import ClaudeCode
from tests.compat.codex import Codex
from tests.compat.messages_api import Model, asking
from tests.compat.pi_program import Pi
from tests.compat.provider import provider
from tests.transcripts.agents.sources.tree import EVERYTHING, without_restored
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.compat


def a_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return an extracted result: its entry, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        entry = json.loads(now)
        if "message.content[0].content" in entry.get("_extracted", {}).get("keys", ()):
            text = json.loads(was)["message"]["content"][0]["content"]
            assert isinstance(text, str)
            return entry["uuid"], text
    raise AssertionError("no result is away")


def server(root: Path) -> dict[str, Any]:
    words = ["-m", "bsd", "--root", str(root), "mcp", "--tools", "sessions"]
    return {"command": sys.executable, "args": words}


def test_claude_code_gives_its_model_the_text_in_the_same_turn(
    claude: ClaudeCode, session: str, model: Model
) -> None:
    path = claude.path(session)
    before = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    entry, text = a_result(before, lean)
    servers = {"mcpServers": {"bsd": server(claude.beside.root)}}
    options = ["--resume", session, "--mcp-config", json.dumps(servers), "--strict-mcp-config"]
    prompt = asking(
        "What was it?",
        ("mcp__bsd__restore_remote", {"entry": entry, "inline": True}),
        ("mcp__bsd__read_extracted", {"entry": entry, "keys": ["content"]}),
        ("mcp__bsd__purge_control", {"action": "get_context"}),
    )
    assert claude.run(prompt, *options) == session
    (restored, given), (read, given_again), (listed, _) = map(parted, model.results()[-3:])
    assert path.read_bytes().startswith(lean), "nothing of it was changed"
    assert given == text
    assert given_again.startswith(text), "and the copy for the program's own page"
    assert (restored["restored"], restored["inline"]) == (False, "not in this program")
    assert restored["session"] == read["session"] == listed["session"]
    assert listed["session"].endswith(f"/{session}")
    claude.beside.restore_all()
    assert path.read_bytes().startswith(before)


def test_claude_code_shows_its_model_a_long_value_of_json_whole_and_once(
    claude: ClaudeCode, session: str, model: Model
) -> None:
    """60,000 characters: as JSON within JSON they would be more, and go to a file instead."""
    path = claude.path(session)
    rows = [{"name": f"row {number}", "path": "C:\\a\\b", "n": number} for number in range(2000)]
    text = json.dumps(rows)[:59_998] + '"]'
    assert len(text) == 60_000
    before, entry = with_result(path.read_bytes(), text)
    path.write_bytes(before)
    claude.beside.extract()
    lean = path.read_bytes()
    assert text.encode() not in lean
    servers = {"mcpServers": {"bsd": server(claude.beside.root)}}
    options = ["--resume", session, "--mcp-config", json.dumps(servers), "--strict-mcp-config"]
    call = {"entry": entry, "inline": True}
    assert claude.run(asking("What was it?", ("mcp__bsd__restore_remote", call)), *options)
    answer, given = parted(model.results()[-1])
    assert given == text, "all of it, as it is"
    assert "".join(model.results()).count(text[1000:2000]) == 1, "once"
    assert list(answer["beside"].values()) == ["the same as message.content[0].content"]
    assert not model.refused
    # The program's record of it is a session like any other.
    assert path.read_bytes().startswith(lean)
    claude.run("Thank you.", "--resume", session)
    assert not model.refused
    claude.beside.restore_all()
    assert path.read_bytes().startswith(before)


def with_result(content: bytes, text: str) -> tuple[bytes, str]:
    """A session with this text as its first tool result; return its copy and the entry's id."""
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        entry = json.loads(line)
        blocks = entry.get("message", {}).get("content")
        if isinstance(blocks, list) and blocks[0]["type"] == "tool_result":
            blocks[0]["content"] = text
            entry["toolUseResult"] = {"stdout": text, "stderr": "", "interrupted": False}
            lines[number] = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
            return b"".join(lines), entry["uuid"]
    raise AssertionError("there is no result")


def parted(result: str) -> tuple[Any, str]:
    """Split an answer: its own sentence, and the text after it."""
    said, end = json.JSONDecoder().raw_decode(result)
    return said, result[end:]


@pytest.mark.parametrize("mode", [None, pytest.param("legacy", marks=pytest.mark.soak)])
def test_codex_gives_its_model_the_text_in_the_same_turn(
    codex_program: str, tmp_path: Path, mode: str | None
) -> None:
    with provider() as served:
        codex = Codex.at(codex_program, tmp_path, served)
        thread = codex.legacy_thread() if mode else codex.thread()
        path, name = codex.file(thread), codex.name(thread)
        before = path.read_bytes()
        caller = Caller(layout=codex.layout, config=ConfigService(codex.layout.config_file))
        assert caller.extract(name, overrides=EVERYTHING).values
        lean = path.read_bytes()
        entry, text = an_output(before, lean)
        settings = tmp_path / "bsd.toml"
        settings.write_text(f'[[sources]]\nkind = "codex"\npath = "{codex.home}/sessions"\n')
        words = [*server(codex.layout.root)["args"], "--config", str(settings)]
        with (codex.home / "config.toml").open("a") as config:
            config.write(f"[mcp_servers.bsd]\ncommand = {json.dumps(sys.executable)}\n")
            config.write(
                f"args = {json.dumps(words)}\nstartup_timeout_sec = {DEADLINE_SECONDS:.0f}\n"
            )
        with codex.server() as app:
            app.call("thread/resume", threadId=thread)
            while "mcp__bsd" not in json.dumps(served.requests[-1].get("tools")):
                app.turn(thread, "are they there?")
            arguments = json.dumps({"entry": entry, "inline": True})
            called = {"name": "restore_remote", "namespace": "mcp__bsd", "arguments": arguments}
            served.calls.append(called)
            app.turn(thread, "what was it?")
        output = served.requests[-1]["input"][-1]
        assert output["type"] == "function_call_output"
        given = json.dumps(output)
        assert json.dumps(text)[1:60] in given.replace("\\\\", "\\")
        assert "not in this program" in given
        assert str(name) in given, "it has found its own session"
        assert path.read_bytes().startswith(lean), "nothing of it was changed"
        codex.rest()
        assert performed.restore_all(caller, name).values
        assert without_restored(path.read_bytes()).startswith(before)


@pytest.mark.soak
def test_pis_model_gets_the_text_from_its_shell(
    programs: str, model: Model, tmp_path: Path
) -> None:
    """pi has no MCP of its own; a program that its shell starts still finds the session."""
    pi = Pi(pi_program.home(tmp_path, tmp_path / "work", model), pi_program.newest(programs))
    path = pi_program.three_turns(pi)
    before = path.read_bytes()
    pi.beside.extract()
    lean = path.read_bytes()
    entry, text = a_tool_result(before, lean)
    bsd = " ".join(pi.beside.bsd_command("restore_remote", "--entry", entry, "--json"))
    pi.run(asking("What was it?", ("bash", {"command": bsd})), "--continue")
    answer = json.loads(model.results()[-1])
    assert text in answer["texts"].values()
    assert answer["session"].endswith(f"/{path.stem}")
    assert answer["inline"] == "not in this program"
    assert path.read_bytes().startswith(lean), "nothing of it was changed"
    pi.beside.restore_all()
    assert without_restored(path.read_bytes()).startswith(before)


def a_tool_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return an extracted result: its entry, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        entry = json.loads(now)
        if "_extracted" in entry and entry["message"]["role"] == "toolResult":
            text = json.loads(was)["message"]["content"][0]["text"]
            assert isinstance(text, str)
            return entry["id"], text
    raise AssertionError("no result is away")


def an_output(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return an extracted output: its entry, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        entry = json.loads(now)
        if "payload.output" in entry.get("_extracted", {}).get("keys", ()):
            output = json.loads(was)["payload"]["output"]
            assert isinstance(output, str)
            return str(CODEX.info(entry).id), output
    raise AssertionError("no output is away")
