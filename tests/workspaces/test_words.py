"""Texts of results, and the rules that settings mean."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import ConfigError, NotFound
from bsd.core.settings import Settings
from bsd.workspaces import PruneResult
from bsd.workspaces.actions import WorkspaceRoot, list_workspaces, rules_of
from bsd.workspaces.process import Limits
from bsd.workspaces.prune import Rules
from tests.loading import load_settings


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PruneResult(), "Pruned 0 sessions, reclaimed 0 B"),
        (PruneResult(["a"], reclaimed_bytes=1 << 20), "Pruned 1 session, reclaimed 1.0 MB"),
        (
            PruneResult(["a", "b"], {"c": "in_use"}, 999, {"d": "no"}, dry_run=True),
            "Would prune 2 sessions (1 skipped, 1 error), reclaimed 999 B",
        ),
        (
            PruneResult(errors={"a": "no", "b": "no"}),
            "Pruned 0 sessions (2 errors), reclaimed 0 B",
        ),
    ],
)
def test_a_pruning_in_one_line(result: PruneResult, text: str) -> None:
    assert str(result) == text


def settings_of(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "bsd.toml"
    file.write_text(text)
    return load_settings(file, tmp_path, {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", Rules(24.0, None, None)),
        ('workspace_max_age = "90m"', Rules(1.5, None, None)),
        ('workspace_max_age = "Never"\nworkspace_max_count = 5', Rules(None, 5, None)),
        ("workspace_max_bytes = 1000", Rules(24.0, None, 1000)),
    ],
)
def test_the_rules_of_the_settings(text: str, rules: Rules, tmp_path: Path) -> None:
    assert rules_of(settings_of(tmp_path, text)) == rules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('workspace_root = "here"', "workspace_root: a path must be absolute"),
        ("workspace_root = 7", "workspace_root: a path must be absolute"),
        ('workspace_cron = "hourly"', "workspace_cron: "),
        ('workspace_cron = "0 0 31 2 *"', "workspace_cron: "),
        ('workspace_max_age = "5s"', "workspace_max_age: "),
        ('workspace_max_age = "0m"', "workspace_max_age: "),
        ("workspace_max_count = -1", "workspace_max_count: "),
        ("workspace_max_bytes = true", "workspace_max_bytes: "),
        ("[workspace_limits]\nseconds = -1", "workspace_limits.seconds: "),
        ("[workspace_limits]\nsecond = 1", "did you mean seconds?"),
    ],
)
def test_settings_that_cannot_be_used(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, text)
    assert words in caught.value.message


def test_the_limits_of_the_settings_are_those_of_the_library(tmp_path: Path) -> None:
    known: dict[str, Any] = asdict(settings_of(tmp_path, "").workspace_limits)
    assert Limits(**known) == Limits()


@pytest.mark.parametrize(("text", "hours"), [("Never", None), ("1d12h", 36)])
def test_never_is_no_age(text: str, hours: float | None, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f'workspace_max_age = "{text}"')
    assert rules_of(settings).older_than_hours == hours


def test_without_a_root_it_is_said_what_to_set() -> None:
    with pytest.raises(NotFound, match="no workspace root is configured") as caught:
        list_workspaces(WorkspaceRoot(None))
    assert "workspace_root" in (caught.value.hint or "")
