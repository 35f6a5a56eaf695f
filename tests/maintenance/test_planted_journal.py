"""Planted journals at the place of bsd's own do not move a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.core.errors import Conflict
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.maintenance.trash_moves import Aim, TrashMoves
from bsd.maintenance.trashed import Trashed
from bsd.maintenance.verify import verify
from tests.openclaw_tree import add_session, set_idle
from tests.untrusted import WAYS

NAME = SessionName("main", "good")


@pytest.fixture
def layout(root: Path) -> Layout:
    set_idle(add_session(root, str(NAME), b'{"type":"session","version":3,"id":"good"}\n'))
    return Layout(root)


def journal(layout: Layout, place: str = "main_good_20260101T000000.000Z") -> Path:
    """A journal that would move the session into the trash."""
    found = layout.session_file(NAME).stat()
    item = Trashed(
        id=place,
        name=NAME,
        trashed_at=1.0,
        expires_at=None,
        parent=None,
        original_path=str(layout.session_file(NAME)),
        transcript=(found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode),
    )
    moves = TrashMoves.begin(layout, Aim.TRASH, "cli", 1.0, [item])
    moves.save()
    return moves.journal.path


def finish(layout: Layout) -> None:
    Trash(layout, "never").recover()


def test_one_of_bsd_s_own_would_be_followed(layout: Layout) -> None:
    """Without this the other tests would prove nothing."""
    journal(layout)
    finish(layout)
    assert not layout.transcript(NAME).exists()


@pytest.mark.parametrize("way", WAYS)
def test_one_that_others_have_made_or_may_change(layout: Layout, way: str) -> None:
    path = journal(layout)
    WAYS[way](path)
    unmoved(layout, path)


@pytest.mark.parametrize("other", ["main_bad_20260101T000000.000Z", "x_20260101T000000.000Z"])
def test_one_whose_place_is_not_its_session_s(layout: Layout, other: str) -> None:
    unmoved(layout, journal(layout, other))


def unmoved(layout: Layout, path: Path) -> None:
    finish(layout)
    assert layout.transcript(NAME).exists()
    assert os.path.lexists(path)
    with pytest.raises(Conflict) as caught:
        TrashMoves.read(layout, path)
    assert caught.value.hint
    assert str(path) in {one.where for one in verify(layout).findings}
