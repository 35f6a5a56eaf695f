"""What `bsd doctor`, `bsd fleet status` and the lists of hosts say of a real database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.fleet import FleetFilter, list_fleet_sessions, search_fleet
from bsd.actions.fleet_status import fleet_status
from bsd.core.config_file import ConfigService
from bsd.core.errors import TemporaryFailure
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.migrating import migrate
from bsd.fleet.checks import check_fleet
from bsd.fleet.host import HostDirectory
from tests.fleet.catalogue.conftest import MakeMember
from tests.servers.postgres import Postgres, running
from tests.session_files import conversation, write

pytestmark = pytest.mark.servers


def checked(context: ActionContext) -> list[tuple[str, str]]:
    return [(check.level.value, check.message) for check in check_fleet(context)]


def test_a_real_catalogue(
    member: MakeMember, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, far = member("ours", "aaaaaaaa"), member("build-3", "bbbbbbbb")
    for module in ("bsd.actions.fleet", "bsd.actions.fleet_status"):
        monkeypatch.setattr(f"{module}.this_host", lambda *_: HostDirectory("ours", "aaaaaaaa"))
    layout = ours.layout
    context = ActionContext(
        layout=layout, config=ConfigService(layout.config_file), fleet=ours.settings
    )
    assert [level for level, _ in checked(context)] == ["warn"]  # no tables yet
    for each, name in ((ours, "alpha"), (far, "beta")):
        write(each.layout, conversation(3), SessionName("main", name))
        each.ingest()
    assert [level for level, _ in checked(context)] == ["ok"]
    status = fleet_status(context)
    assert [(one.host, one.here, one.sessions) for one in status.hosts] == [
        ("ours", True, 1),
        ("build-3", False, 1),
    ]
    assert not status.problems
    found = list_fleet_sessions(context)
    assert {one.session: one.here for one in found.sessions} == {
        "main/alpha": True,
        "main/beta": False,
    }
    results = search_fleet(context, "look", FleetFilter(host="build-3", role="user")).results
    assert [hit.command for hit in results] == ["bsd archive bring-back build-3:main/beta"]

    role = f"reader_{Path(layout.root).parent.name}".replace("-", "_").lower()[:60]
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'loopback'")
    database = (ours.settings.database or "").replace("user='postgres'", f"user='{role}'")
    reader = replace(context, fleet=replace(ours.settings, database=database))
    levels = [level for level, _ in checked(reader)]
    assert "fail" in levels, checked(reader)
    migrate(ours.settings, readers=(role,))
    told = checked(reader)
    assert [level for level, _ in told] == ["ok", "warn"], told
    assert "may not write entries, hosts, sessions, watermarks" in told[1][1]


def test_a_server_that_stops(tmp_path: Path, member: MakeMember) -> None:
    layout = member().layout
    with running() as server:
        settings = FleetSettings(host="ours", database=server.dsn())
        context = ActionContext(
            layout=layout, config=ConfigService(layout.config_file), fleet=settings
        )
        server.stop()
        [(level, message)] = checked(context)
        assert level == "fail"
        assert "loopback" not in message.replace("127.0.0.1", "")
        status = fleet_status(context)
        assert [(one.part, bool(one.hint)) for one in status.problems] == [("database", True)]
        assert [one.here for one in status.hosts] == [True]
        with pytest.raises(TemporaryFailure):
            list_fleet_sessions(context)
        server.start()
