"""What the crash tests share: one server of children per worker, and a session for each crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.children import Children
from tests.needs import require_linux


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    require_linux()  # leases, and a kernel that says who waits for one
    with Children() as server:
        yield server
