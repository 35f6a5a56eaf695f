"""Content that only bsd keeps, before its directory is deleted for good."""

from __future__ import annotations

from bsd.actions.leave import left_behind
from bsd.cli.leave_report import purge_question
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, make_caller, write


def test_values_in_packs_of_a_session_that_is_not_there_are_named(
    layout: Layout, clock: Clock
) -> None:
    path = write(layout, conversation())
    caller = make_caller(layout, clock)
    assert caller.extract(NAME).entries == 3
    for file in layout.store_dir(NAME).glob("0*"):
        set_idle(file, 3 * 24 * 3600)
    assert left_behind(caller).is_empty
    RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    assert left_behind(caller).is_empty
    path.unlink()
    left = left_behind(caller)
    assert (left.stores, left.gone_sessions) == (1, 0)
    assert left.stores_bytes > 0
    assert "None of it is needed" not in purge_question(left, 0)
