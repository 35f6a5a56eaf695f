"""What tests of the archive begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.foundation.layout import Layout
from bsd.session.surgeon import Surgeon
from tests.care.archiving import age, clean
from tests.sessions import NAME, conversation, write


@pytest.fixture
def path(layout: Layout) -> Path:
    return write(layout, conversation(4))


@pytest.fixture
def original(path: Path, surgeon: Surgeon) -> bytes:
    """What the session was before four values left it."""
    was = path.read_bytes()
    surgeon.extract(NAME)
    return was


@pytest.fixture
def archived(layout: Layout, original: bytes) -> bytes:
    """The same; the values are in the archive only."""
    age(layout)
    assert clean(layout).cleaned == 4
    assert not layout.store_dir(NAME).exists()
    return original
