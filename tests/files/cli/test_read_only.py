"""Commands that only look leave no trace in a foreign directory."""

from __future__ import annotations

import pytest

from tests.files.cli.conftest import Call, snapshot


@pytest.mark.parametrize(
    "line",
    [
        "sessions",
        "show main/alpha",
        "show main/alpha --full --json",
        "extract --dry-run",
        "extract main/alpha --dry-run --json",
        "context main/alpha",
        "purge_control get_context --session alpha",
        "verify",
        "doctor",
        "config show",
        "config get enabled",
        "config path",
        "nonsense",
        "show main/zzz",
        "extract main/..",
    ],
)
def test_nothing_is_created_or_touched(bsd: Call, line: str) -> None:
    before = snapshot(bsd.root)
    bsd(*line.split(), BRAINSURGEON_LOG_LEVEL="trace")
    assert snapshot(bsd.root) == before
