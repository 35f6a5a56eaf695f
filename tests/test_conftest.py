"""The suite's own ground: what conftest promises every test."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.spread import rank, unit_of_work


def test_home_is_empty_and_our_variables_are_gone(clean_environment: Path) -> None:
    assert Path.home() == clean_environment
    assert list(clean_environment.iterdir()) == []
    assert not [n for n in os.environ if n.startswith(("BRAINSURGEON_", "OPENCLAW_"))]


def test_a_filled_root_is_at_rest(openclaw_root: Path) -> None:
    sessions = list(openclaw_root.glob("agents/*/sessions/*.jsonl"))
    assert len(sessions) >= 2
    assert all(path.stat().st_mtime < time.time() - 60 for path in sessions)


# --- what tests share is made once, however many processes run the suite ---


_TOP = Path(__file__).parents[1]
_PAGE = "tests/doors/http/web/test_page_day.py"
_INDEXER = "tests/daemon/test_indexer.py"
_KILL = "tests/session/commit/test_kill.py"


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        (f"{_PAGE}::test_a[x::y]", _PAGE),
        ("tests/test_house.py::test_a", "tests/test_house.py"),
        ("tests/compat/test_pi.py::test_a", "tests/compat/pi"),
        ("tests/compat/test_context.py::test_a", "tests/compat/pi"),
        ("tests/compat/test_claude_code.py::test_a", "tests/compat"),
        ("tests/compat/test_in_sight.py::test_a", "tests/compat"),
        ("tests/compat/test_codex.py::test_a", "tests/compat/test_codex.py"),
        (f"{_INDEXER}::test_a", _INDEXER),  # shares a daemon
        (f"{_KILL}::test_a[1]", f"{_KILL}::test_a[1]"),  # long, and alone
    ],
)
def test_what_a_test_is_given_to_a_worker_with(test: str, unit: str) -> None:
    assert unit_of_work(_TOP)(test) == unit


def test_what_takes_long_begins_early() -> None:
    modules = [_PAGE, "tests/packaging/test_debian.py", _KILL, "tests/test_sample.py"]
    ranks = [rank(_TOP / module) for module in modules]
    assert ranks == sorted(set(ranks))
