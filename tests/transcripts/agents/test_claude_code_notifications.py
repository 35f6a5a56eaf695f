"""Reports of Claude Code's background tasks: the program looks for their text when it resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_line, claude_code_lines
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, Home

REPORT = (
    "<task-notification>\n<task-id>a7be2f0c41d9</task-id>\n<status>completed</status>\n"
    f"<summary>Agent finished</summary>\n<result>{LONG}</result>\n</task-notification>"
)
ORIGIN = {"kind": "task-notification", "producer": "session-task"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LONG}}


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


NOTIFICATIONS = {
    "text": claude_code_line(3, "user", REPORT, origin=ORIGIN),
    "blocks": claude_code_line(3, "user", [block(REPORT), PICTURE], origin=ORIGIN),
    "other words": claude_code_line(3, "user", f"A task has ended: {LONG}", origin=ORIGIN),
    "no origin, as version 2.1.39 writes it": claude_code_line(3, "user", REPORT),
    "reminder": claude_code_line(
        3, "user", [block(f"<system-reminder>\n{REPORT}\n</system-reminder>")]
    ),
    "joined": claude_code_line(3, "user", f"{LONG}\n{REPORT}", origin={"kind": "human"}),
}


def bsd(home: Home, *arguments: str) -> dict[str, Any]:
    config = home.layout.root / "bsd.toml"
    config.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home.source}"\n')
    where = ("--root", str(home.layout.root), "--config", str(config))
    done = forked.run(*where, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def with_notification(top: Path, notification: dict[str, Any]) -> Home:
    """A session of four turns; a report begins the second, and a person's prompt the third."""
    lines = claude_code_lines(4)
    line = {**notification, "uuid": lines[8]["uuid"], "parentUuid": lines[8]["parentUuid"]}
    lines[8] = line
    lines[15]["message"]["content"] = f"My own words: {LONG}"
    return Home.of(CLAUDE_CODE, top, lines)


@pytest.mark.parametrize("kind", NOTIFICATIONS)
def test_a_report_stays_whatever_the_settings_say(tmp_path: Path, kind: str) -> None:
    home = with_notification(tmp_path, NOTIFICATIONS[kind])
    before = home.path.read_bytes().splitlines()
    for name, value in EVERYTHING.items():
        bsd(home, "config", "set", name, json.dumps(value))
    bsd(home, "extract", str(home.name))
    after = home.path.read_bytes().splitlines()
    assert after[8] == before[8]
    assert b"[[extracted-" in after[15], "what a person has typed leaves by these settings"


def test_nor_does_it_leave_when_it_is_named(tmp_path: Path) -> None:
    home = with_notification(tmp_path, NOTIFICATIONS["text"])
    before = home.path.read_bytes().splitlines()
    entry = json.loads(before[8])["uuid"]
    bsd(home, "set-extractable", str(home.name), entry, "true")
    bsd(home, "extract", str(home.name))
    kept = json.loads(home.path.read_bytes().splitlines()[8])
    assert kept["message"] == json.loads(before[8])["message"]
