"""`bsd exclude DIRECTORY` finds the sessions of a project where the real programs put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import claude_code, pi_program
from tests.compat.beside import Beside
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model
from tests.compat.pi_program import Pi

pytestmark = pytest.mark.compat

NAMES = ["my shop, v1.0_ü", "sub/" + "long-" * 45]


def agents_after_excluding(beside: Beside, directory: Path) -> tuple[int, int]:
    """The number of listed agents before and after a directory is excluded."""
    before = len(beside.bsd("sessions")["agents"])
    beside.bsd("exclude", str(directory))
    return before, len(beside.bsd("sessions")["agents"])


@pytest.mark.parametrize("name", NAMES[:1], ids=["odd"])
def test_claude_code(served: Model, tmp_path: Path, name: str) -> None:
    (project := tmp_path / "work" / name).mkdir(parents=True)
    (tmp_path / "other").mkdir()
    beside = claude_code.home(tmp_path / "home", project, served)
    claude = ClaudeCode(beside, claude_code.newest())
    claude.run("Hello.")
    claude.run("Hello.", cwd=tmp_path / "other")
    assert agents_after_excluding(beside, project) == (2, 1)


@pytest.mark.soak
def test_pi(programs: str, served: Model, tmp_path: Path) -> None:
    (project := tmp_path / "work" / NAMES[0]).mkdir(parents=True)
    (tmp_path / "other").mkdir()
    beside = pi_program.home(tmp_path / "home", project, served)
    pi = Pi(beside, pi_program.newest(programs))
    pi.run("Hello.")
    pi.run("Hello.", cwd=tmp_path / "other")
    assert agents_after_excluding(beside, project) == (2, 1)
