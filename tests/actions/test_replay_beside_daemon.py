"""The replay makes the cuts that an extraction makes which looks at the growing session."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.extract import extract_due
from bsd.core.config import PruningConfig
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import shipped_prices
from bsd.daemon.tasks import is_worth
from bsd.planning.plan import Plan
from bsd.planning.recorded import Recording
from bsd.planning.recording_reader import read_recording
from bsd.planning.replay import play
from bsd.planning.replay_timeline import Conditions, Occasion, Timeline
from bsd.planning.rules import Policy
from bsd.planning.worth import LONGEST_WAIT_SECONDS
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.store.state import StateDb
from tests.session_files import Clock, jsonl, make_caller

_BEGUN = 1_790_000_000.0
_NAME = SessionName("main", "grown")
_PROVIDER = {"provider": "anthropic", "model": "claude-sonnet-5"}
_CHARACTERS = 4  # per token
_CONSTANT = 3000  # tokens beside the transcript
_LONG = 4000.0  # seconds; the cache of this model lives for an hour at most

Cuts = list[tuple[int, str]]


def _session() -> list[dict[str, Any]]:
    """Return a session of turns with results of many sizes, and long pauses between some."""
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "grown"}]
    now, sent, numbers = _BEGUN, _CONSTANT * _CHARACTERS, count(1)

    def add(role: str, size: int, after: float, **more: Any) -> None:
        nonlocal now, sent
        now += after
        number, before = next(numbers), sent
        text = f"{number} " + " ".join(f"{number * word % 9973}" for word in range(size // 5))
        block: Any = {"type": "text", "text": text}
        message: dict[str, Any] = {"role": role, "content": [block], **more}
        if role == "assistant":
            usage = {"input": 10, "output": size // 4, "cacheRead": 0, "cacheWrite": 0}
            message |= {"usage": usage | {"cacheWrite": before // _CHARACTERS}, **_PROVIDER}
        line = {"type": "message", "id": f"e{number:04}", "parentId": f"e{number - 1:04}"}
        lines.append(line | {"timestamp": iso_utc(now), "message": message})
        sent += len(text)

    for turn in range(18):
        add("user", 200, _LONG if turn % 9 == 8 else 60.0)
        for tool in range(turn % 3):
            add("assistant", 100, 3.0, stopReason="toolUse")
            size = (400, 3000, 9000, 40_000)[(turn + tool) % 4]
            call = {"toolCallId": f"c{turn}-{tool}", "toolName": "read"}
            add("toolResult", size, 2.0, **call)
        add("assistant", 300, 5.0, stopReason="stop")
    return lines


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    path = Layout(tmp_path).transcript(_NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(jsonl(*_session()))
    return path


def _recording(layout: Layout, config: PruningConfig) -> Recording:
    session = Session(layout, _NAME)
    source, fmt = session.open()
    with source:
        return read_recording(source, fmt, [Policy.of(config)], session.store)


@pytest.mark.parametrize("when", ["now", "cold", "pays"])
def test_the_replay_cuts_as_the_daemon_does(grown: Path, tmp_path: Path, when: str) -> None:
    layout, lines = Layout(tmp_path), _session()
    layout.own.mkdir()
    layout.config_file.write_text(json.dumps({"when": when}))
    recording = _recording(layout, PruningConfig.from_json({"when": when}))
    timeline = Timeline(recording, Conditions(shipped_prices(), assume_cache=True))
    played = play(timeline, recording.leaves[0], when)
    for call, tokens, read in zip(recording.calls, played.tokens, played.read, strict=True):
        usage = lines[recording.entries.lines[call.entry]]["message"]["usage"]
        written = round(tokens - read)
        usage |= {"input": 0, "cacheRead": round(read), "cacheWrite": written}

    found = _Daemon(layout, grown, lines).cuts(timeline)

    assert found == [(cut.call, cut.timing.cause.value) for cut in played.cuts]
    reasons = {"now": {"asked"}, "cold": {"cold"}, "pays": {"pays"}}
    assert {reason for _, reason in found} == reasons[when]


class _Daemon:
    """Looks at a session whenever the daemon would, with a clock of its own."""

    def __init__(self, layout: Layout, path: Path, lines: list[dict[str, Any]]) -> None:
        self._path, self._lines = path, lines
        self._now = 0.0
        budget = RetryBudget(wait=0.0, clock=lambda: self._now)
        self._context = replace(make_caller(layout, Clock()), budget=budget)
        self._state = StateDb(layout.own / "state.db")
        self._small_since: float | None = None

    def cuts(self, timeline: Timeline) -> Cuts:
        """Let the session grow to each occasion; return the first calls after cuts, and why."""
        found: Cuts = []
        entries = timeline.recording.entries
        self._path.write_bytes(b"")
        seen = 0
        for call, occasion in enumerate(timeline.occasions):
            if occasion is None or occasion.at is None:
                continue
            until = entries.lines[occasion.seen - 1] + 1
            with self._path.open("ab") as file:
                file.write(jsonl(*self._lines[seen:until]))
            seen = until
            written = occasion.at - 2.1
            os.utime(self._path, (written, written))
            for plan in self._look(occasion):
                if plan.timing is not None and not plan.timing.waits:
                    found.append((call, plan.timing.cause.value))
        return found

    def _look(self, occasion: Occasion) -> list[Plan]:
        """Return the plans that are committed until the next write."""
        now, until, committed = occasion.at or 0.0, occasion.until or 0.0, list[Plan]()
        while now <= until:
            self._now = now
            due = [until + 1.0]

            def worth(plan: Plan, now: float = now, due: list[float] = due) -> bool:
                waited = 0.0 if self._small_since is None else now - self._small_since
                due += [] if plan.due_at is None else [plan.due_at]
                if is_worth(plan, waited):
                    self._small_since = None if plan.edits else self._small_since
                    committed.append(plan)
                    return True
                self._small_since = self._small_since or now
                return False

            extract_due(self._context, _NAME, self._state, worth=worth)
            if self._small_since is not None:
                due.append(self._small_since + LONGEST_WAIT_SECONDS)
            now = min(moment for moment in due if moment > now)
        return committed
