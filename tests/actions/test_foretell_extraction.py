"""Values that would leave the sessions of an agent, by a dry run that is bounded by time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.extract import extract
from bsd.actions.setup import foretell_extraction
from bsd.core.layout import Layout, SessionName
from tests.openclaw_tree import add_session
from tests.session_files import Clock, make_caller, sample

Files = list[tuple[SessionName, int]]


@pytest.fixture
def files(layout: Layout) -> Files:
    """Six sessions of different sizes."""
    found = []
    for number in range(6):
        name = SessionName("main", f"s{number}")
        path = add_session(layout.root, str(name), sample(4 + number, seed=number))
        found.append((name, path.stat().st_size))
    return found


def steps(seconds: float) -> Callable[[], float]:
    """A clock that advances by this amount whenever it is read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return clock


def everything_under(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def test_with_time_enough_it_is_what_an_extraction_does(layout: Layout, files: Files) -> None:
    caller = make_caller(layout, Clock())
    assert caller.config.current.enabled  # this makes config.json
    before = everything_under(layout.root)
    told = foretell_extraction(caller, files, seconds=60.0, clock=lambda: 0.0)
    assert everything_under(layout.root) == before
    assert not told.is_sample
    done = [extract(caller, name) for name, _ in files]
    assert told.values == sum(result.values for result in done) > 0
    assert told.bytes_saved == told.read_saved == sum(result.bytes_saved for result in done)
    assert told.bytes == told.read_bytes == sum(size for _, size in files)


def test_when_the_time_is_over_the_rest_is_estimated(layout: Layout, files: Files) -> None:
    caller = make_caller(layout, Clock())
    whole = foretell_extraction(caller, files, seconds=60.0, clock=lambda: 0.0)
    runs = (
        foretell_extraction(caller, files, seconds=2.0**power, clock=steps(1.0))
        for power in range(4, 20)
    )
    told = next(run for run in runs if run.read_sessions)
    assert 0 < told.read_sessions < 6
    assert told.is_sample
    assert told.read_bytes < told.bytes == whole.bytes
    assert told.bytes_saved == round(told.read_saved / told.read_bytes * told.bytes)
    assert 0.5 * whole.bytes_saved < told.bytes_saved < 2 * whole.bytes_saved


def test_without_time_nothing_is_known(layout: Layout, files: Files) -> None:
    told = foretell_extraction(make_caller(layout, Clock()), files, seconds=0.0)
    assert (told.read_sessions, told.bytes_saved, told.sessions) == (0, 0, 6)


def test_a_session_that_is_gone_counts_as_one_that_keeps_all(layout: Layout, files: Files) -> None:
    gone, size = files[0]
    layout.session_file(gone).unlink()
    told = foretell_extraction(make_caller(layout, Clock()), files, seconds=60.0)
    assert told.read_sessions == 6
    assert told.read_bytes >= size


def test_the_caller_may_end_it(layout: Layout, files: Files) -> None:
    class Enough(Exception):
        pass

    def progress(done: int, of: int | None = None) -> None:
        if done > 0:
            raise Enough

    caller = replace(make_caller(layout, Clock()), progress=progress)
    with pytest.raises(Enough):
        foretell_extraction(caller, files, seconds=60.0)
