"""A session that one daemon leaves idle need not be opened by the next."""

from __future__ import annotations

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.daemon.state import IdleSessions
from bsd.store.state import StateDb
from bsd.transcripts.change import Written

ONE, OTHER = SessionName("main", "one"), SessionName("main", "other")
SEEN = Written(1, (1 << 64) - 5, 300, 400)


def rests(layout: Layout) -> IdleSessions:
    return IdleSessions(StateDb(layout.state_db), ConfigService(layout.config_file))


def known(layout: Layout) -> tuple[dict[SessionName, Written], dict[SessionName, float]]:
    seen: dict[SessionName, Written] = {}
    due: dict[SessionName, float] = {}
    for left in rests(layout).known():
        seen[left.session] = left.file
        if left.due_at is not None:
            due[left.session] = left.due_at
    return seen, due


def work(daemon: IdleSessions, name: SessionName, due_at: float | None = None) -> None:
    daemon.unsettled(name)
    daemon.left(name, SEEN, due_at)


def test_what_was_left_is_known_to_the_next_one(layout: Layout) -> None:
    first = rests(layout)
    work(first, ONE)
    work(first, OTHER, due_at=99.5)
    assert known(layout) == ({}, {})  # not written yet
    first.flush()
    assert known(layout) == ({ONE: SEEN, OTHER: SEEN}, {OTHER: 99.5})


def test_very_many_are_not_kept_until_somebody_flushes(layout: Layout) -> None:
    daemon = rests(layout)
    names = [SessionName("main", f"s{number}") for number in range(1500)]
    for name in names:
        work(daemon, name)
    early = known(layout)[0].keys()
    assert 1000 <= len(early) < 1500
    daemon.flush()
    assert known(layout)[0].keys() == set(names)


def test_what_is_being_looked_into_is_not_at_rest(layout: Layout) -> None:
    daemon = rests(layout)
    work(daemon, ONE)
    daemon.flush()
    daemon.unsettled(ONE)
    daemon.flush()
    assert known(layout) == ({}, {})
    daemon.left(ONE, SEEN, None)
    daemon.flush()
    assert known(layout)[0] == {ONE: SEEN}


def test_other_settings_wake_everybody(layout: Layout) -> None:
    daemon = rests(layout)
    work(daemon, ONE)
    daemon.flush()
    config = ConfigService(layout.config_file)
    config.update({"keep_recent": 7})
    assert known(layout) == ({}, {})
    config.update({"keep_recent": 3, "retention": "7d"})
    assert known(layout)[0] == {ONE: SEEN}


def test_what_was_judged_by_other_settings_meanwhile_is_not_at_rest(layout: Layout) -> None:
    daemon = rests(layout)
    daemon.unsettled(ONE)
    ConfigService(layout.config_file).update({"keep_recent": 7})
    daemon.left(ONE, SEEN, None)
    daemon.flush()
    assert known(layout) == ({}, {})
