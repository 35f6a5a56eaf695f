"""Values that Claude Code never sends leave its sessions, and its requests stay the same.

Each session is resumed twice at the same place: as the program left it, and after values have
left it. The requests must be the same both times.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.compat import claude_code
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model, asking

pytestmark = pytest.mark.compat

Json = dict[str, Any]

SEQUENCES = {
    "SessionStart": "seq 100 300",
    "UserPromptSubmit": "seq 400 600",
    "PreToolUse": "seq 1000 1200; seq 1300 1400 >&2",
    "PostToolUse": "seq 2000 2200; seq 2300 2400 >&2",
    "Stop": "seq 4000 4200",
}
SAYS = {
    "systemMessage": "for a person " * 40,
    "hookSpecificOutput": {
        "hookEventName": "PostToolUse",
        "additionalContext": "for the model " * 40,
    },
}


def hooks() -> Json:
    """Hooks with long output: as text, as JSON, and with an error."""
    found = {event: [command] for event, command in SEQUENCES.items()}
    found["PostToolUse"] += [f"echo '{json.dumps(SAYS)}'", "seq 5000 5200 >&2; exit 1"]
    found["SessionStart"].append("seq 6000 6200 >&2; exit 1")
    return {
        event: [{"hooks": [{"type": "command", "command": one} for one in commands]}]
        for event, commands in found.items()
    }


@pytest.fixture(scope="module")
def full_template(
    programs: str, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ClaudeCode, str]:
    """A home with a session that has every kind of record that the program writes."""
    assert programs
    served.thinks = False
    top = tmp_path_factory.mktemp("unsent")
    beside = claude_code.home(top / "template", top / "work", served)
    claude = ClaudeCode(beside, claude_code.newest())
    settings = beside.source.parent / "settings.json"
    settings.write_text(json.dumps({"hooks": hooks()}))
    book = beside.work / "book.txt"
    book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(100)))
    count = ("Bash", {"command": "seq 1 600", "description": "Count"})
    task = {
        "description": "Count",
        "prompt": asking("Count.", count, count),
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    session = claude.run(asking("Look at @book.txt and count.", count, ("Task", task)))
    claude.run(asking("Once more.", count), "--resume", session)
    with_progress(claude.path(session))
    claude.run("Thank you.", "--resume", session)
    return claude, session


@pytest.fixture
def full(full_template: tuple[ClaudeCode, str], tmp_path: Path) -> tuple[ClaudeCode, str]:
    """A copy of that home, from which no value was extracted yet."""
    claude, session = full_template
    return ClaudeCode(claude.beside.copy_to(tmp_path / "claude"), claude_code.newest()), session


def with_progress(path: Path) -> None:
    """Insert, before the result of the task, the lines that older versions write while a
    subagent works.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    entries: list[Json] = [json.loads(line) for line in lines]
    at = next(
        number
        for number, entry in enumerate(entries)
        if entry["type"] == "user" and "agentId" in str(entry.get("toolUseResult"))
    )
    result = entries[at]
    parent, made, course = result["parentUuid"], [], []
    for number in range(8):
        course.append({"type": "user", "message": {"role": "user", "content": f"short {number}"}})
        data = {
            "type": "agent_progress",
            "agentId": "a9b4d10",
            "prompt": "Count.",
            "message": course[-1],
            "normalizedMessages": course[:],
        }
        known = {key: result[key] for key in ("sessionId", "version", "cwd", "timestamp")}
        entry = {"parentUuid": parent, "isSidechain": False, **known, "type": "progress"}
        entry |= {"data": data, "uuid": str(uuid4()), "toolUseID": "agent_msg_1"}
        parent = entry["uuid"]
        made.append(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
    result["parentUuid"] = parent
    lines[at] = json.dumps(result, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join([*lines[:at], *made, *lines[at:]]))


def kinds_away(path: Path) -> dict[str, set[str]]:
    """Return the kinds of lines with extracted values, and the values."""
    found: dict[str, set[str]] = {}
    for line in path.read_bytes().splitlines():
        entry: Json = json.loads(line)
        if "_extracted" in entry:
            kind = entry["type"]
            if kind == "attachment":
                kind = entry["attachment"]["type"]
            keys = {key.partition("[")[0] for key in entry["_extracted"]["keys"]}
            found.setdefault(kind, set()).update(keys)
    return found


def requests_of(model: Model, go: Callable[[], object]) -> list[Json]:
    """The requests of a call, without requests for uses other than the session's."""
    model.requests.clear()
    go()
    return [request for request in model.requests if request.get("tools")]


def sends_the_same(
    claude: ClaudeCode, model: Model, change: Callable[[], object], go: Callable[[], object]
) -> None:
    """The home sends the same requests before and after a change."""
    top = claude.beside.top
    aside = top.with_name("aside")
    shutil.copytree(top, aside, symlinks=True)
    expected = requests_of(model, go)
    assert expected
    shutil.rmtree(top)
    shutil.copytree(aside, top, symlinks=True)
    change()
    assert requests_of(model, go) == expected
    assert model.refused == []


RECORDS = {
    "api-request": {"params", "tail"},
    "api-request-shape": {"shape"},
    "api-request-blob": {"message.content"},
}
UNSENT = RECORDS | {
    "progress": {"data.normalizedMessages"},
    "hook_success": {"attachment.stdout", "attachment.stderr", "attachment.content"},
    "hook_non_blocking_error": {"attachment.stderr"},
    "hook_system_message": {"attachment.content"},
    "user": {"toolUseResult.stdout"},
}


def ask(claude: ClaudeCode, session: str) -> None:
    """Continue in print mode."""
    claude.run("And now?", "--resume", session)


def ask_in_terminal(claude: ClaudeCode, session: str) -> None:
    """Continue in a terminal, as a person does."""
    path = claude.path(session)
    answers = path.read_bytes().count(b'"end_turn"')
    with claude.opened("--resume", session) as terminal:
        terminal.type("And now?")
        terminal.wait_for(lambda: path.read_bytes().count(b'"end_turn"') > answers, "an answer")


@pytest.mark.parametrize(
    "go_on", [ask, pytest.param(ask_in_terminal, marks=pytest.mark.soak)], ids=["print", "terminal"]
)
@pytest.mark.parametrize(
    "only_records", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["all", "records"]
)
def test_a_session_is_resumed_with_the_same_request(
    full: tuple[ClaudeCode, str],
    model: Model,
    go_on: Callable[[ClaudeCode, str], None],
    *,
    only_records: bool,
) -> None:
    claude, session = full
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.bsd("config", "set", "scope", "display")
    lean = b""

    def extract() -> None:
        nonlocal lean
        claude.beside.extract()
        if only_records:  # all other lines are whole again
            lines = zip(original.splitlines(True), path.read_bytes().splitlines(True), strict=True)
            path.write_bytes(b"".join(was if b'"uuid"' in was else now for was, now in lines))
        assert kinds_away(path) == (RECORDS if only_records else UNSENT)
        lean = path.read_bytes()

    written: list[Counter[str]] = []

    def go() -> None:
        before = len(path.read_bytes())
        go_on(claude, session)
        added = path.read_bytes()[before:].splitlines()
        written.append(
            Counter(kind for line in added if (kind := json.loads(line)["type"]) in RECORDS)
        )

    sends_the_same(claude, model, extract, go)
    assert written[0] == written[1], "it knows what it has recorded"
    grown = path.read_bytes()
    assert grown.startswith(lean)
    claude.beside.restore_all()
    assert path.read_bytes().startswith(original)
    assert kinds_away(path) == {}
