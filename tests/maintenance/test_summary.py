"""Summary of a session by plain rules; extracted values are part of it, too."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.tree import Home

NAME = SessionName("main", "s1")
HEADER: dict[str, Any] = {"type": "session", "version": 3, "id": "s"}


def message(number: int, role: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"e{number}",
        "timestamp": f"2026-02-01T{number // 60:02}:{number % 60:02}:00Z",
        "message": {"role": role, "content": list(blocks), **more},
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": f"c-{name}", "name": name, "arguments": arguments}


def result(number: int, words: str, **more: Any) -> dict[str, Any]:
    return message(number, "toolResult", text(words), toolCallId=f"c{number}", **more)


def told(layout: Layout, *entries: dict[str, Any]) -> dict[str, Any]:
    content = b"".join(json.dumps(one).encode() + b"\n" for one in (HEADER, *entries))
    add_session(layout.root, str(NAME), content)
    found: dict[str, Any] = performed.summary(layout, NAME)["summary"]
    return found


def test_all_fields_of_the_answer(layout: Layout) -> None:
    summary = told(
        layout,
        message(0, "user", text("Fix the   login\nplease")),
        message(
            1,
            "assistant",
            thinking("The cookie is the problem"),
            text("I looked at it. I fixed the cookie! The address is fine."),
            call("write", path="src/login.py", content="x"),
            call("bash", command="git add -A && git commit -m fix"),
            model="claude-opus-4-5",
        ),
        result(2, "no such file", isError=True),
        message(90, "user", text("thanks")),
    )
    assert summary == {
        "session_type": "development",
        "key_actions": ["I fixed the cookie!"],
        "user_requests": ["Fix the login please", "thanks"],
        "thinking_insights": ["The cookie is the problem"],
        "tools_used": ["write", "bash"],
        "models_used": ["claude-opus-4-5"],
        "errors": ["no such file"],
        "duration_estimate": "1h 30m",
        "message_count": 4,
        "user_messages": 2,
        "meaningful_messages": 3,
        "tool_calls": 2,
        "has_git_commits": True,
        "files_created": ["src/login.py"],
    }
    whole = performed.summary(layout, NAME)
    named = ["session_id", "agent", "summary", "generated_at", "damaged", "left_alone", "resume"]
    assert list(whole) == [*named, "fills", "context"]
    assert {fill["what"] for fill in whole["fills"]} >= {"prompts", "tool calls: write"}
    assert whole["context"]["limit"] == 200_000
    assert abs(datetime.fromisoformat(whole["generated_at"]).timestamp() - time.time()) < 60


@pytest.mark.parametrize(
    "words",
    [
        "HEARTBEAT_OK",
        "Context compacted",
        "System: [cron] go",
        "You've been rate limited",
        "tokens: 5",
    ],
)
def test_what_runs_by_itself_is_not_meaningful(layout: Layout, words: str) -> None:
    summary = told(layout, message(0, "user", text(words)), message(1, "user", text("hello")))
    assert (summary["user_messages"], summary["meaningful_messages"]) == (2, 1)
    assert summary["user_requests"] == ["hello"]


def test_the_types_of_sessions(layout: Layout) -> None:
    calls = [message(n, "assistant", call("read", path=str(n))) for n in range(5)]
    talk = [message(n, "user", text(f"word {n}")) for n in range(31)]
    assert told(layout, *calls)["session_type"] == "chat"
    assert told(layout, *calls, calls[0])["session_type"] == "tool_heavy"
    assert told(layout, *talk[:30])["session_type"] == "chat"
    assert told(layout, *talk)["session_type"] == "long_chat"


def test_lists_are_short_and_hold_nothing_twice(layout: Layout) -> None:
    entries = [
        message(n, "assistant", thinking(f"t{n // 2}" * 300), text(f"Add {n}."), call(f"tool{n}"))
        for n in range(40)
    ]
    entries += [message(n, "user", text(f"ask {n // 2}")) for n in range(40, 58)]
    entries += [result(n, f"bad {n}", isError=True) for n in range(6)]
    entries += [message(n, "assistant", call("write", path=f"f{n}")) for n in range(12)]
    summary = told(layout, *entries)
    lengths = {key: len(value) for key, value in summary.items() if isinstance(value, list)}
    assert lengths == {
        "key_actions": 5,
        "user_requests": 5,
        "thinking_insights": 5,
        "tools_used": 15,
        "models_used": 0,
        "errors": 3,
        "files_created": 8,
    }
    assert summary["user_requests"] == [f"ask {n}" for n in range(20, 25)]
    assert all(len(line) <= 200 for line in summary["thinking_insights"])


def test_what_was_taken_out_is_told(layout: Layout) -> None:
    long = message(1, "assistant", thinking("The wombat did it. " * 100), text("ok"))
    talk = [message(n, "assistant", text(f"seen {n}")) for n in range(3, 8)]
    asked = message(0, "user", text("who?")), message(2, "user", text("sure?"))
    before = told(layout, asked[0], long, asked[1], *talk)
    caller = Caller(
        layout=layout, config=ConfigService(layout.config_file), budget=RetryBudget(wait=0.0)
    )
    assert caller.extract(NAME).status is Status.EXTRACTED
    assert b"wombat" not in layout.session_file(NAME).read_bytes()
    assert performed.summary(layout, NAME)["summary"] == before


def test_what_cannot_be_summed_up_is_said_so(layout: Layout) -> None:
    add_session(layout.root, "main/foreign", b'{"hello":"world"}\n')
    with pytest.raises(LeftAlone, match="foreign"):
        performed.summary(layout, SessionName("main", "foreign"))
    with pytest.raises(NotFound):
        performed.summary(layout, SessionName("main", "nope"))


def test_a_session_that_may_only_be_read_is_summed_up(tmp_path: Path) -> None:
    home = Home.of(CODEX, tmp_path, CODEX.lines())
    before = performed.summary(home.layout, home.name)["summary"]
    header, rest = home.path.read_bytes().split(b"\n", 1)
    meta = json.loads(header)
    meta["payload"]["history_mode"] = "paginated"
    home.path.write_bytes(json.dumps(meta).encode() + b"\n" + rest)
    assert performed.summary(home.layout, home.name)["summary"] == before


def test_odd_lines_do_no_harm(layout: Layout) -> None:
    odd = message(0, "assistant", call("write", path=5), {"type": "toolCall", "id": "x"}, text(""))
    odd["message"]["content"] += [None, 7, {"type": "toolCall", "name": "n", "arguments": "no"}]
    summary = told(layout, odd, {"type": "message", "id": "m", "message": 3})
    assert summary["tools_used"] == ["write", "n"]
    assert summary["files_created"] == []
