"""Agents that call the tools in their sessions, beside a real daemon that is killed in between."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bsd.core.audit import AuditLog
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from tests.daemon.running import Running, configure, launched
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.session_files import HEADER, Talk, call, text
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

LONG = "lorem ipsum dolor sit amet " * 40
LOG = "BEGIN OF LOG " + "noise " * 40 + "END OF LOG"
# A second replacement would contain the first.
NESTED = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": f"<{LOG}>"}


class AgentProgram:
    """The writer of a session; it appends lines as an agent's program does."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / "agents" / "main" / "sessions" / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._numbers: Iterator[int] = count(1)

    def write(self, *entries: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]

    def entry(self, entry_id: str) -> dict[str, Any]:
        (found,) = [one for one in self.entries() if one.get("id") == entry_id]
        return found

    # --- an agent's actions, in this format ---

    def begin(self) -> None:
        raise NotImplementedError

    def turn(self, *calls: tuple[str, dict[str, Any], str]) -> None:
        """Call tools, get the program's answers, and end the turn."""
        raise NotImplementedError

    def results(self) -> dict[str, str]:
        """The texts of results, by entry."""
        raise NotImplementedError


class OpenClawProgram(AgentProgram):
    def begin(self) -> None:
        self._talk = Talk()
        self.write(HEADER)
        self.turn(("read", {"path": "a"}, LONG), ("read", {"path": "b"}, LOG))
        for _ in range(3):
            self.turn()

    def turn(self, *calls: tuple[str, dict[str, Any], str]) -> None:
        begun = len(self._talk.entries)
        self._talk.user("go on")
        for name, arguments, answer in calls:
            asked = f"c{next(self._numbers)}"
            self._talk.says(call(asked, name, **arguments))
            self._talk.answers(asked, answer, name)
        self._talk.says(text("well"))
        self.write(*self._talk.entries[begun:])

    def results(self) -> dict[str, str]:
        return {
            entry["id"]: entry["message"]["content"][0]["text"]
            for entry in self.entries()
            if entry["type"] == "message" and entry["message"]["role"] == "toolResult"
        }


class FlatProgram(AgentProgram):
    def begin(self) -> None:
        self.turn(("read", {"path": "a"}, LONG), ("read", {"path": "b"}, LOG))
        for _ in range(3):
            self.turn()

    def turn(self, *calls: tuple[str, dict[str, Any], str]) -> None:
        lines: list[dict[str, Any]] = [{"type": "user", "content": "go on"}]
        for name, arguments, answer in calls:
            call = f"c{next(self._numbers)}"
            lines.append({"type": "tool_call", "id": call, "name": name, "arguments": arguments})
            lines.append(
                {"type": "tool_result", "toolCallId": call, "name": name, "output": answer}
            )
        lines.append({"type": "assistant", "content": "well"})
        for line in lines:
            line.setdefault("id", f"e{next(self._numbers)}")
        self.write(*lines)

    def results(self) -> dict[str, str]:
        return {one["id"]: one["output"] for one in self.entries() if one["type"] == "tool_result"}


def test_two_agents_and_a_daemon_that_is_killed(tmp_path: Path, root: Path) -> None:
    require_linux()
    configure(root, retention="never")
    programs: list[AgentProgram] = [OpenClawProgram(root, "openclaw"), FlatProgram(root, "flat")]
    for program in programs:
        program.begin()
        set_idle(program.path)
    with launched(root, tmp_path) as daemon:
        wait_for(lambda: all(map(is_away, programs)), "the first extraction")
        olds = [first(program) for program in programs]
        restore_in_band(programs, olds)
        wait_for(lambda: all(map(is_back, programs, olds)), "the restorations")
        for program, old in zip(programs, olds, strict=True):
            # They continue, pin the restored value, and discard the log.
            program.turn()
            pin = {"action": "set_extractable", "entry": old, "value": False}
            replace = {"action": "replace", "targets": [NESTED]}
            program.turn(("purge_control", pin, "?"), ("context", replace, "?"))
        killed(daemon, root)
    with launched(root, tmp_path) as daemon:
        wait_for(lambda: all(map(is_replaced, programs)), "what the killed one has left undone")
        wait_for(lambda: len(in_band(root)) >= 4, "the audit")
        wait_for(daemon.is_running, "the daemon to be ready")
        for program in programs:
            program.turn()
        now = iso_utc(time.time())
        wait_for(lambda: looked_at(daemon, since=now) >= {"main/openclaw", "main/flat"}, "a look")
    for program, old in zip(programs, olds, strict=True):
        assert program.results()[old] == LONG
        assert program.entry(old)["_extractable"] is False
        assert list(program.results().values()).count(f"<{LOG}>") == 1
        text = program.path.read_text()
        assert "<<BEGIN" not in text
        assert "restore_remote" not in text
        assert text.count('"_redacted"') == 4
    actions = [line["action"] for line in in_band(root)]
    assert set(actions) == {"restore", "set_extractable", "replace"}
    assert max(map(actions.count, actions)) <= 2, "once for each agent"


def first(program: AgentProgram) -> str:
    return next(iter(program.results()))


def is_away(program: AgentProgram) -> bool:
    return program.results()[first(program)].startswith("[[extracted-")


def restore_in_band(programs: list[AgentProgram], olds: list[str]) -> None:
    for program, old in zip(programs, olds, strict=True):
        program.turn(("restore_remote", {"session": program.path.stem, "entry": old}, "?"))


def is_back(program: AgentProgram, old: str) -> bool:
    return program.results()[old] == LONG


def is_replaced(program: AgentProgram) -> bool:
    return f"<{LOG}>" in program.results().values()


def killed(daemon: Running, root: Path) -> None:
    """Kill the daemon as soon as it has begun work on the last calls."""
    before = len(in_band(root))
    wait_for(lambda: in_flight(root) or len(in_band(root)) > before, "it to begin")
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL


def in_flight(root: Path) -> bool:
    return any((root / ".brainsurgeon").rglob("*.pending"))


def looked_at(daemon: Running, *, since: str) -> set[str]:
    """The sessions that the daemon has finished; a session in use is not among them."""
    sessions = daemon.status()["sessions"]
    return {one["session"] for one in sessions if one["at"] > since and one["status"] != "busy"}


def in_band(root: Path) -> list[dict[str, Any]]:
    return list(AuditLog(Layout(root).audit_file).search(b'"inBand":true'))
