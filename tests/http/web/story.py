"""A made-up fortnight of work on a harbour, as Claude Code writes it: sessions for pictures.

It has every kind of content that a reader meets in a session: Markdown, code, changes of files,
coloured output, a picture, thinking, a sub-agent.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.openclaw_tree import set_idle

MODEL = "claude-opus-4-6"
PROJECT = "-home-ada-harbour"
FLAKY = "5b0c7f1e-2a94-4d0e-9c41-7d3f0a6e21b8"
_HOUR = 3600.0
_EXPLORER = "a7be2f0c41d9"

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CASES = ("assigns_the_nearest", "waits_for_the_tide", "lets_pilots_rest", "counts_cranes")
_GREEN, _RED, _BOLD, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
_TIDES = '''"""Tide tables, by weekday."""

from datetime import date

from harbour.tables import TABLE, Tide


def tide_of(day: date) -> Tide:
    """Return the tide of a day."""
    return TABLE[day.weekday()]


def next_high_water(day: date, berth: str) -> Tide:
    """Return the next tide at which a berth is deep enough."""
    for offset in range(7):
        tide = TABLE[(day.weekday() + offset) % 7]
        if tide.depth >= tide.needed_at(berth):
            return tide
    raise LookupError(f"no high water at {berth} within a week")
'''
_OLD = "    return TABLE[day.weekday()]"
_NEW = "    return TABLE[day.isoweekday() % 7]  # the table begins on Sunday"
_THOUGHT = (
    "The failing cases are all on Sunday. The tide table is read by weekday, and Python counts "
    "weekdays from Monday = 0, while the table counts from Sunday = 0. On six days of the week the "
    "next day's tide is close enough for every berth, so the tests pass by chance.\n\n"
    "I should look at who else reads the table by weekday before I change anything. "
)
_NEXT = (
    "Good. Now the tests for it.",
    "Does it hold for years with 53 weeks?",
    "Please keep the old names working for a while.",
    "What happens if a table is missing?",
    "Fine. Say so in the documentation, too.",
    "Can the import run at night instead?",
)
_ANSWER = """The berth tests are **not flaky**: they fail every Sunday, and only then.

## Why

`tide_of` reads the tide table by `date.weekday()`, which counts from Monday. The table begins on
Sunday, so every lookup is a day late. On six days the tides are alike and the tests pass by chance.

| day | read | should be | depth at quay 4 |
|---|---|---|--:|
| Friday | Thursday | Friday | 9.1 m |
| Saturday | Friday | Saturday | 9.0 m |
| Sunday | Saturday | Sunday | **6.2 m** |

## What I changed

1. `tide_of` counts from Sunday:

   ```python
   return TABLE[day.isoweekday() % 7]
   ```

2. `next_high_water` calls `tide_of` instead of reading the table itself.
3. The tests run for all seven days, whatever day it is.

All 28 tests pass. The pilots' roster reads the same table; I left it alone, because it has no tests
yet. Shall I add some?"""


def add_claude_story(home: Path, now: float) -> None:
    """Fill `~/.claude/projects` of a home."""
    project = home / ".claude" / "projects" / PROJECT
    _write(project / f"{FLAKY}.jsonl", _flaky(now - 0.6 * _HOUR), 0.5)
    helper = project / FLAKY / "subagents" / f"agent-{_EXPLORER}.jsonl"
    _write(helper, _explorer(now - 0.565 * _HOUR), 0.55)
    helper.with_suffix(".meta.json").write_text('{"agentType":"Explore"}')
    others = (
        (PROJECT, "Import the tide tables of the new port authority", 9, 5.0),
        (PROJECT, "Show free berths on the map", 6, 29.0),
        (PROJECT, "Upgrade to Python 3.13", 14, 75.0),
        ("-home-ada-website", "The contact form loses umlauts", 4, 8.0),
        ("-home-ada-website", "Make the start page load in under a second", 11, 52.0),
        ("-home-ada-notes", "Sort the photos of the regatta by boat", 3, 190.0),
    )
    for number, (directory, asked, turns, ago) in enumerate(others, 1):
        session = session_of(number)
        path = home / ".claude" / "projects" / directory / f"{session}.jsonl"
        _write(path, _plain_work(session, directory, asked, turns, now - ago * _HOUR), ago)


def session_of(number: int) -> str:
    """Return the id of a session of plain work, from 1."""
    return f"{number:08x}-2a94-4d0e-9c41-7d3f0a6e21b8"


def _write(path: Path, lines: Iterator[bytes], hours: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    set_idle(path, hours * _HOUR)


class _Author:
    """Lines of a session, each 20 s after the line before it."""

    def __init__(self, session: str, directory: str, start: float, **more: Any) -> None:
        self.session, self.cwd = session, directory.replace("-", "/")
        self.at, self.number, self.more = start, 0, more

    def line(self, kind: str, content: Any, **more: Any) -> bytes:
        message: dict[str, Any] = {"role": kind, "content": content}
        if kind == "assistant":
            usage = {"input_tokens": 3, "cache_read_input_tokens": 21_000 + 900 * self.number}
            message |= {"model": MODEL, "id": f"msg_{self.number}", "usage": usage}
            message["stop_reason"] = more.pop("stop", None)
        line = {
            "parentUuid": self._name(self.number - 1) if self.number else None,
            "isSidechain": False,
            "sessionId": self.session,
            "cwd": self.cwd,
            "version": "2.1.330",
            "type": kind,
            "message": message,
            "uuid": self._name(self.number),
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.at)),
            **self.more,
            **more,
        }
        self.number += 1
        self.at += 20
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"

    def call(self, name: str, result: Any, before: str = "", **given: Any) -> Iterator[bytes]:
        """A call, with words before it, and its result."""
        name_of_call = f"toolu_{self.number}"
        said = [{"type": "text", "text": before}] if before else []
        used = {"type": "tool_use", "id": name_of_call, "name": name, "input": given}
        yield self.line("assistant", [*said, used], stop="tool_use")
        answer = {"type": "tool_result", "tool_use_id": name_of_call, "content": result}
        yield self.line("user", [answer])

    def say(self, words: str) -> bytes:
        return self.line("assistant", [{"type": "text", "text": words}], stop="end_turn")

    def think(self, words: str) -> bytes:
        thought = {"type": "thinking", "thinking": words, "signature": "c2ln" * 60}
        return self.line("assistant", [thought])

    def _name(self, number: int) -> str:
        return f"{self.session[:8]}-0000-4000-8000-{number:012}"


def _flaky(start: float) -> Iterator[bytes]:
    author = _Author(FLAKY, PROJECT, start)
    asked = "The berth tests fail every now and then.\nCan you find out why, and mend it?"
    yield author.line("user", asked)
    yield from author.call(
        "Bash",
        _test_run(failing="sunday"),
        "I'll run them first, for every day of the week.",
        command="pytest tests/test_berths.py --all-days",
        description="Run the berth tests",
    )
    yield author.think(_THOUGHT * 2)
    yield from author.call(
        "Read",
        _numbered(_TIDES),
        "Only Sundays fail. Let me look at how the tide table is read.",
        file_path="/home/ada/harbour/harbour/tides.py",
    )
    yield from author.call(
        "Task",
        [{"type": "text", "text": "Two places read TABLE by weekday: tides.py and roster.py."}],
        subagent_type="Explore",
        description="Find readers of the tide table",
        prompt="Find every place that reads TABLE by weekday.",
    )
    edited = "The file /home/ada/harbour/harbour/tides.py has been updated."
    yield from author.call(
        "Edit",
        edited,
        "The table begins on Sunday, `weekday()` on Monday. I mend that.",
        file_path="/home/ada/harbour/harbour/tides.py",
        old_string=_OLD,
        new_string=_NEW,
    )
    yield from author.call(
        "Bash",
        _test_run(failing=""),
        command="pytest tests/test_berths.py --all-days",
        description="Run the berth tests again",
    )
    yield author.say(_ANSWER)
    chart = {"type": "base64", "media_type": "image/png", "data": _chart()}
    picture = {"type": "image", "source": chart}
    yield author.line("user", "Yes, please. And plot the depth at quay 4 over the week.")
    yield from author.call(
        "Bash",
        "wrote depth.png (420 x 180)",
        "I draw it from the table.",
        command="python -m harbour.plot --berth quay-4 --out depth.png",
        description="Plot the depth",
    )
    yield from author.call("Read", [picture], file_path="/home/ada/harbour/depth.png")
    yield author.say("Here it is: **6.2 m** on Sunday, 9 m and more on all other days.")
    yield author.line("user", "Wonderful. Please write a line for the change log, too.")
    yield author.say("Done: “Berths: tides of Sundays are those of Sundays.”")


def _explorer(start: float) -> Iterator[bytes]:
    author = _Author(FLAKY, PROJECT, start, isSidechain=True, agentId=_EXPLORER)
    yield author.line("user", "Find every place that reads TABLE by weekday.")
    found = "harbour/tides.py:10: return TABLE[day.weekday()]\nharbour/roster.py:31: TABLE[today]\n"
    yield from author.call("Grep", found * 40, pattern="TABLE\\[", path="/home/ada/harbour")
    yield author.say("Two places read TABLE by weekday: tides.py and roster.py.")


def _plain_work(
    session: str, directory: str, asked: str, turns: int, end: float
) -> Iterator[bytes]:
    author = _Author(session, directory, end - 80 * turns)
    yield author.line("user", asked)
    for turn in range(turns):
        yield author.think(_THOUGHT * (1 + turn % 3))
        read = _numbered(_TIDES * (4 + 3 * (turn % 4)))
        yield from author.call("Read", read, file_path=f"{author.cwd}/part_{turn}.py")
        yield from author.call("Bash", _test_run("", 2 + turn % 3), command="pytest -q")
        yield author.say(f"Step {turn + 1} of {turns} is done, and its tests pass.")
        yield author.line("user", _NEXT[turn % len(_NEXT)])
    yield author.say("All of it is done.")


def _test_run(failing: str, times: int = 1) -> str:
    lines = [f"{_BOLD}===== test session starts ====={_PLAIN}", "collected 28 items", ""]
    for case in _CASES * times:
        for day in _DAYS:
            said = f"{_RED}FAILED{_PLAIN}" if day == failing else f"{_GREEN}PASSED{_PLAIN}"
            lines.append(f"tests/test_berths.py::test_{case}[{day}] {said}")
    end = f"{_RED}4 failed{_PLAIN}, 24 passed" if failing else f"{_GREEN}28 passed{_PLAIN}"
    return "\n".join([*lines, "", f"{end} in 1.94s"])


def _numbered(text: str) -> str:
    return "\n".join(f"{at:6}→{line}" for at, line in enumerate(text.splitlines(), 1))


def _chart() -> str:
    """A chart of seven bars as PNG, in base64."""
    width, height = 420, 180
    depths = (9.2, 9.3, 9.2, 9.1, 9.1, 9.0, 6.2)
    rows = []
    for y in range(height):
        row = bytearray(b"\xff\xff\xff" * width)
        for day, depth in enumerate(depths):
            if y > height - 12 - depth * 16 and y < height - 12:
                colour = b"\xd0\x50\x46" if day == 6 else b"\x2f\x78\xb7"
                left = 18 + day * 57
                row[3 * left : 3 * (left + 40)] = colour * 40
        if y == height - 12:
            row[3 * 8 : 3 * (width - 8)] = b"\x55\x60\x6e" * (width - 16)
        rows.append(b"\0" + bytes(row))

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(rows), 9)
    whole = chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + whole).decode()
