"""A watcher of a real directory, and a listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bsd.core.layout import Layout
from bsd.daemon.watcher import Watcher
from tests.daemon.told import Heard


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def watcher(layout: Layout, heard: Heard) -> Iterator[Watcher]:
    watcher = heard.watcher(layout)
    watcher.step(0.0)
    heard.clear()
    yield watcher
    watcher.close()
