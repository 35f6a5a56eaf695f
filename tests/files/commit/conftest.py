"""A scene for every test of the commit, on a file system where leases prove something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.foundation.filesystem import strength
from tests.files.commit.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    if strength(tmp_path).level != "strong":
        pytest.skip("needs a file system with leases for the temporary directory")
    made = Scene(tmp_path / "root")
    yield made
    for child in made.children:
        child.kill()
        child.communicate()
