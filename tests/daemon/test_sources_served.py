"""A real daemon serves the sessions of Claude Code, Codex and pi, as the settings name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from bsd.core.filesystem import strength
from tests.daemon.running import Running, configure, running
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CODEX, COPILOT, KINDS
from tests.transcripts.agents.sources.tree import LONG, Home, Kind, away, raw, without_restored
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])


def archive_of(home: Home) -> Path:
    return home.source.parent / "archived_sessions"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, Home]]]:
    """A daemon for all kinds; none of their sessions is long enough yet to lose a value."""
    require_linux()
    top = tmp_path_factory.mktemp("sources")
    if strength(top).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    # The second line of Copilot CLI is long and never sent.
    beginnings = {kind.kind: kind.lines()[: 1 if kind is COPILOT else 3] for kind in KINDS}
    homes = {kind.kind: Home.of(kind, top, beginnings[kind.kind]) for kind in KINDS}
    archive_of(homes["codex"]).mkdir()
    tables = [
        f'[[sources]]\nkind = "{home.kind.kind}"\npath = "{home.source}"\n'
        for home in homes.values()
    ]
    settings = top / "config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("\n".join(tables))
    root = top / "root"
    configure(root, keep_recent=0, scan_interval_seconds=3600)
    with ExitStack() as stack:
        daemon = stack.enter_context(running(root, top, XDG_CONFIG_HOME=str(top / "config")))
        yield daemon, homes


@each_kind
def test_what_is_appended_leaves_and_comes_back(
    world: tuple[Running, dict[str, Home]], kind: Kind
) -> None:
    daemon, homes = world
    home = homes[kind.kind]
    before = home.path.read_bytes()
    lines = raw(kind.lines())
    assert lines.startswith(before)
    with home.path.open("ab") as file:
        file.write(lines[len(before) :])
    set_idle(home.path)  # so the time of quiet is over; the scan comes in an hour only
    mtime = home.path.stat().st_mtime_ns

    def is_extracted() -> bool:
        daemon.must_run()
        return b"[[extracted-" in home.path.read_bytes()

    wait_for(is_extracted, f"{home.name} to be extracted")
    new = home.path.read_bytes()
    assert away(lines, new) > 0
    assert len(kind.reads(new)) == len(kind.reads(lines))
    assert home.path.stat().st_mtime_ns == mtime
    assert [path.name for path in home.path.parent.iterdir()] == [home.path.name]

    listed = daemon.ask("sessions")["sessions"]
    assert str(home.name) in {one["session"] for one in listed}
    place = f"sessions/{quote(home.name.agent)}/{home.name.session}"
    entry = next(one for one in daemon.ask(place)["entries"] if one["extracted"])
    content = daemon.ask(f"{place}/entries/{quote(entry['id'])}/extracted")["content"]
    assert any(text.endswith(LONG) for text in content.values())  # a picture begins with `data:,`
    agents = {one["name"]: one["sessions"] for one in daemon.ask("agents")["agents"]}
    assert agents[home.name.agent] == 1


@each_kind
def test_sessions_that_appear_are_noticed_and_unknown_ones_counted(
    world: tuple[Running, dict[str, Home]], kind: Kind
) -> None:
    daemon, homes = world
    home = homes[kind.kind]
    before = daemon.status()["left_alone"]["count"]
    other = home.other_place()
    other.mkdir(parents=True)
    path = other / home.path.name
    content = raw([{"type": "brand_new", "text": "t" * 2000}])
    path.write_bytes(content)
    set_idle(path)

    def is_left_alone() -> bool:
        daemon.must_run()
        return bool(daemon.status()["left_alone"]["count"] > before)

    wait_for(is_left_alone, f"{path} to be looked at")
    assert path.read_bytes() == content


def test_a_new_version_is_told_and_the_daemon_stays_well(
    world: tuple[Running, dict[str, Home]],
) -> None:
    daemon, homes = world
    home = homes["claude-code"]
    path = home.path.with_name("1a6e0003-0000-4000-8000-000000000003.jsonl")
    content = raw(line | {"version": "3.0.1"} for line in home.kind.lines())
    path.write_bytes(content)
    set_idle(path)

    def is_told() -> bool:
        daemon.must_run()
        return bool(daemon.status()["unknown_forms"])

    wait_for(is_told, f"{path} to be looked at")
    status = daemon.status()
    [forms] = status["unknown_forms"]
    name = f"{home.name.agent}/{path.stem}"
    assert (forms["source"], forms["sessions"], forms["newest"]) == ("claude-code", 1, name)
    assert "'3.0.1'" in forms["reason"]
    [notice] = [each for each in status["notices"] if each["about"] == "form"]
    assert "Claude Code: 1 session has a form that bsd does not know" in notice["text"]
    assert "pip install -U brainsurgeond" in notice["try"]
    health = daemon.ask("health")
    assert health["not_understood"] == [notice["text"]]
    assert health["status"] == "ok"
    doctor = daemon.bsd("doctor").stdout
    assert "a form that bsd does not know" in doctor
    assert path.read_bytes() == content
    path.unlink()


def test_an_archived_thread_is_looked_after_where_it_lies(
    world: tuple[Running, dict[str, Home]],
) -> None:
    daemon, homes = world
    home = homes["codex"]
    lines = raw(CODEX.lines())
    other = home.path.name.replace("bca08", "bca09")
    path = archive_of(home) / other
    draft = home.source.parent / "draft"
    draft.write_bytes(lines)
    set_idle(draft)
    draft.rename(path)

    def is_extracted() -> bool:
        daemon.must_run()
        return b"[[extracted-" in path.read_bytes()

    wait_for(is_extracted, f"{path} to be extracted")
    assert away(lines, path.read_bytes()) > 0
    name = f"{home.name.agent}/{path.stem}"
    [listed] = [one for one in daemon.ask("sessions")["sessions"] if one["session"] == name]
    assert listed["status"] == "archived"
    path.rename(back := home.path.with_name(other))
    set_idle(back)
    done = daemon.bsd("restore-all", name, "--yes", "--keep-enabled")
    assert done.returncode == 0, done.stderr
    assert without_restored(back.read_bytes()) == lines


def test_a_person_brings_all_of_it_back(world: tuple[Running, dict[str, Home]]) -> None:
    """Afterwards the files hold the programs' own lines, however many they have written."""
    daemon, homes = world
    done = daemon.bsd("restore-all", "--yes", "--keep-enabled")
    assert done.returncode == 0, done.stderr
    for home in homes.values():
        assert raw(home.kind.lines()).startswith(without_restored(home.path.read_bytes()))
