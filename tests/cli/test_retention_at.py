"""`bsd retention --dry-run --at`: content that bsd and agents' programs delete until then."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.retention import foretell_retention
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.daemon.cron import Cron
from bsd.sessions.idle import RetryBudget
from tests.cli.conftest import Call, snapshot
from tests.cli.machine import Machine
from tests.cli.test_retention_command import put_forward, stored
from tests.http.fake_daemon import app_over, ask
from tests.openclaw_tree import set_idle


def test_it_tells_what_scheduled_runs_move_and_delete(bsd: Call, root: Path) -> None:
    old = stored(root, 20)
    stored(root, 1, "0002_thinking.json")
    before = snapshot(root)
    soon = bsd("--json", "retention", "--dry-run", "--at", "now").document
    assert (soon["until"], soon["moved"], soon["deleted"]) == (None, 0, 0)
    assert soon["next"]["dry_run"] is True
    until = bsd("--json", "retention", "--dry-run", "--at", "+12h").document
    assert [file["path"] for file in until["until"]["files"]] == [str(old)]
    assert (until["moved"], until["moved_bytes"], until["deleted"]) == (1, 1000, 0)
    assert until["next_run"] <= until["last_run"] <= until["at"]
    told = bsd("retention", "--dry-run", "--at", "+12h").out
    assert "  into the archive: 1 extracted file (1000 B), about 250 B there\n" in told
    assert "In all: bsd deletes 0 files (0 B) for good and moves 1 file (1000 B)" in told
    assert bsd("retention", "--dry-run", "--at", "tonight").code == 0
    assert snapshot(root) == before
    bsd("config", "set", "archive", "false")
    gone = bsd("--json", "retention", "--dry-run", "--at", "+12h").document
    assert (gone["moved"], gone["deleted"], gone["deleted_bytes"]) == (0, 1, 1000)
    bsd("config", "set", "retention", "never")
    never = bsd("retention", "--dry-run", "--at", "+12h").out
    assert "bsd deletes nothing by itself: the setting `retention` is never" in never


def test_only_the_first_run_holds_back_if_the_clock_is_in_doubt(bsd: Call, root: Path) -> None:
    stored(root, 23)
    bsd("config", "set", "archive", "false")
    put_forward(root, 5)
    layout = Layout(root)
    clock = RetryBudget(clock=lambda: 1_800_000_000.0)
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file), budget=clock)
    one, two = (
        foretell_retention(context, at, Cron("0 */6 * * *").after) for at in ("+6h", "+12h")
    )
    assert (one.last_run, two.last_run) == ("2027-01-15T12:00:00.000Z", "2027-01-15T18:00:00.000Z")
    assert one.until is not None
    assert one.until.store.held
    assert one.deleted == 0
    assert two.deleted == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--at tonight", "Try: `bsd retention --dry-run --at tonight`"),
        ("--dry-run --forget --at tonight", "--at forecasts the scheduled runs"),
        ("--dry-run --at soon", "'soon' is not a time"),
        ("--dry-run --at 2020-01-01", "'2020-01-01' has passed"),
    ],
)
def test_refusals(bsd: Call, line: str, told: str) -> None:
    ended = bsd("retention", *line.split())
    assert (ended.code, told in ended.err) == (2, True)


def test_sessions_that_a_program_deletes_are_named(machine: Machine) -> None:
    session = machine.has("claude-code", b'{"type":"user","uuid":"u1","message":{}}\n')
    machine.set('[[sources]]\nkind = "claude-code"\npath = "~/.claude/projects"\n')
    set_idle(session, 29.5 * 86_400)
    assert machine("retention --dry-run --at +1h --json").document["programs"] == []
    (program,) = machine("retention --dry-run --at +24h --json").document["programs"]
    assert (program["count"], program["uncopied"]) == (1, 1)
    assert program["sessions"][0]["session"].endswith(session.stem)
    told = machine("retention --dry-run --at +24h")
    assert "older than its setting cleanupPeriodDays: 1 session" in told.out
    assert "without a copy in the archive" in told.out
    assert "Try: `bsd archive keep`" in told.err
    machine("archive keep")
    (program,) = machine("retention --dry-run --at +24h --json").document["programs"]
    assert program["uncopied"] == 0


def test_the_route_answers_the_same(tmp_path: Path) -> None:
    stored(tmp_path, 20)
    app = app_over(tmp_path)
    reply = ask(app, "GET", "/api/retention?at=%2B12h")
    assert (reply.status, reply.json()["moved"]) == (200, 1)
    assert ask(app, "GET", "/api/retention").status == 200
    assert ask(app, "GET", "/api/retention?at=soon").status == 400
