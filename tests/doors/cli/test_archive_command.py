"""`bsd archive`: what it says of sessions that are gone, and of who keeps an entry."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bsd.care.retention import RetentionRun
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_fields import PruningConfig
from tests.care.keeping import DAY, keep
from tests.doors.cli.conftest import Call
from tests.openclaw_tree import add_session, set_at_rest
from tests.sessions import NAME, Clock, conversation, jsonl, make_surgeon


def test_what_has_just_gone_does_not_stay_for_ever(bsd: Call, root: Path) -> None:
    path = add_session(root, str(NAME), jsonl(*conversation()))
    set_at_rest(path, 2 * DAY)
    keep(Layout(root), Clock())
    path.unlink()
    said = bsd("archive", "list").out
    assert "just now" in said
    assert "180d on" in said
    assert "never" not in said
    bsd("config", "set", "archive_sessions", "never")
    assert "180d" not in bsd("archive", "list").out


def test_who_keeps_an_entry_is_to_forget_that_entry_alone(bsd: Call, root: Path) -> None:
    layout, clock = Layout(root), Clock()
    surgeon = make_surgeon(layout, clock)
    for name in (str(NAME), "main/fork"):
        add_session(root, name, jsonl(*conversation(4)))
        surgeon.extract(SessionName.parse(name))
    clock.ahead += 120  # what was displaced has had its minute
    surgeon.operator.recover()
    for file in layout.extracted.glob("*/[0-9]*.json"):
        os.utime(file, (time.time() - 2 * DAY,) * 2)
    RetentionRun(layout, actor="cli").clean_all(PruningConfig())
    done = bsd("archive", "forget", str(NAME), "e1", "--yes")
    assert done.code == 0
    assert "main/fork still keeps it: `bsd archive forget main/fork e1`" in done.err
