"""The real programs, as they are installed, and a model that some of them talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat import claude_code
from tests.compat.beside import Beside
from tests.compat.claude_code import ClaudeCode, three_turns
from tests.compat.install import (
    NotInstalled,
    find_codex,
    find_pi,
    find_programs,
    wait_until_installed,
)
from tests.compat.messages_api import Model, serving
from tests.needs import without


@pytest.fixture(scope="session")
def node() -> str:
    """The Node program that runs pi; on a developer's machine without it, tests are skipped."""
    return _found("pi", find_pi)


@pytest.fixture(scope="session")
def codex_program() -> str:
    """Codex's own program; as above."""
    return _found("Codex", find_codex)


@pytest.fixture(scope="session")
def programs() -> str:
    """The Node program that runs the newest pi; waits for it, and for Claude Code. As above."""
    return _found("Claude Code and pi", find_programs)


@pytest.fixture(scope="session")
def served() -> Iterator[Model]:
    """One server for all of them."""
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
    """A home of Claude Code with a session of three turns; tests copy it, and do not use it
    directly.
    """
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


def _found(what: str, find: Callable[[], str]) -> str:
    wait_until_installed()
    try:
        return find()
    except NotInstalled as reason:
        without(f"{what} from npm: {reason}")
