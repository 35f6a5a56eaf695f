"""Qwen Code continues sessions with extracted values, and its copies get the values back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.beside import placeholders
from tests.compat.messages_api import Model
from tests.compat.qwen import QwenCode

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def template(
    programs: str, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[QwenCode, str]:
    """A home of Qwen Code with a session of three turns, and the session's path; for copies."""
    top = tmp_path_factory.mktemp("qwen")
    served.thinks = False
    qwen = QwenCode.at(programs, top / "template", top / "work", served)
    path = qwen.three_turns()
    served.thinks = False
    return qwen, str(path.relative_to(qwen.beside.top))


@pytest.fixture
def qwen(template: tuple[QwenCode, str], tmp_path: Path) -> QwenCode:
    return template[0].copy_to(tmp_path / "qwen")


@pytest.fixture
def path(qwen: QwenCode, template: tuple[QwenCode, str]) -> Path:
    """The session's file, from which no value was extracted yet."""
    return qwen.beside.top / template[1]


def test_p(qwen, path, model) -> None:
    original = path.read_bytes()
    qwen.run("And now?", "--resume", path.stem)
    first = model.requests[-1]
    path.write_bytes(original)
    qwen.beside.bsd("config", "set", "scope", "display")
    qwen.beside.extract()
    lean = path.read_bytes()
    model.requests.clear()
    qwen.run("And now?", "--resume", path.stem)
    second = model.requests[-1]
    path.write_bytes(lean)
    qwen.beside.bsd("config", "set", "scope", "all")
    qwen.beside.extract()
    lean = path.read_bytes()
    qwen.run("And now?", "--resume", path.stem)
