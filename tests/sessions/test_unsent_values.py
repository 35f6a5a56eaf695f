"""Values that Claude Code never sends leave sessions at default settings, and come back exactly.

The sessions are those that users reported, where the shared files are available, and others of
their kinds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bsd.core.settings import SourceSettings
from bsd.maintenance import catalog
from bsd.maintenance.verify import verify
from bsd.transcripts.agents.programs import layout_of
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.tree import LONG, Home, away, without_restored
from tests.transcripts.agents.test_claude_code_records import BLOB, REQUEST, SHAPE

Json = dict[str, Any]


def beside(number: int, kind: str, **more: Any) -> Json:
    """A line that is no message, between others."""
    line = claude_code_line(number, kind, "")
    del line["message"]
    return line | more


def hook(number: int, kind: str, event: str, **more: Any) -> Json:
    attachment = {"type": kind, "hookEvent": event, "hookName": event, **more}
    return beside(number, "attachment", attachment=attachment)


def turn(first: int, *between: Json, model: str = "claude-opus-4-6") -> list[Json]:
    """A prompt, some lines of other kinds, and a signed answer."""
    answer = claude_code_line(
        first + 1 + len(between),
        "assistant",
        [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln" * 20},
            {"type": "text", "text": "done"},
        ],
        stop_reason="end_turn",
    )
    answer["message"] |= {"model": model, "id": f"msg_{first}"}
    return [claude_code_line(first, "user", "do it"), *between, answer]


def course(first: int) -> list[Json]:
    """Lines of an older version while a subagent works: its whole course, again and again."""
    steps: list[Json] = []
    lines = []
    for number in range(20):
        steps.append({"type": "assistant", "message": {"content": [{"text": f"step {number}"}]}})
        data = {
            "type": "agent_progress",
            "agentId": "a1",
            "message": steps[-1],
            "normalizedMessages": steps[:],
        }
        lines.append(beside(first + number, "progress", data=data, toolUseID=f"agent_{number}"))
    return lines


def printed(first: int) -> list[Json]:
    """Output of hooks: three lines that lose a value, and three that stay whole."""
    return [
        hook(first, "hook_success", "PostToolUse", stdout=LONG, stderr="", content=LONG),
        hook(first + 1, "hook_success", "UserPromptSubmit", stdout=LONG, content=LONG),
        hook(first + 2, "hook_non_blocking_error", "PreToolUse", stdout="", stderr=LONG),
        hook(first + 3, "hook_additional_context", "PostToolUse", content=[LONG]),
        hook(first + 4, "hook_non_blocking_error", "SessionStart", stdout="", stderr=LONG),
        beside(first + 5, "attachment", attachment={"type": "prompt_snapshot", "text": LONG}),
    ]


def short_turns(first: int) -> list[Json]:
    """Enough turns after the others to make them old."""
    return [*turn(first), *turn(first + 2), *turn(first + 4)]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-6"], ids=["free", "bound"])
def test_they_leave_whatever_a_signature_binds(tmp_path: Path, clock: Clock, model: str) -> None:
    records = [REQUEST, SHAPE, BLOB]
    lines = [*turn(0, *course(1), model=model), *turn(30, *printed(31), model=model), *records]
    home = Home.of(CLAUDE_CODE, tmp_path, [*lines, *short_turns(60)])
    old = home.path.read_bytes()
    caller = make_caller(home.layout, clock)
    result = caller.extract(home.name)
    new = home.path.read_bytes()
    assert result.tokens_saved == 0
    assert away(old, new) == result.values
    gone = [json.loads(line) for line in new.splitlines() if b'"_extracted"' in line]
    kinds = [one["type"] for one in gone]
    assert kinds.count("attachment") == 3
    assert kinds.count("progress") == 13, "those that are long enough as a whole"
    assert {one["type"] for one in gone} >= {one["type"] for one in records}
    assert all(one["data"]["agentId"] == "a1" for one in gone if one["type"] == "progress")
    assert verify(home.layout).clean
    [shape] = [one for one in gone if one["type"] == "api-request-shape"]
    entry = shape["shape"].removeprefix("[[extracted-").removesuffix("]]")
    assert performed.restore(caller, home.name, entry)["keys_restored"] == ["shape"]
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == new
    performed.restore_all(caller, home.name, leaving=True)
    assert home.path.read_bytes() == old


def test_a_record_without_marker_is_found_by_its_placeholder(tmp_path: Path, clock: Clock) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, [*turn(0), SHAPE, BLOB, *short_turns(2)])
    old = home.path.read_bytes()
    caller = make_caller(home.layout, clock)
    caller.extract(home.name)
    lines = [json.loads(line) for line in home.path.read_bytes().splitlines()]
    for line in lines:
        line.pop("_extracted", None)
    home.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    set_idle(home.path)
    performed.restore_all(caller, home.name)
    assert without_restored(home.path.read_bytes()) == old


@pytest.mark.parametrize(
    ("case", "left"), [("progress", 0.1), ("attachment", 0.85), ("twice", 0.5)]
)
def test_sessions_as_they_were_reported(
    case: str, left: float, shared_data: Path, tmp_path: Path, clock: Clock
) -> None:
    script = shared_data / "reports" / "cases.py"
    if not script.is_file():
        pytest.skip("needs the reported sessions in ../shared/data, which are not part of bsd")
    subprocess.run(
        [sys.executable, "-B", script.name, tmp_path, case], cwd=script.parent, check=True
    )
    source = SourceSettings(kind="claude-code", path=tmp_path / case / "projects")
    layout = layout_of(tmp_path / case / "root", [source])
    caller = make_caller(layout, clock)
    names = list(catalog.names(layout))
    assert names
    old = {name: layout.session_file(name).read_bytes() for name in names}
    for name in names:
        result = caller.extract(name)
        assert result.values > 0
        assert result.bytes_after < left * result.bytes_before
        assert "duplicate_entry_id" not in result.reasons
    assert verify(layout).clean
    for name in names:
        performed.restore_all(caller, name)
        assert without_restored(layout.session_file(name).read_bytes()) == old[name]
