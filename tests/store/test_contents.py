"""The index of all stores: what was kept is found at once, and what is gone is not."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from bsd.foundation.layout import Layout, SessionName
from bsd.store.contents import Contents, contents_of
from bsd.store.extracted import Keep, Missing, SessionStore, digest

LINE, OTHER = b'{"id":"e1"}\n', b'{"id":"e2"}\n'
ONE, TWO = SessionName("main", "one"), SessionName("main", "two")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.own.mkdir()
    return layout


def keep(layout: Layout, name: SessionName, ref: str, line: bytes) -> None:
    kept = Keep(ref, "e1", 0, "user", digest(line), len(line), ("x",), {"x": 1}, line)
    SessionStore(layout, name).keep([kept])


def places(index: Contents, line: bytes) -> list[tuple[str, str]]:
    return [(place.directory.name, place.ref) for place in index.with_hash(digest(line))]


def test_what_was_just_kept_is_found_though_somebody_has_just_looked(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking is seldom, and directories written a moment ago do not show that they changed."""
    monkeypatch.setattr(
        "bsd.store.contents.time.monotonic", count().__next__
    )  # each look takes a second
    index = contents_of(layout)
    assert places(index, LINE) == []
    keep(layout, ONE, "0000_user", LINE)
    assert places(index, LINE) == [("main_one", "0000_user")]
    keep(layout, ONE, "0001_user", OTHER)
    assert places(index, OTHER) == [("main_one", "0001_user")]
    assert SessionStore(layout, TWO).load("0007_user", digest(OTHER)) == OTHER


def test_stores_that_are_gone_are_forgotten(layout: Layout) -> None:
    keep(layout, ONE, "0000_user", LINE)
    keep(layout, TWO, "0003_user", LINE)
    index = contents_of(layout)
    assert places(index, LINE) == [("main_one", "0000_user"), ("main_two", "0003_user")]
    shutil.rmtree(layout.store_dir(ONE))
    index.changed()
    assert places(index, LINE) == [("main_two", "0003_user")]
    assert [place.ref for place in index.of_entry("e1")] == ["0003_user"]
    shutil.rmtree(layout.store_dir(TWO))
    index.changed()
    assert index.of_entry("e1") == []
    assert SessionStore(layout, ONE).load("0000_user", digest(LINE)) is Missing.GONE
