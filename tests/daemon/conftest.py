"""A watcher of a real directory, of each kind, and who listens to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bsd.core.layout import Layout
from bsd.daemon.watcher import Watcher
from bsd.daemon.watches import InotifyWatches, ObserverWatches
from tests.daemon.told import Heard, Kind


@pytest.fixture(params=[InotifyWatches, ObserverWatches])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def watcher(layout: Layout, heard: Heard, kind: Kind) -> Iterator[Watcher]:
    watcher = heard.watcher(layout, watching=kind)
    watcher.step(0.0)
    heard.clear()
    yield watcher
    watcher.close()
