"""A person says that the last turn of a session is over; the session may still be in use."""

from __future__ import annotations

import time

import pytest

from bsd.actions.extract import extract
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.planning.result import Status
from bsd.store.originals import SessionStore
from tests.openclaw_tree import set_idle, set_status
from tests.session_files import HEADER, LONG, NAME, Clock, entry, jsonl, make_caller, write

WRITTEN = {"timestamp": iso_utc(time.time() - 60)}


@pytest.fixture
def crashed(layout: Layout) -> Layout:
    """A session that was interrupted in the middle of its only turn, a minute ago."""
    entries = [entry(0, "user", "look"), *(entry(n, "toolResult", LONG) for n in range(1, 9))]
    write(layout, [HEADER, *(one | WRITTEN for one in entries)])
    return layout


def test_its_old_values_leave_for_this_call_only(crashed: Layout, clock: Clock) -> None:
    caller = make_caller(crashed, clock)
    assert extract(caller, NAME).status is Status.UNCHANGED
    result = extract(caller, NAME, turn_over=True)
    assert (result.status, result.entries) == (Status.EXTRACTED, 5)
    assert len(SessionStore(crashed, NAME).refs()) == 5
    path = crashed.transcript(NAME)
    more = [entry(n, "toolResult", LONG) | WRITTEN for n in range(9, 14)]
    path.write_bytes(path.read_bytes() + jsonl(*more))
    set_idle(path)
    assert extract(caller, NAME).status is Status.UNCHANGED


def test_a_session_in_use_is_left_alone_all_the_same(crashed: Layout, clock: Clock) -> None:
    caller = make_caller(crashed, clock, wait=0.0)
    before = crashed.transcript(NAME).read_bytes()
    set_status(crashed.root, str(NAME), "running")
    assert extract(caller, NAME, turn_over=True).status is Status.BUSY
    assert crashed.transcript(NAME).read_bytes() == before
