"""Fixtures of the archive's tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from tests.actions.performed import Caller
from tests.maintenance.archiving import age, clean
from tests.needs import require_linux, require_program
from tests.session_files import NAME, conversation, write


@pytest.fixture
def path(layout: Layout) -> Path:
    return write(layout, conversation(4))


@pytest.fixture
def original(path: Path, caller: Caller) -> bytes:
    """The session's content before four values left it."""
    was = path.read_bytes()
    caller.extract(NAME)
    return was


@pytest.fixture
def archived(layout: Layout, original: bytes) -> bytes:
    """The same; the values are in the archive only."""
    age(layout)
    assert clean(layout).cleaned == 4
    assert not layout.store_dir(NAME).exists()
    return original


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes reads fail in a program that loads it."""
    require_linux()
    library = tmp_path_factory.mktemp("failing") / "failing.so"
    source = Path(__file__).parents[1] / "failing_disk.c"
    compiler = require_program("cc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library
