"""Commands that only look leave no trace in a foreign directory."""

from __future__ import annotations

import pytest

from tests.doors.cli.conftest import Call, snapshot


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


@pytest.mark.parametrize(
    "line",
    [
        "extract main/alpha",
        "extract",
        "restore-all --yes",
        "replace main/alpha --start a --end b --replacement c",
        "set-extractable main/alpha #1 false",
        "purge_control set_extractable #1 false --session alpha",
        "undo main/alpha",
        "delete main/alpha --yes",
        "trash empty --yes",
        "retention",
        "verify --repair",
        "config set keep_recent 4",
        "memory store something",
        "workspace create w1 --workspace-root {root}/workspaces",
    ],
)
def test_read_only_is_read_only_whatever_is_asked_for(bsd: Call, line: str) -> None:
    before = snapshot(bsd.root)
    ended = bsd(*line.format(root=bsd.root).split(), BRAINSURGEON_READONLY="true")
    assert snapshot(bsd.root) == before
    assert "bsd only reads here" in ended.err
    assert ended.code == 77
