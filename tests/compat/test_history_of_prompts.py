"""Claude Code's history of prompts, and its names of projects' directories."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest

from bsd.core.layout import SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance.vanished import prompts_of, vanished_sessions
from bsd.transcripts.agents.claude_code.history import project_name
from bsd.transcripts.agents.programs import layout_of
from tests.compat.claude_code import ClaudeCode

pytestmark = pytest.mark.compat

TEXTS = ["Where is the \N{ROCKET} basket?", 'And the "other" one?']


def test_of_a_session_that_is_deleted_the_prompts_are_left(claude: ClaudeCode) -> None:
    history = claude.beside.source.parent / "history.jsonl"
    before = set(claude.beside.files())

    def noted() -> list[str]:
        lines = history.read_bytes().splitlines() if history.exists() else []
        return [json.loads(line)["display"] for line in lines]

    with claude.opened() as terminal:
        for number, text in enumerate(TEXTS, 1):
            terminal.type(text)
            expected = TEXTS[:number]
            terminal.wait_for(partial(lambda all_: noted() == all_, expected), "the history")
            terminal.wait_for(claude.is_idle, "an answer")
    [path] = set(claude.beside.files()) - before
    assert noted()[:2] == TEXTS
    line = json.loads(history.read_bytes().splitlines()[0])
    assert line.keys() == {"display", "pastedContents", "timestamp", "project", "sessionId"}
    assert line["sessionId"] == path.stem
    source = SourceSettings(kind="claude-code", path=claude.beside.source)
    layout, later = layout_of(claude.beside.root, [source]), time.time() + 120
    assert vanished_sessions(layout, later).sessions == []
    path.unlink()
    [found] = vanished_sessions(layout, later).sessions
    assert found.name == SessionName(f"claude-code:{path.parent.name}", path.stem)
    assert (found.project, found.title) == (str(claude.beside.work), TEXTS[0])
    _, prompts = prompts_of(layout, found.name, later)
    assert [prompt.text for prompt in prompts][:2] == TEXTS


@pytest.mark.parametrize(
    "name",
    ["a shop_2.0", "café \N{ROCKET}", "/".join(["long" * 12] * 6)],
    ids=["plain", "wide", "long"],
)
def test_a_projects_directory_is_called_so(claude: ClaudeCode, tmp_path: Path, name: str) -> None:
    where = tmp_path / name
    where.mkdir(parents=True)
    session = claude.run("Thank you.", cwd=where)
    assert claude.path(session).parent.name == project_name(str(where))
