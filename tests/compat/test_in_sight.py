"""bsd counts as sent exactly the texts that the program sends, after compactions and rewinds
too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.planning.context_window import ContextWindow
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.pi import PI
from tests.compat import pi_program
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model
from tests.compat.pi_program import Pi
from tests.compat.terminal import Terminal

pytestmark = pytest.mark.compat

UP = "\x1b[A"


def counted(path: Path, fmt: TranscriptFormat) -> set[str]:
    """Return the results in context, by the ids of their calls."""
    entries: list[Any] = [json.loads(line) for line in path.read_bytes().splitlines()]
    context, info = ContextWindow(), list(map(fmt.info, entries))
    for index, found in enumerate(info):
        if not found.is_header:
            context.follow(index, found)
    rows = [found for found in info if not found.is_header]
    return {one.result_of for row, one in enumerate(rows) if one.result_of and context.sent(row)}


def sent(model: Model) -> set[str]:
    """Return the results in the newest request, in the same form."""
    [*_, newest] = [request for request in model.requests if request.get("tools")]
    blocks = [block for message in newest["messages"] for block in message["content"]]
    return {
        block["tool_use_id"]
        for block in blocks
        if isinstance(block, dict) and block["type"] == "tool_result"
    }


def test_a_session_that_was_not_compacted(claude: ClaudeCode, session: str, model: Model) -> None:
    claude.run("And now?", "--resume", session)
    assert counted(claude.path(session), CLAUDE_CODE) == sent(model)
    assert len(sent(model)) == 3


def test_a_compacted_session(claude: ClaudeCode, session: str, model: Model) -> None:
    claude.run("/compact", "--resume", session)
    assert b'"preservedMessages"' in claude.path(session).read_bytes()
    claude.run("And now?", "--resume", session)
    assert counted(claude.path(session), CLAUDE_CODE) == sent(model) == set()


def compact_in(terminal: Terminal, claude: ClaudeCode, path: Path, option: str) -> None:
    """Go back to the second prompt, and choose an offer there."""
    terminal.type("/rewind")
    for _ in range(2):
        terminal.type(UP, enter=False)
    terminal.type("")
    terminal.type(option, enter=False)
    terminal.wait_for(lambda: b'"compact_boundary"' in path.read_bytes(), "a compaction")
    terminal.wait_for(claude.is_idle, "the end of it")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("option", "results"), [("2", 2), ("3", 1)], ids=["from here", "up to here"]
)
def test_a_part_that_a_person_had_summarized(
    claude: ClaudeCode, session: str, model: Model, option: str, results: int
) -> None:
    path = claude.path(session)
    with claude.opened("--resume", session) as terminal:
        compact_in(terminal, claude, path, option)
    claude.run("And now?", "--resume", session)
    assert counted(path, CLAUDE_CODE) == sent(model)
    assert len(sent(model)) == results


@pytest.mark.soak
def test_a_session_that_a_person_took_back(claude: ClaudeCode, session: str, model: Model) -> None:
    path = claude.path(session)
    answers = path.read_bytes().count(b'"end_turn"')
    with claude.opened("--resume", session) as terminal:
        terminal.type("/rewind")
        for _ in range(2):
            terminal.type(UP, enter=False)
        terminal.type("")
        terminal.type("")  # the first offer, the conversation; the prompt may be edited then
        for _ in range(2):
            terminal.type("\x15", enter=False)  # without its last line, which names a call
        terminal.type("Or otherwise?")
        terminal.wait_for(
            lambda: path.read_bytes().count(b'"end_turn"') > answers, "another answer"
        )
    claude.run("And now?", "--resume", session)
    assert counted(path, CLAUDE_CODE) == sent(model)
    assert len(sent(model)) == 2


@pytest.mark.soak
def test_a_session_of_pi_is_compacted_and_taken_back(
    programs: str, model: Model, tmp_path: Path
) -> None:
    home = pi_program.home(tmp_path / "pi", tmp_path / "work", model)
    pi = Pi(home, pi_program.newest(programs))
    settings = {"compaction": {"keepRecentTokens": 1}}
    (home.source.parent / "settings.json").write_text(json.dumps(settings))
    path = pi_program.three_turns(pi)
    pi.run("And now?", "--continue")
    assert counted(path, PI) == sent(model)
    assert len(sent(model)) == 3
    with pi.commanded("--session", str(path)) as commands:
        commands.do("compact")
        commands.do("prompt", message="And then?")
    assert b'"type":"compaction"' in path.read_bytes()
    assert counted(path, PI) == sent(model)
    assert len(sent(model)) < 3
    # A user continues from before the compaction, as `/tree` permits.
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"type":"compaction"' in line)
    parent = json.loads(lines[at])["parentId"]
    note = {"type": "session_info", "id": "0badcafe", "parentId": parent, "name": "Back"}
    stamp = json.loads(lines[at])["timestamp"]
    path.write_bytes(b"".join([*lines, json.dumps(note | {"timestamp": stamp}).encode(), b"\n"]))
    pi.run("And before?", "--session", str(path))
    assert counted(path, PI) == sent(model)
    assert len(sent(model)) == 3
