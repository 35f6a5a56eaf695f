"""Sources that the root's files in flight cannot reach: reported at once, with a remedy."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

import pytest

from bsd.core import filesystem
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout
from bsd.core.sources import Source
from bsd.maintenance.doctor import Level, examine
from bsd.sessions.commit import reach
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.reach import unreached
from tests.daemon.fast_forward import Clock, machine
from tests.openclaw_tree import add_session
from tests.refusing import raising
from tests.sessions.commit.test_inflight import bind, mounted

__all__ = ["mounted"]  # a fixture

_CGROUPS = {
    "v2": "0::/system.slice/system-bsd.slice/bsd@ada.service\n",
    "v1": "12:pids:/\n1:name=systemd:/system.slice/system-bsd.slice/bsd@ada.service\n0::/\n",
}


@pytest.fixture
def home(tmp_path: Path) -> Layout:
    """A user's directory with OpenClaw and Claude Code in it."""
    source = tmp_path / "home" / ".claude" / "projects"
    (source / "-p").mkdir(parents=True)
    add_session(tmp_path / "home" / ".openclaw", "main/a", b"{}\n")
    known = Source("claude", "claude-code", source, ((None,),))
    return Layout(tmp_path / "home" / ".openclaw", (known,))


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cgroups of this process, as the system reports them; outside of all units, unless
    written.
    """
    path = tmp_path / "cgroups"
    path.write_text("0::/user.slice/user-1000.slice/user@1000.service/app.slice/bsd.service\n")
    monkeypatch.setattr(reach, "_CGROUPS", path)
    return path


def _mount_each(layout: Layout, mounted: list[Path]) -> None:
    """Mount each path, as a unit's ReadWritePaths does."""
    for path in (layout.root, layout.sources[0].path):
        bind(path, path, mounted)


def test_what_lies_on_one_mount_is_reached(home: Layout, cgroups: Path) -> None:
    assert unreached(home, home.sources[0]) is None
    before = sorted(home.root.rglob("*"))
    home.own.mkdir()
    assert unreached(home, home.sources[0]) is None
    assert sorted(home.root.rglob("*")) == sorted([*before, home.own]), "nothing was made"


@pytest.mark.parametrize("version", _CGROUPS)
def test_mounts_of_one_file_system_are_two(
    home: Layout, cgroups: Path, version: str, mounted: list[Path]
) -> None:
    _mount_each(home, mounted)
    cgroups.write_text(_CGROUPS[version])
    assert home.root.stat().st_dev == home.sources[0].path.stat().st_dev
    found = unreached(home, home.sources[0])
    assert found is not None
    assert found.why == (
        f"sessions of claude cannot be exchanged in {home.sources[0].path}: "
        "Invalid cross-device link"
    )
    assert "`systemctl edit bsd@ada.service`" in found.remedy
    assert f"ReadWritePaths= ReadWritePaths={home.root.parent}," in found.remedy


def test_a_commit_says_so_too(home: Layout, cgroups: Path, mounted: list[Path]) -> None:
    _mount_each(home, mounted)
    session = home.sources[0].path / "-p" / "s.jsonl"
    session.touch()
    with pytest.raises(Unavailable, match="sessions of claude cannot be exchanged in") as caught:
        InFlight(home).directory_for(session)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"mount {home.root.parent} as a whole")


def test_a_source_that_cannot_be_written(home: Layout, cgroups: Path, mounted: list[Path]) -> None:
    """ProtectHome=read-only, without ReadWritePaths for it."""
    source = home.sources[0].path
    bind(source, source, mounted)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(source)], check=True)
    cgroups.write_text(_CGROUPS["v2"])
    found = unreached(home, home.sources[0])
    assert found is not None
    assert "ReadWritePaths=" in found.remedy
    (doctors,) = (check for check in examine(home) if check.name == "sources")
    assert (doctors.level, doctors.hint) == (Level.FAIL, found.remedy)


def _refuse(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(
        filesystem, "refuse_unless_reached", raising(OSError(code, os.strerror(code)))
    )


def test_nobody_is_told_to_open_all_homes(
    home: Layout, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse(monkeypatch, errno.EXDEV)
    cgroups.write_text(_CGROUPS["v2"])
    monkeypatch.setattr(os.path, "commonpath", lambda _: "/home")
    found = unreached(home, home.sources[0])
    assert found is not None
    assert "ReadWritePaths" not in found.remedy
    assert "put bsd's root beside" in found.remedy


def test_a_name_that_systemd_would_read_otherwise(
    home: Layout, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse(monkeypatch, errno.EXDEV)
    cgroups.write_text(_CGROUPS["v2"])
    monkeypatch.setattr(os.path, "commonpath", lambda _: "/srv/100% a da")
    found = unreached(home, home.sources[0])
    assert found is not None
    assert 'ReadWritePaths="/srv/100%% a da"' in found.remedy


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOENT])
def test_what_may_still_work_is_no_problem(
    home: Layout, cgroups: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    _refuse(monkeypatch, code)
    assert unreached(home, home.sources[0]) is None


@pytest.mark.daemon
def test_the_daemons_health_is_red(
    home: Layout, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = home.root / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    source = home.sources[0].path
    settings.write_text(f'[[sources]]\nkind = "claude-code"\nname = "c"\npath = "{source}"\n')
    with machine(home.root, Clock(time.time()), monkeypatch) as running:
        assert running.daemon.report.health()["status"] == "ok"
        assert [one["problem"] for one in running.daemon.report.status()["sources"]] == [None]
        _refuse(monkeypatch, errno.EXDEV)
        health = running.daemon.report.health()
        assert health["status"] == "degraded"
        (problem,) = health["problems"]
        assert problem.startswith(f"sessions of c cannot be exchanged in {source}")
        assert "(try: mount " in problem
        (told,) = running.daemon.report.status()["sources"]
        assert told["problem"]["text"] in problem
        assert told["problem"]["remedy"] in problem
