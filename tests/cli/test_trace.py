"""The five levels of the log (SP-09), on a whole call: each includes the levels above it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call, rest


def logged(bsd: Call, root: Path, level: str, *argv: str) -> list[tuple[str, str]]:
    """(level, event) of every line that a call logs."""
    log = root / "logs" / "brainsurgeon.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    rest(root)
    assert bsd(*argv, BRAINSURGEON_LOG_LEVEL=level).code == 0
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [(line["level"], line["event"]) for line in lines]


def levels(lines: list[tuple[str, str]]) -> set[str]:
    return {level for level, _ in lines}


def test_trace_tells_where_each_entry_point_begins(bsd: Call, root: Path) -> None:
    lines = logged(bsd, root, "trace", "extract", "main/alpha")
    told = [event for level, event in lines if level == "trace"]
    assert told[0] == "bsd extract"
    assert {"A session is edited", "A session is opened", "A change is committed"} <= set(told)
    assert {"trace", "debug", "info"} <= levels(lines)


def test_trace_holds_all_that_debug_holds(bsd: Call, root: Path) -> None:
    def wanted(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted(line for line in lines if line[0] != "trace")

    debug = logged(bsd, root, "debug", "extract", "--dry-run", "main/alpha")
    trace = logged(bsd, root, "trace", "extract", "--dry-run", "main/alpha")
    assert wanted(debug) == wanted(trace)
    assert len(trace) > len(debug) > 0


def test_debug_tells_what_is_read(bsd: Call, root: Path) -> None:
    lines = logged(bsd, root, "debug", "extract", "main/alpha")
    events = [event for _, event in lines]
    assert "Session main/alpha is read" in events
    assert any(event.startswith("Config") for event in events)
    assert "trace" not in levels(lines)


@pytest.mark.parametrize("level", ["info", "warn", "error"])
def test_what_is_below_the_level_is_not_written(bsd: Call, root: Path, level: str) -> None:
    assert not {"trace", "debug"} & levels(logged(bsd, root, level, "extract", "main/alpha"))


def test_texts_are_not_told(bsd: Call, root: Path) -> None:
    secret = "the very text that somebody stored"
    log = root / "logs" / "brainsurgeon.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    assert bsd("memory", "store", secret, BRAINSURGEON_LOG_LEVEL="trace").code == 0
    assert b"bsd memory store" in log.read_bytes()
    assert secret.encode() not in log.read_bytes()
