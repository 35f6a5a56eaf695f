"""A displaced file is blanked, and lines that other programs write there are not lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.core.errors import Busy
from bsd.core.layout import Layout
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import InFlightRecord
from bsd.sessions.commit.recovery import blank
from tests.session_files import LONG, NAME, Clock, conversation, make_caller, write


@pytest.fixture
def path(layout: Layout, clock: Clock) -> Path:
    """A session that has just been changed."""
    path = write(layout, conversation())
    make_caller(layout, clock).extract(NAME, overrides={"keep_recent": 0})
    return path


def record_of(layout: Layout) -> InFlightRecord:
    [record] = InFlight(layout).readable()
    return record


def finish(layout: Layout, clock: Clock) -> list[str]:
    return [str(each.state) for each in make_caller(layout, clock).recover()]


def test_it_becomes_zeros_and_goes_in_its_time(layout: Layout, clock: Clock, path: Path) -> None:
    lean = path.read_bytes()
    record = record_of(layout)
    before = record.file.stat()
    blank(record)
    assert record.file.read_bytes() == bytes(before.st_size)
    assert record.file.stat().st_mtime_ns == before.st_mtime_ns
    assert finish(layout, clock) == ["watched"]
    clock.ahead += 120
    assert finish(layout, clock) == ["finished"]
    assert path.read_bytes() == lean


@pytest.mark.parametrize("moment", ["before", "after"])
def test_late_lines_come_home_whenever_they_come(
    layout: Layout, clock: Clock, path: Path, moment: str
) -> None:
    lean, late = path.read_bytes(), b'{"type":"custom","id":"late"}\n'
    record = record_of(layout)
    if moment == "after":
        blank(record)
    with record.file.open("ab") as stream:
        stream.write(late)
    assert finish(layout, clock) == ["carried"]
    blank(record_of(layout))
    # nor does it contain the lines that were carried back
    assert not record.file.read_bytes().strip(b"\0")
    clock.ahead += 120
    assert finish(layout, clock) == ["finished"]
    assert path.read_bytes() == lean + late


def test_a_kill_between_the_note_and_the_zeros_loses_nothing(
    layout: Layout, clock: Clock, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", _killed)
        with pytest.raises(KeyboardInterrupt):
            blank(record_of(layout))
    record = record_of(layout)
    assert record.is_blank
    assert LONG.encode() in record.file.read_bytes()
    blank(record)
    assert len(record_of(layout).notes) == 1
    clock.ahead += 120
    assert finish(layout, clock) == ["finished"]
    assert path.read_bytes() == lean


def _killed(*_: object) -> int:
    raise KeyboardInterrupt


def test_a_file_that_is_not_the_displaced_one_is_left(layout: Layout, path: Path) -> None:
    record = record_of(layout)
    other = record.file.with_suffix(".other")
    other.write_bytes(b"somebody's")
    os.replace(other, record.file)
    with pytest.raises(Busy):
        blank(record)
    assert record.file.read_bytes() == b"somebody's"
    assert path.exists()
