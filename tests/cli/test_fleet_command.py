"""`bsd fleet status`, `bsd search --fleet` and `bsd sessions --fleet`."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.bucket.objects import open_bucket
from bsd.bucket.remote_file import RemoteFile, RemotePart
from bsd.core.errors import TemporaryFailure
from bsd.core.fleet_settings import FleetSettings
from bsd.fleet.host import HostDirectory
from bsd.fleet.manifest import make_manifest, manifest_key
from bsd.mcp.tools import TOOLS
from tests.cli.conftest import Call
from tests.commands import Ended
from tests.fake_catalogue import SETTINGS, FakeCatalogue, catalogue, host

__all__ = ["catalogue"]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "bsd.toml"
    file.write_text(f"[fleet]\n{SETTINGS}")
    return file


@pytest.fixture
def shared(bsd: Call, settings: Path, catalogue: FakeCatalogue) -> Call:
    """bsd with a catalogue."""
    assert catalogue.opened == 0

    class WithCatalogue(Call):
        def __call__(self, *arguments: str, **env: str) -> Ended:
            return super().__call__(*arguments, "--config", str(settings), **env)

    return WithCatalogue(bsd.root, bsd.capture, bsd.patch)


def test_a_machine_that_shares_nothing(bsd: Call) -> None:
    told = bsd("fleet")
    assert told.code == 0
    assert told.out.startswith("This machine shares nothing")
    assert "contrib/docs/fleet.md" in told.out
    assert bsd("fleet", "status", "--json").document["hosts"] == []
    for command in (("search", "--fleet", "word"), ("sessions", "--fleet")):
        ended = bsd(*command)
        assert (ended.code, "Try: contrib/docs/fleet.md" in ended.err) == (78, True), ended


def test_status_lists_this_machine_first(shared: Call, catalogue: FakeCatalogue) -> None:
    document = shared("fleet", "status", "--json").document
    names = [(one["host"], one["here"]) for one in document["hosts"]]
    assert names == [("ours", True), ("build-3", False), ("old", False)]
    assert (document["warnings"], document["problems"]) == ([], [])
    told = shared("fleet")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[1].startswith("ours (here)  2026-11-27 04:00")
    assert lines[2].split("  ")[-2:] != lines[1].split("  ")[-2:]
    assert "2 files, 4.0 MB" in lines[2]
    assert "2 h" in lines[2]
    assert "old, last error: the bucket is full" in told.err
    assert catalogue.closed == catalogue.opened == 2


def test_a_bucket_without_a_database(bsd: Call, tmp_path: Path) -> None:
    file, place = tmp_path / "bsd.toml", tmp_path / "bucket"
    file.write_text(f'[fleet]\nhost = "ours"\nbucket = "file://{place}"\n')
    missing = bsd("fleet", "--config", str(file))
    assert missing.code == 1
    assert "ours (here)" in missing.out
    assert f"Error: bucket: the directory {place} of the bucket does not exist" in missing.err
    place.mkdir()
    directory = HostDirectory("build-3", "00000003")
    part = RemotePart(f"{directory.objects}/{'0' * 64}", 5 << 20, "0" * 64)
    packed = RemoteFile("main_a/0001.pack", 5 << 20, "0" * 64, (part,))
    added = (json.dumps(packed.as_json()).encode(), None)
    manifest = make_manifest(directory, 1, None, [added], [], at=1.7e9, full=True)
    open_bucket(FleetSettings(bucket=f"file://{place}")).put_new(
        manifest_key(directory, 1), manifest
    )
    told = bsd("fleet", "--config", str(file))
    assert (told.code, told.err) == (0, ""), told.err
    ours, far = told.out.splitlines()[1:3]
    assert re.match(r"ours \(here\) +unknown +\S+ +unknown$", ours), ours
    assert re.match(r"build-3 +2023-11-14 22:13 +\S+ +0 +0 B +5.0 MB +unknown$", far), far


def test_two_hosts_of_one_name(shared: Call, catalogue: FakeCatalogue) -> None:
    same = ("ours~00000001", "ours~00000009")
    catalogue.known_hosts = tuple(host(name, name[-8:]) for name in same)
    told = shared("fleet")
    assert told.code == 0
    assert "ours (here) " in told.out
    assert "ours~00000009 " in told.out
    assert "2 machines are called ours (ours, ours~00000009): set `host`" in told.err


def test_a_database_that_does_not_answer(shared: Call, catalogue: FakeCatalogue) -> None:
    catalogue.failing = TemporaryFailure("the database refuses connections", hint="start it")
    told = shared("fleet")
    assert told.code == 1
    assert "ours (here)" in told.out
    assert "Error: database: the database refuses connections\nTry: start it" in told.err
    document = shared("fleet", "--json").document
    [problem] = document["problems"]
    assert (problem["part"], problem["hint"]) == ("database", "start it")
    assert shared("search", "--fleet", "word").code == TemporaryFailure.exit_code


def test_search(shared: Call, catalogue: FakeCatalogue) -> None:
    asked = ("search", "--fleet", "dead", "lock", "--host", "build-3", "--role", "user")
    found = shared(*asked, "--tool", "exec", "--after", "k", "--json").document
    assert catalogue.asked == [
        {
            "words": "dead lock",
            "host": "build-3",
            "role": "user",
            "tool": "exec",
            "limit": 20,
            "after": "k",
        }
    ]
    assert found["next"] == "page-2"
    assert [(one["here"], one["command"]) for one in found["results"]] == [
        (True, "bsd show main/alpha e4"),
        (True, "bsd archive show main/departed"),
        (False, "bsd archive bring-back build-3:claude-code:-home-me/4f2a"),
    ]
    told = shared("search", "--fleet", "word", "--host", "*", "--since", "2026-11-01").out
    assert re.search(r"build-3:claude-code:-home-me/4f2a +#7 ", told)
    assert told.count("bsd archive bring-back build-3:") == 1
    assert told.endswith("3 entries\nThe next page: --after page-2\n")
    assert "host" not in catalogue.asked[1]
    assert isinstance(catalogue.asked[1]["since"], float)


def test_names_of_other_machines_are_quoted(shared: Call, catalogue: FakeCatalogue) -> None:
    far = replace(catalogue.known_sessions[2], session="a/b; rm -rf ~\x1b[2J")
    catalogue.known_sessions = (far,)
    told = shared("sessions", "--fleet").out
    assert "bring-back 'build-3:a/b; rm -rf ~\\x1b[2J'" in told


def test_sessions(shared: Call, catalogue: FakeCatalogue) -> None:
    asked = ("sessions", "--fleet", "--agent", "main", "--untouched", "30d")
    found = shared(*asked, "--directory", "/home/ada", "--limit", "3", "--json").document
    assert catalogue.asked == [
        {
            "agent": "main",
            "untouched_seconds": 30 * 86400.0,
            "directory": "/home/ada",
            "limit": 3,
        }
    ]
    assert [one["here"] for one in found["sessions"]] == [True, True, False]
    assert found["sessions"][0]["size"] == 5 << 20
    told = shared("sessions", "--fleet").out.splitlines()
    assert told[0].split()[0] == "HOST:SESSION"
    assert told[2].split()[0] == "ours:main/departed"
    assert "gone" in told[2]
    assert told[-2] == (
        "To bring one back to this machine: "
        "bsd archive bring-back build-3:claude-code:-home-me/4f2a"
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("search", "--fleet"), "no words to search for"),
        (("search", "--fleet", "w", "--all"), "--all cannot be used with --fleet"),
        (("search", "--fleet", "w", "--file", "a.py"), "--file cannot be used with --fleet"),
        (("search", "--fleet", "w", "--session", "main/alpha"), "--session cannot be used"),
        (("search", "--fleet", "w", "--project", "shop"), "--project cannot be used"),
        (("search", "--fleet", "w", "--place", "gone"), "--place cannot be used"),
        (("search", "--fleet", "w", "--role", "tool"), "--role tool cannot be used"),
        (("search", "--fleet", "w", "--role", "thinking"), "--role thinking cannot be used"),
        (("search", "w", "--host", "build-3"), "--host is only for --fleet"),
        (("search", "w", "--tool", "exec"), "--tool is only for --fleet"),
        (("sessions", "--fleet", "--sort", "size"), "--sort cannot be used with --fleet"),
        (("sessions", "--fleet", "-q", "w"), "--query cannot be used with --fleet"),
        (("sessions", "--fleet", "--resume"), "--resume cannot be used with --fleet"),
        (("sessions", "--fleet", "--untouched", "soon"), "Invalid duration"),
        (("sessions", "--untouched", "3d"), "--untouched is only for --fleet"),
        (("sessions", "--after", "k"), "--after is only for --fleet"),
    ],
)
def test_options_that_do_not_go_together(
    shared: Call, catalogue: FakeCatalogue, line: tuple[str, ...], told: str
) -> None:
    ended = shared(*line)
    assert (ended.code, told in ended.err) == (2, True), ended.err
    assert "Try: " in ended.err
    assert not catalogue.asked


def test_agents_get_nothing_of_other_machines() -> None:
    assert not [name for name in TOOLS if "fleet" in name or "host" in name]
    folder = Path(__file__).parents[2] / "bsd/mcp"
    texts = {os.path.basename(path): path.read_text() for path in folder.glob("*.py")}
    assert not [name for name, text in texts.items() if "actions.fleet" in text]
    assert not [name for name, text in texts.items() if "bsd.fleet" in text]
