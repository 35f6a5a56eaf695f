"""Messages of commands about warm prompt caches, and about continuing a session."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.store.state import Left, StateDb
from bsd.transcripts.change import Written
from tests.cli.conftest import Call
from tests.openclaw_tree import add_session
from tests.session_files import conversation, jsonl

DUE = re.compile(r"waits: cache warm until (\d\d:\d\d), 38k tokens ready")


def leave_waiting(root: Call, session: str, until: float, *, size: int = 0) -> None:
    """Leave a session as a daemon does; with another `size` than its own, it has changed since."""
    layout, name = Layout(root.root), SessionName.parse(session)
    seen = Written.of(layout.session_file(name).lstat())
    seen = seen._replace(size=size or seen.size)
    left = Left(name, "settings", seen, until, until, 38_123, 31_000, 0.124, calls_needed=60)
    StateDb(layout.state_db).note_rests({name: left})


def test_a_session_that_waits_says_until_when(bsd: Call) -> None:
    until = time.time() + 600
    leave_waiting(bsd, "main/alpha", until)
    shown = bsd("sessions").out
    [line] = [line for line in shown.splitlines() if "main/alpha" in line]
    found = DUE.search(line)
    assert found
    assert found[1] == f"{datetime.fromtimestamp(until).astimezone():%H:%M}"
    assert len(DUE.findall(shown)) == 1
    cost = "a cut now rewrites 31k cached tokens (about $0.12) and pays after 60 further calls"
    assert cost in bsd("show", "main/alpha", "--limit", "1").out
    rows = {row["session"]: row for row in bsd("sessions", "--json").document["sessions"]}
    assert rows["main/alpha"]["cache_warm_until"] == iso_utc(until)
    assert rows["main/alpha"]["tokens_ready"] == 38_123
    assert rows["main/alpha"]["tokens_rewritten"] == 31_000
    assert rows["main/alpha"]["cost_now"] == 0.124
    assert (rows["main/alpha"]["cut_reason"], rows["main/alpha"]["calls_needed"]) == ("warm", 60)
    members = {"cache_warm_until", "tokens_ready", "tokens_rewritten", "cost_now", "cut_reason"}
    others = [row for name, row in rows.items() if name != "main/alpha"]
    assert not [row for row in others if members & row.keys()]


@pytest.mark.parametrize("how", [{"until": -1.0}, {"until": 600.0, "size": 3}])
def test_one_that_waits_no_longer_or_has_changed_says_nothing(
    bsd: Call, how: dict[str, Any]
) -> None:
    leave_waiting(bsd, "main/alpha", time.time() + how.pop("until"), **how)
    assert "waits" not in bsd("sessions").out


def warm_session(bsd: Call) -> None:
    entries = conversation(results=3)
    for one in entries[1:]:
        if one["message"]["role"] == "assistant":
            one["message"]["usage"] = {"input": 3, "cacheRead": 9, "cacheWrite": 9}
            one["timestamp"] = iso_utc(time.time())
    add_session(bsd.root, "main/warm", jsonl(*entries))


def test_a_dry_run_says_what_the_daemon_waits_for_and_a_run_does_not_wait(bsd: Call) -> None:
    warm_session(bsd)
    told = bsd("extract", "main/warm", "--dry-run")
    cost = r"21 cached tokens \(less than \$0.01\); cold at \d\d:\d\d"
    assert re.search(rf"main/warm: a cut now rewrites {cost}", told.err)
    assert "does not wait: 21 cached tokens in 1 session would be written again" in told.out
    asked = bsd("extract", "main/warm", "--dry-run", "--when", "cold")
    assert re.search(r"3 +cache_warm +the prompt cache of its provider is warm", asked.out)
    assert re.search(r"main/warm: waits: cache warm until \d\d:\d\d, ", asked.err)
    done = bsd("extract", "main/warm")
    assert "3 values of 3 entries" in done.out
    assert "cache warm" not in done.err
    assert "21 cached tokens in 1 session are written again (less than $0.01)" in done.out
    assert "extract (asked for)" in bsd("history", "main/warm").out
    log = (bsd.root / "logs" / "brainsurgeon.log").read_text()
    assert "because=" in log or '"because"' in log


def test_a_moment_that_is_none_is_refused(bsd: Call) -> None:
    ended = bsd("extract", "main/alpha", "--when", "soon")
    assert ended.code == 2
    assert "'pays', 'now' or 'cold'" in ended.err


def test_the_command_that_continues_a_session_is_shown(bsd: Call) -> None:
    command = "openclaw tui --session agent:main:alpha"
    assert command in bsd("sessions", "--resume").out
    assert command not in bsd("sessions").out
    assert f"Continue it: {command}" in bsd("show", "main/alpha", "--limit", "1").out
    assert f"Continue it: {command}" in bsd("summary", "main/alpha").out
    rows = {row["session"]: row for row in bsd("sessions", "--json").document["sessions"]}
    assert rows["main/alpha"]["resume"] == command
