"""The settings in config.json: as they are shown, refused, and written."""

from __future__ import annotations

import json
from typing import Any

from tests.golden.book import check
from tests.golden.conftest import Ask
from tests.golden.world import World

CHANGES = {
    "enabled": "false",
    "trigger_types": "thinking,user",
    "trigger_rules": '[{"type":"tool_result","role":"*","min_length":10,"toolName":"read|bash"}]',
    "keep_recent": "7",
    "min_value_length": "123",
    "keep_chars": "45",
    "age_threshold_hours": "1.5",
    "scan_interval_seconds": "60",
    "auto_cron": "*/5 * * * *",
    "retention": "7d",
    "retention_cron": "@daily",
    "trash_retention": "never",
    "archive": "false",
    "archive_retention": "90d",
    "archive_max_bytes": "1000000",
    "archive_sessions": "off",
    "search_index": "false",
    "keep_restore_remote_calls": "true",
    "keep_purge_control_calls": "true",
    "keep_after_restore_seconds": "30",
    "scope": "display",
    "when": "now",
    "prefix_bound": "extract",
    "prefix_bound_models": "model-a,model-b",
    "protected_tools": "read,write",
    "exclude": '["secret","other/4f2a*","~/private"]',
}
REFUSED = {
    "enabled": "maybe",
    "trigger_types": "nothing",
    "trigger_rules": '[{"type":"x"}]',
    "keep_recent": "101",
    "min_value_length": "-1",
    "keep_chars": "x",
    "age_threshold_hours": "nan",
    "scan_interval_seconds": "9",
    "auto_cron": "* * *",
    "retention": "soon",
    "retention_cron": "0 0 31 2 *",
    "trash_retention": "",
    "archive": "perhaps",
    "archive_retention": "soon",
    "archive_max_bytes": "-1",
    "archive_sessions": "1s",
    "search_index": "perhaps",
    "keep_restore_remote_calls": "2",
    "keep_purge_control_calls": "",
    "keep_after_restore_seconds": "1000000",
    "scope": "none",
    "when": "soon",
    "prefix_bound": "perhaps",
    "prefix_bound_models": "(",
    "protected_tools": "[1]",
    "exclude": '["a b"]',
    "last_run_at": "2026-01-01",
    "no_setting": "1",
}


def test_settings(ask: Ask, world: World) -> None:
    answers: dict[str, Any] = {}

    def tell(*words: str) -> None:
        for form in ([], ["--json"]):
            which = " ".join(("config", *words, *form))
            answers[which] = world.steady(ask("config", *words, *form))

    file = world.root / ".brainsurgeon" / "config.json"
    file.unlink()
    tell("show")
    tell("path")
    for name, value in CHANGES.items():
        tell("set", name, value)
        tell("get", name)
    tell("show")
    answers["config.json"] = file.read_text(encoding="utf-8").splitlines()
    for name, value in REFUSED.items():
        tell("set", name, value)
    known = set(json.loads(file.read_text(encoding="utf-8")))
    assert {name for name in known if not name.startswith("last_")} == set(CHANGES)
    file.write_text('{"keep_recent": "many", "unknown": 1, "keep_chars": 3}')
    tell("show")
    file.write_text("{")
    tell("show")
    check("settings", answers)
