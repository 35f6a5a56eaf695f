"""What the tests of the commit share: a scene where leases prove something, children to kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.foundation.filesystem import strength
from tests.needs import require_linux
from tests.session.commit.children import Children
from tests.session.commit.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    if strength(tmp_path).level != "strong":
        pytest.skip("needs a file system with leases for the temporary directory")
    made = Scene(tmp_path / "root")
    yield made
    for child in made.children:
        child.kill()
        child.communicate()


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """One server of children per worker."""
    require_linux()  # leases, and a kernel that says who waits for one
    with Children() as server:
        yield server
