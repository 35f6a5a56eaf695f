"""The originals' defects: DEFECTS.md names a test for each; some of these tests are here."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.openclaw.format import FLAT
from tests.openclaw_tree import add_session
from tests.planning.in_memory import Session
from tests.session_files import jsonl, sample

HERE = Path(__file__).parent
NUMBERS = [
    *(f"V{number}" for number in (*range(1, 18), 20, 21, 22)),
    *(f"U{number}" for number in range(1, 9)),
    *(f"P{number}" for number in range(1, 5)),
]
LONG = "a long value that is worth leaving " * 40
ALL: dict[str, Any] = {"keep_recent": 0, "trigger_types": ["tool_result"], "min_value_length": 500}


def _table() -> dict[str, str]:
    rows = re.findall(
        r"^\| ([VUP]\d+) \| (?:[^|]+) \| ([^|]+) \|$",
        (HERE / "DEFECTS.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == len({number for number, _ in rows}), "a number stands twice"
    return dict(rows)


def test_every_defect_has_a_test_or_a_reason() -> None:
    table = _table()
    assert sorted(table) == sorted(NUMBERS)
    for number, answer in table.items():
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", answer)
        assert named or answer.startswith("cannot occur: "), number
        for file, test in named:
            text = (HERE / file).read_text()
            assert re.search(rf"^ *def {test}\(", text, re.MULTILINE), (
                f"{number}: no {file}::{test}"
            )


def test_v3_rules_are_there_after_a_restart(tmp_path: Path) -> None:
    rules = [{"type": "assistant", "min_length": 20_000, "keep_recent": 7, "tool": "bash|read"}]
    path = Layout(tmp_path).config_file
    answered = ConfigService(path).update({"trigger_rules": rules, "trigger_types": ["user"]})
    for config in (answered, ConfigService(path).current):
        (rule,) = config.as_json()["trigger_rules"]
        assert {key: rule[key] for key in rules[0]} == rules[0]
        assert config.trigger_types == ("user",)


def test_v8_small_values_stay() -> None:
    small = {"exitCode": 0, "success": True, "name": "x", "nothing": None, "empty": ""}
    entry = {"__id": "e1", "type": "tool_result", "output": LONG, "data": "short", **small}
    session = Session(jsonl(entry, {"__id": "e2", "type": "user", "text": "next"}), FLAT)
    assert session.extract(**ALL).report.values == 1
    found = session.entry(0)
    assert {key: found[key] for key in small} == small
    assert (found["output"], found["data"]) == ("[[extracted-e1]]", "short")
    assert len(session.raw.splitlines()[0]) < len(json.dumps(entry))


def test_v11_text_that_mentions_a_placeholder_leaves_like_any_other() -> None:
    text = f"What does [[extracted-e7]] mean? {LONG} [[extracted-e1]]"
    before = jsonl({"__id": "e1", "type": "tool_result", "output": text})
    session = Session(before, FLAT)
    assert session.extract(**ALL).report.values == 1
    assert session.entry(0)["output"] == "[[extracted-e1]]"
    session.restore("e1")
    assert session.entry(0)["output"] == text


def test_v15_v17_values_of_one_name_keep_apart() -> None:
    inner = {"output": f"inner {LONG}", "thinking": f"thought {LONG}"}
    entry = {"__id": "e1", "type": "tool_result", "output": f"outer {LONG}", "data": inner}
    session = Session(jsonl(entry), FLAT)
    session.extract(**ALL)
    away = session.entry(0)
    assert away["output"] == away["data"]["output"] == "[[extracted-e1]]"
    assert sorted(away["_extracted"]["keys"]) == ["data.output", "data.thinking", "output"]
    (stored,) = session.shelf.files.values()
    assert stored.count(b"inner ") == 1, "the original line, and once"
    session.restore("e1", ["data.output"])
    assert (session.entry(0)["data"]["output"], session.entry(0)["output"]) == (
        inner["output"],
        "[[extracted-e1]]",
    )
    session.restore("e1")
    back = session.entry(0)
    assert {key: back[key] for key in entry} == entry


def test_p1_what_expires_in_the_trash_is_gone(tmp_path: Path) -> None:
    layout, name = Layout(tmp_path), SessionName("main", "s")
    add_session(tmp_path, str(name), sample(1, 1))
    Trash(layout, "14d", budget=RetryBudget(wait=0.0)).delete(name)
    assert any(path.is_file() for path in layout.trash.rglob("*"))
    later = time.time() + 15 * 24 * 3600.0
    done = RetentionRun(layout, actor="test", clock=lambda: later).clean_trash("14d")
    assert (done.cleaned, done.errors) == (2, 0), "transcript and meta file"
    assert [path for path in layout.trash.rglob("*") if path.is_file()] == []


def test_p3_none_is_kept_if_none_shall_be() -> None:
    entries = [{"__id": f"e{n}", "type": "tool_result", "output": LONG} for n in range(5)]
    session = Session(jsonl(*entries), FLAT)
    assert session.extract(**ALL).report.entries == 5
