"""Fixtures: the installed real programs, and a model that some of them use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import claude_code
from tests.compat.beside import Beside
from tests.compat.claude_code import ClaudeCode, three_turns
from tests.compat.install import find_codex, find_pi, find_programs
from tests.compat.messages_api import Model, serving
from tests.compat.needed import needed


@pytest.fixture(scope="session")
def node() -> str:
    """The Node program that runs pi; on a developer's machine without it, tests are skipped."""
    return needed("pi", find_pi)


@pytest.fixture(scope="session")
def codex_program() -> str:
    """The path of Codex's program; skips like `node`."""
    return needed("Codex", find_codex)


@pytest.fixture(scope="session")
def programs() -> str:
    """The Node program of the newest pi, with Claude Code installed too; skips like `node`."""
    return needed("Claude Code and pi", find_programs)


@pytest.fixture(scope="session")
def served() -> Iterator[Model]:
    """A single model server for all tests."""
    with serving() as model:
        yield model


@pytest.fixture
def model(served: Model) -> Model:
    """A model without any request so far."""
    served.requests.clear()
    served.refused.clear()
    served.thinks = False
    return served


@pytest.fixture(scope="session")
def claude_template(
    programs: str, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Beside, str]:
    """A home of Claude Code with a session of three turns; only copies of it may be used."""
    assert programs
    top = tmp_path_factory.mktemp("claude-code")
    beside = claude_code.home(top / "template", top / "work", served)
    return beside, three_turns(ClaudeCode(beside, claude_code.newest()))


@pytest.fixture
def claude(claude_template: tuple[Beside, str], tmp_path: Path) -> ClaudeCode:
    """A home of Claude Code with a session, from which no value was extracted yet."""
    beside = claude_template[0].copy_to(tmp_path / "claude")
    return ClaudeCode(beside, claude_code.newest())


@pytest.fixture
def session(claude_template: tuple[Beside, str]) -> str:
    """The id of that session."""
    return claude_template[1]
