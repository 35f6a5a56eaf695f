"""The real readers, installed once for all workers."""

from __future__ import annotations

import os

import pytest

from tests.compat.install import NotInstalled, install


@pytest.fixture(scope="session")
def node() -> str:
    """The Node program that runs pi; on a developer's machine without it, tests are skipped."""
    try:
        return install()
    except NotInstalled as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs pi from npm: {reason}")
