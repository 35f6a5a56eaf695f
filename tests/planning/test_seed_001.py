"""Seed 001's "Test Cases: Time-Based Restore Protection", by name, on whole sessions."""

from __future__ import annotations

import json
from typing import Any

from bsd.core.answers import as_json
from bsd.core.formatting import iso_utc
from bsd.transcripts.agents.openclaw.format import FLAT
from tests.planning.in_memory import NOW, Session
from tests.session_files import jsonl

MINUTE = 60


def session(**more: Any) -> Session:
    old = {"type": "tool_result", "__id": "msg-456", "output": "x" * 600, **more}
    recent = [{"type": "user", "__id": f"u{number}", "text": "hi"} for number in range(3)]
    return Session(jsonl(old, *recent), FLAT)


def restored(seconds_ago: float) -> str:
    return iso_utc(NOW - seconds_ago)


def is_extracted(session: Session, **fields: Any) -> bool:
    session.extract(**fields)
    return bool(session.entry(0)["output"] == "[[extracted-msg-456]]")


def test_1_freshly_restored_entry_protected() -> None:
    assert not is_extracted(session(_restored=restored(5 * MINUTE)), keep_after_restore_seconds=600)


def test_2_expired_protection_allows_extraction() -> None:
    assert is_extracted(session(_restored=restored(15 * MINUTE)), keep_after_restore_seconds=600)


def test_3_custom_protection_duration() -> None:
    assert is_extracted(session(_restored=restored(30)), keep_after_restore_seconds=30)


def test_4_re_restore_detection() -> None:
    entry = session(_restored="2026-02-20T10:00:00Z")
    assert is_extracted(entry)
    answer = json.loads(json.dumps(as_json(entry.restore("msg-456"))))
    assert answer == {
        "restored": True,
        "entry_id": "msg-456",
        "keys_restored": ["output"],
        "sizes_bytes": {"output": 600},
        "previous_restored_at": "2026-02-20T10:00:00Z",
        "suggestion": "This entry was previously restored. If you need to keep this content "
        "long-term, consider setting _extractable: false on the entry.",
    }
    assert entry.entry(0)["output"] == "x" * 600
    assert entry.entry(0)["_restored"] == iso_utc(NOW)


def test_5_extractable_override_bypasses_time_protection() -> None:
    assert is_extracted(session(_restored=restored(1 * MINUTE), _extractable=True))


def test_6_extractable_false_prevents_all_extraction() -> None:
    assert not is_extracted(session(_restored=restored(60 * MINUTE), _extractable=False))
