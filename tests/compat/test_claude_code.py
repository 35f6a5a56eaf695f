"""Claude Code continues sessions with extracted values, and its copies get the values back."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest

from tests.compat import claude_code
from tests.compat.beside import placeholders
from tests.compat.claude_code import ClaudeCode, but_for_names, lines_by_id, three_turns
from tests.compat.messages_api import Model, asking
from tests.needs import NOBODY, as_ordinary_user

pytestmark = pytest.mark.compat


def test_it_goes_on_with_what_is_left_and_all_comes_back(
    claude: ClaudeCode, session: str, model: Model
) -> None:
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 8
    for options in (["--resume", session], ["--continue"], ["--resume", str(path)]):
        assert claude.run("And now?", *options) == session
    assert "[[extracted-" in json.dumps(model.requests[-1]["messages"])
    grown = path.read_bytes()
    assert grown.startswith(lean)
    claude.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    assert claude.run("And with all of it?", "--resume", session) == session
    assert "[[extracted-" not in json.dumps(model.requests[-1]["messages"])


@pytest.mark.soak
def test_compacted_sessions_get_all_back(claude: ClaudeCode, session: str) -> None:
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    claude.run("/compact", "--resume", session)
    claude.run("And now?", "--resume", session)
    grown = path.read_bytes()
    assert grown.startswith(lean)
    assert b'"compact_boundary"' in grown
    claude.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.mark.parametrize(
    "cut", [pytest.param(False, marks=pytest.mark.soak), True], ids=["all", "up to a message"]
)
def test_a_fork_gets_back_what_its_original_has_in_store(
    claude: ClaudeCode, session: str, tmp_path: Path, *, cut: bool
) -> None:
    """The session equals, line for line, a fork of the untouched session.

    A fork that ends earlier is the harder case; `make soak` also tries one of all messages.
    """
    fork = str(uuid4())
    options = ["--resume", session, "--fork-session", "--session-id", fork]
    if cut:
        options += ["--resume-session-at", message_in_the_middle(claude.path(session))]
    untouched = ClaudeCode(claude.beside.copy_to(tmp_path / "untouched"), claude.program)
    untouched.run("Otherwise?", *options)

    claude.beside.extract()
    lean = claude.path(session).read_bytes()
    assert claude.run("Otherwise?", *options) == fork
    assert claude.path(session).read_bytes() == lean
    assert placeholders(claude.path(fork).read_bytes()) > 0
    claude.beside.restore_all()
    assert copied(claude, fork, session) == copied(untouched, fork, session)
    assert claude.run("And now?", "--resume", fork) == fork


def message_in_the_middle(path: Path) -> str:
    """Return the id of an assistant's message in the first turn."""
    entries = map(json.loads, path.read_bytes().splitlines())
    ids: list[str] = [one["uuid"] for one in entries if one["type"] == "assistant"]
    return ids[2]


def copied(claude: ClaudeCode, fork: str, session: str) -> dict[str, bytes]:
    """Return the lines that a copy has from its original, without names that only the copy has."""
    originals = lines_by_id(claude.path(session).read_bytes())
    lines = lines_by_id(claude.path(fork).read_bytes())
    return {key: but_for_names(line) for key, line in lines.items() if key in originals}


@pytest.mark.soak
def test_a_fork_gets_all_back_when_its_original_is_gone(claude: ClaudeCode, session: str) -> None:
    original = lines_by_id(claude.path(session).read_bytes())
    claude.beside.extract()
    fork = claude.run("Otherwise?", "--resume", session, "--fork-session")
    claude.path(session).unlink()  # as Claude Code's clean-up deletes it
    claude.beside.restore_all()
    lines = lines_by_id(claude.path(fork).read_bytes())
    for key, line in original.items():
        assert but_for_names(lines[key]) == but_for_names(line)


@pytest.mark.soak
def test_a_project_that_was_moved_takes_its_sessions_along(
    claude: ClaudeCode, session: str
) -> None:
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.extract()
    moved = path.parent.with_name(f"{path.parent.name}-elsewhere")
    path.parent.rename(moved)
    claude.beside.restore_all()
    assert (moved / path.name).read_bytes() == original


def test_a_subagent_gets_all_back_and_a_fork_has_none(claude: ClaudeCode, session: str) -> None:
    count = ("Bash", {"command": "seq 2000 2600", "description": "Count"})
    task = {
        "description": "Count",
        "prompt": asking("Count.", count),
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    claude.run(asking("Let somebody count.", ("Task", task)), "--resume", session)
    claude.run("Thank you.", "--resume", session)
    [subagent] = claude.path(session).with_suffix("").glob("subagents/agent-*.jsonl")
    originals = {path: path.read_bytes() for path in (claude.path(session), subagent)}
    claude.beside.extract()
    assert all(placeholders(path.read_bytes()) for path in originals)
    fork = claude.run("Otherwise?", "--resume", session, "--fork-session")
    assert not claude.path(fork).with_suffix("").exists()
    claude.beside.restore_all()
    assert {path: path.read_bytes() for path in originals} == originals
    assert placeholders(claude.path(fork).read_bytes()) == 0


def test_a_subagent_goes_on_with_what_is_left_and_gets_all_back(
    claude: ClaudeCode, session: str, model: Model
) -> None:
    """The model sends an ended subagent a message: the program reads and extends its file."""
    count = ("Bash", {"command": "seq 2000 2600", "description": "Count"})
    task = {
        "description": "Count",
        "prompt": asking("Count.", count),
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    claude.run(asking("Let it count.", ("Task", task)), "--resume", session)
    claude.run("Thank you.", "--resume", session)
    [subagent] = claude.path(session).with_suffix("").glob("subagents/agent-*.jsonl")
    original = subagent.read_bytes()
    claude.beside.extract()
    lean = subagent.read_bytes()
    assert placeholders(lean) == 1
    on = asking("Go on.", ("Bash", {"command": "seq 3000 3100", "description": "Count on"}))
    sent = {"to": subagent.stem.removeprefix("agent-"), "summary": "go on", "message": on}
    again = asking(
        "Let it go on.",
        ("ToolSearch", {"query": "select:SendMessage"}),
        ("SendMessage", sent),
        ("Bash", {"command": wait_for_text(subagent, "3100"), "description": "Wait"}),
    )
    claude.run(again, "--resume", session)
    grown = subagent.read_bytes()
    assert grown.startswith(lean)
    assert b"3100" in grown[len(lean) :]
    asked = [request["messages"] for request in model.requests if request.get("tools")]
    [resumed, *_] = [each for each in asked if "Go on." in json.dumps(each[-1])]
    assert "[[extracted-" in json.dumps(resumed)
    claude.beside.restore_all()
    restored = subagent.read_bytes()
    assert restored.startswith(original)
    assert placeholders(restored) == 0


def wait_for_text(path: Path, text: str) -> str:
    """Return a command that ends when a file has a text, or after half a minute."""
    return (
        f"for n in $(seq 300); do grep -q {text} {shlex.quote(str(path))} && break; sleep 0.1; done"
    )


@pytest.mark.soak
def test_single_values_of_a_fork_are_restored(claude: ClaudeCode, session: str) -> None:
    """A person or the model requests values in turn, by the names of their entries."""
    originals = lines_by_id(claude.path(session).read_bytes())
    claude.beside.extract()
    fork = claude.run("Otherwise?", "--resume", session, "--fork-session")
    path = claude.path(fork)
    claude.beside.rest()
    away = [key for key, line in lines_by_id(path.read_bytes()).items() if b'"_extracted"' in line]
    assert len(away) > 3
    for key in away:
        done = claude.beside.bsd("restore", f"claude-code:{path.parent.name}/{fork}", key)
        assert done["restored"] is True
        claude.beside.rest()
    lines = lines_by_id(path.read_bytes())
    assert placeholders(path.read_bytes()) == 0
    for key in away:
        expected = json.loads(but_for_names(originals[key]))
        found = json.loads(but_for_names(lines[key]))
        del found["_restored"]
        assert found == expected
    assert claude.run("And now?", "--resume", fork) == fork


@pytest.mark.soak
def test_version_1_writes_a_session_anew_without_markers_and_all_comes_back(
    claude: ClaudeCode, session: str, programs: str, tmp_path: Path
) -> None:
    """New ids, no unknown keys, texts as blocks: only the placeholder is left."""
    untouched = ClaudeCode(claude.beside.copy_to(tmp_path / "untouched"), claude_code.old(programs))
    expected = untouched.path(untouched.run("Otherwise?", "--resume", session)).read_bytes()

    claude.beside.extract()
    old = ClaudeCode(claude.beside, claude_code.old(programs))
    path = old.path(old.run("Otherwise?", "--resume", session))
    assert path.stem != session
    written = path.read_bytes()
    assert b"_extracted" not in written
    assert placeholders(written) == 5
    claude.beside.restore_all()
    assert copied_by_version_1(path.read_bytes()) == copied_by_version_1(expected)


_ITS_OWN = re.compile(rb'"(?:uuid|parentUuid|sessionId|timestamp|leafUuid)":"[^"]*"')


def copied_by_version_1(content: bytes) -> list[bytes]:
    """Return the lines copied from the original, without the members that version 1 rewrites."""
    *lines, _, _ = content.splitlines()  # the prompt and its answer are new
    return [_ITS_OWN.sub(b"", line) for line in lines]


@pytest.mark.soak
def test_a_person_rewinds(claude: ClaudeCode, session: str) -> None:
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    with claude.opened("--resume", session) as terminal:
        terminal.type("/rewind")
        terminal.type("\x1b[A")  # the last prompt; then the first offer, the conversation
        terminal.type("")
        terminal.type(" Or otherwise?")  # after the prompt, which is there to edit
        terminal.wait_for(lambda: b"Or otherwise?" in path.read_bytes(), "a prompt")
        terminal.wait_for(claude.is_idle, "an answer")
    grown = path.read_bytes()
    assert grown.startswith(lean)
    added = [json.loads(line) for line in lines_by_id(grown[len(lean) :]).values()]
    prompt = next(line for line in added if "Or otherwise?" in json.dumps(line.get("message")))
    *_, last = lines_by_id(lean)
    assert prompt["parentUuid"] in lines_by_id(lean)
    assert prompt["parentUuid"] != last, "it goes on from an earlier line"
    claude.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.mark.soak
def test_a_person_renames_compacts_and_branches(claude: ClaudeCode, session: str) -> None:
    path = claude.path(session)
    original = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    with claude.opened("--resume", session) as terminal:
        terminal.type("/rename The book")
        terminal.wait_for(lambda: b'"custom-title"' in path.read_bytes(), "a new name")
        before = claude.beside.files()
        terminal.type("/branch Another way")
        terminal.wait_for(lambda: len(claude.beside.files()) > len(before), "a branch")
        branch = claude.beside.the_new_file(before)
        terminal.type("What else?")
        terminal.wait_for(lambda: b"What else?" in branch.read_bytes(), "a prompt there")
        terminal.wait_for(claude.is_idle, "an answer")
        terminal.type("/compact")
        terminal.wait_for(lambda: b'"compact_boundary"' in branch.read_bytes(), "a compaction")
    grown = path.read_bytes()
    assert grown.startswith(lean)
    assert b'"forkedFrom"' in branch.read_bytes()
    claude.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    lines = lines_by_id(branch.read_bytes())
    for key, line in lines_by_id(original).items():
        assert but_for_names(lines[key]) == but_for_names(line)


@pytest.mark.soak
def test_an_ordinary_user_gets_all_back(programs: str, model: Model) -> None:
    """The other tests run as an ordinary user too, unless the suite runs as root."""
    assert programs
    user = as_ordinary_user()
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        beside = claude_code.home(top / "claude", top / "work", model, user)
        if user:
            for path in (top, *top.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        claude = ClaudeCode(beside, claude_code.newest())
        session = three_turns(claude)
        original = claude.path(session).read_bytes()
        beside.extract()
        fork = claude.run("Otherwise?", "--resume", session, "--fork-session")
        beside.restore_all()
        assert claude.path(session).read_bytes() == original
        assert placeholders(claude.path(fork).read_bytes()) == 0
        assert claude.path(session).stat().st_uid == top.stat().st_uid
