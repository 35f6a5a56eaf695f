"""The suite's own ground: what conftest promises every test."""

from __future__ import annotations

import os
import time
from pathlib import Path


def test_home_is_empty_and_our_variables_are_gone(clean_environment: Path) -> None:
    assert Path.home() == clean_environment
    assert list(clean_environment.iterdir()) == []
    assert not [n for n in os.environ if n.startswith(("BRAINSURGEON_", "OPENCLAW_"))]


def test_a_filled_root_is_at_rest(openclaw_root: Path) -> None:
    sessions = list(openclaw_root.glob("agents/*/sessions/*.jsonl"))
    assert len(sessions) >= 2
    assert all(path.stat().st_mtime < time.time() - 60 for path in sessions)
