"""When a commit is worth the bytes it has to copy."""

from __future__ import annotations

import pytest

from bsd.daemon.ledger import LONGEST_WAIT_SECONDS, PendingSavings
from bsd.foundation.layout import SessionName
from bsd.surgery.plan import Plan, Report
from bsd.text.change import Edit, Identity

NAME = SessionName("main", "s1")
MB = 1 << 20


def plan(before: int, after: int, new: bytes = b'{"id":"e1"}\n') -> Plan:
    edits = (Edit(0, 1, new),) if before != after else ()
    return Plan(Identity(1, 2, before, 3, 4), edits, Report("extract", 1, 1, before, after))


@pytest.mark.parametrize(
    ("saved", "worth"), [(5 * 1024, False), (MB - 1, False), (MB, True), (20 * MB, True)]
)
def test_a_commit_saves_at_least_a_part_of_what_it_copies(saved: int, worth: bool) -> None:
    assert PendingSavings().are_worth(NAME, plan(32 * MB + saved, 32 * MB), 0.0) is worth


def test_the_oldest_saving_waits_no_longer_than_an_hour() -> None:
    savings = PendingSavings()
    small = plan(32 * MB + 10, 32 * MB)
    assert savings.due(NAME) is None
    assert not savings.are_worth(NAME, small, 100.0)
    # What is added later does not make the oldest younger.
    assert not savings.are_worth(NAME, small, 100.0 + LONGEST_WAIT_SECONDS - 1)
    assert savings.due(NAME) == 100.0 + LONGEST_WAIT_SECONDS
    assert savings.are_worth(NAME, small, 100.0 + LONGEST_WAIT_SECONDS)
    # If the commit then gives up, the hour is over all the same.
    assert savings.are_worth(NAME, small, 101.0 + LONGEST_WAIT_SECONDS)
    savings.settle(NAME)
    assert not savings.are_worth(NAME, small, 101.0 + LONGEST_WAIT_SECONDS)


def test_what_somebody_asked_for_does_not_wait() -> None:
    savings = PendingSavings()
    restored = b'{"id":"e1","text":"[[extracted-e1]]","_restored":"2026-01-01T00:00:00Z"}\n'
    freed = b'{"id":"e1","text":"[[extracted-e1]]","_extractable":true}\n'
    mentioned = b'{"id":"e1","text":"they wrote \\"_restored\\" and \\"_extractable\\""}\n'
    assert savings.are_worth(NAME, plan(32 * MB + 10, 32 * MB, restored), 0.0)
    assert savings.are_worth(NAME, plan(32 * MB + 10, 32 * MB, freed), 0.0)
    assert not savings.are_worth(NAME, plan(32 * MB + 10, 32 * MB, mentioned), 0.0)


def test_nothing_to_save_waits_for_nothing() -> None:
    savings = PendingSavings()
    assert not savings.are_worth(NAME, plan(32 * MB + 10, 32 * MB), 0.0)
    assert len(savings) == 1
    assert savings.are_worth(NAME, plan(32 * MB, 32 * MB), 1.0)
    assert len(savings) == 0
    assert savings.due(NAME) is None
