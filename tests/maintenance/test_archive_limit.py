"""Packs and copies of sessions together take no more than `archive_max_bytes`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.core.clock import RunTime
from bsd.core.config import PruningConfig
from bsd.core.layout import Layout, SessionName
from bsd.daemon.report import _archive
from bsd.maintenance.archive_limit import ArchiveOverLimit
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.retention import RetentionRun, forecast_all
from bsd.maintenance.search import search
from bsd.store.snapshots import snapshots_of
from tests.actions import performed
from tests.maintenance.keeping import DAY, bring_back, extract, keep
from tests.maintenance.test_forgetting import LEAVING, WORDS, said, secret_session
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, make_caller

OTHER = SessionName("main", "other")


def packed_session(layout: Layout, clock: Clock, name: SessionName = NAME) -> Path:
    """A session with a copy, whose values are in a pack."""
    path = secret_session(layout, name)
    extract(layout, name, clock, trigger_types=LEAVING)
    keep(layout, clock)
    for file in layout.store_dir(name).glob("0*"):
        set_idle(file, 3 * DAY)
    RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    return path


def used(layout: Layout) -> int:
    return sum(path.stat().st_size for path in layout.archive.rglob("*") if path.is_file())


def clean(layout: Layout, clock: Clock, most: int) -> int:
    run = RetentionRun(layout, actor="test", clock=clock.now, trust_clock=True)
    done = run.clean_archive("never", most)
    assert done.errors == 0
    return done.cleaned


def test_copies_are_counted(layout: Layout, clock: Clock) -> None:
    packed_session(layout, clock)
    assert ArchiveOverLimit(layout, 1).used == used(layout)
    assert clean(layout, clock, used(layout)) == 0


def test_copies_of_sessions_in_their_places_go_first(layout: Layout, clock: Clock) -> None:
    packed_session(layout, clock)
    before = used(layout)
    assert clean(layout, clock, before - 1) == 1
    assert snapshots_of(layout, NAME) == []
    assert used(layout) < before
    assert keep(layout, clock).sessions == 0  # it is not rebuilt only to be deleted again
    assert performed.restore(make_caller(layout, clock), NAME, "e1")["restored"]


def test_a_session_that_is_gone_goes_with_its_packs(layout: Layout, clock: Clock) -> None:
    path = packed_session(layout, clock)
    clock.ahead += DAY
    other = packed_session(layout, clock, OTHER)
    for each in (path, other):
        each.unlink()
    keep(layout, clock)
    search(layout, WORDS[0])
    assert len(deleted_sessions(layout)) == 2
    clean(layout, clock, used(layout) - 1)
    [left] = deleted_sessions(layout)
    assert left.name == OTHER
    assert not layout.archive_dir(NAME).exists()
    bring_back(layout, str(OTHER), clock)
    assert WORDS[0].encode() in other.read_bytes()


def test_at_last_the_oldest_packs_go_with_their_words(layout: Layout, clock: Clock) -> None:
    path = packed_session(layout, clock)
    search(layout, WORDS[0])
    assert clean(layout, clock, 1) == 2
    assert said(layout, WORDS[0], path) == []


def test_a_copy_that_is_damaged_counts_and_can_go(layout: Layout, clock: Clock) -> None:
    packed_session(layout, clock)
    [copy] = snapshots_of(layout, NAME)
    (copy.directory / "copy.json").write_bytes(b"{")
    assert ArchiveOverLimit(layout, 1).used == used(layout)
    clean(layout, clock, 1)
    assert not copy.directory.exists()


def test_a_session_that_went_meanwhile_keeps_its_copy(layout: Layout, clock: Clock) -> None:
    path = packed_session(layout, clock)
    over = ArchiveOverLimit(layout, used(layout) - 1)
    [place] = over.places()
    path.unlink()
    assert over.delete(place, lambda _: True).cleaned == 0
    assert len(deleted_sessions(layout)) == 1


def test_by_a_clock_in_doubt_nothing_goes(layout: Layout, clock: Clock) -> None:
    packed_session(layout, clock)
    clock.ahead += DAY
    done = RetentionRun(layout, actor="test", clock=clock.now).clean_archive("never", 1)
    assert done.cleaned == 0
    assert "put forward by 1d" in str(done.held)
    config = PruningConfig(archive_max_bytes=1)
    doubt = RunTime(clock.now(), "the clock was put forward", DAY)
    assert forecast_all(layout, config, doubt).archive.going == ()


def test_a_dry_run_says_what_a_run_takes(layout: Layout, clock: Clock) -> None:
    packed_session(layout, clock)
    config = PruningConfig(archive_max_bytes=1, retention="never")
    found = forecast_all(layout, config, RunTime(clock.now())).archive
    assert (len(found.going), found.bytes) == (2, used(layout))
    assert clean(layout, clock, 1) == 2


@pytest.mark.parametrize(("share", "near"), [(0.89, False), (0.91, True), (1.1, True)])
def test_status_warns_before_anything_goes(
    layout: Layout, clock: Clock, share: float, *, near: bool
) -> None:
    packed_session(layout, clock)
    most = round(used(layout) / share)
    told = _archive(layout, PruningConfig(archive_max_bytes=most), RunTime(clock.now()))
    assert (told["nearly_full"], told["used_bytes"]) == (near, used(layout))
    assert bool(told["files"]) == (share > 1)
    assert os.path.isdir(layout.archive)
