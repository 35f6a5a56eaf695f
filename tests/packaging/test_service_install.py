"""`bsd service` with a systemctl that only records its calls."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bsd.cli import leave, service
from bsd.cli.main import run
from bsd.cli.service_manager import LABEL, Launchd, Systemd
from tests.needs import require_program
from tests.packaging.units import TOP, Unit

_ENABLE = ["--user daemon-reload", "--user enable bsd.service"]


@dataclass
class FakeManager:
    """Programs on PATH that record their arguments and print the answers in `answers/`."""

    place: Path

    def install(self, name: str) -> None:
        program = self.place / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"""#!/bin/sh
            cd {shlex.quote(str(self.place))}
            echo "$*" >>{name}.calls
            for word in "$@"; do
                [ ! -f "fail.$word" ] || {{ cat "fail.$word" >&2; exit 1; }}
                [ ! -f "say.$word" ] || cat "say.$word"
            done
            """
        )
        program.chmod(0o755)

    def calls(self, name: str = "systemctl") -> list[str]:
        """Return the calls since the last time, except queries."""
        path = self.place / f"{name}.calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        asked = ("--user show", "show-user", "print ")
        return [line for line in lines if not line.startswith(asked)]

    def say(self, word: str, text: str) -> None:
        (self.place / f"say.{word}").write_text(text)

    def fail(self, word: str, text: str) -> None:
        (self.place / f"fail.{word}").write_text(text)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    place = tmp_path / "manager"
    place.mkdir()
    fake = FakeManager(place)
    for name in ("systemctl", "loginctl", "launchctl"):
        fake.install(name)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(service, "manager_here", Systemd)
    return fake


@pytest.fixture
def root(clean_environment: Path) -> Path:
    """The default directory of bsd."""
    path = clean_environment / ".openclaw"
    (path / "agents").mkdir(parents=True)
    return path


@pytest.fixture
def unit(clean_environment: Path) -> Path:
    return clean_environment / ".config" / "systemd" / "user" / "bsd.service"


def _start_line(unit: Path) -> str:
    return Unit.read(unit).one("ExecStart")


def test_installing_writes_the_unit_and_starts_it(
    manager: FakeManager, root: Path, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "install"]) == 0
    assert _start_line(unit) == f"{sys.executable} -m bsd run"
    assert unit.stat().st_mode & 0o777 == 0o600
    assert manager.calls() == [*_ENABLE, "--user restart bsd.service"]
    assert str(unit) in capsys.readouterr().out


def test_the_unit_is_the_packaged_one_but_for_the_program(
    manager: FakeManager, root: Path, unit: Path
) -> None:
    run(["service", "install"])
    packaged = (TOP / "packaging" / "systemd" / "bsd.service").read_text(encoding="utf-8")
    *lines, signature = unit.read_text(encoding="utf-8").splitlines()
    assert "sha256:" in signature
    different = [
        line for line, theirs in zip(lines, packaged.splitlines(), strict=True) if line != theirs
    ]
    assert len(different) == 1


def test_installing_again_changes_nothing_and_starts_it(
    manager: FakeManager, root: Path, unit: Path
) -> None:
    run(["service", "install"])
    before = unit.stat().st_ino
    manager.calls()
    assert run(["service", "install"]) == 0
    assert unit.stat().st_ino == before
    assert manager.calls() == [*_ENABLE, "--user start bsd.service"]


def test_the_service_works_on_the_root_that_was_named(
    manager: FakeManager, unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / 'a 100% "odd" $HOME'
    odd.mkdir()
    assert run(["--root", str(odd), "service", "install"]) == 0
    escaped = str(odd).replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    assert _start_line(unit) == f'{sys.executable} -m bsd --root "{escaped}" run'
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.setenv("OPENCLAW_ROOT", str(plain))
    assert run(["service", "install"]) == 0
    assert _start_line(unit) == f"{sys.executable} -m bsd --root {plain} run"


def test_systemd_reads_an_odd_path_as_it_is(
    manager: FakeManager, unit: Path, tmp_path: Path
) -> None:
    odd = tmp_path / 'a 100% "odd" $HOME'
    odd.mkdir()
    run(["--root", str(odd), "service", "install"])
    systemd = require_program("systemd-analyze")
    os.environ["PATH"] = os.environ["PATH"].partition(":")[2]
    # Other units of the machine name sockets in it, whose paths must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        said = subprocess.run(
            [systemd, "verify", "--man=no", "--user", str(unit)],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"XDG_RUNTIME_DIR": runtime},
        )
    assert said.stdout + said.stderr == ""


def test_without_a_root_nothing_is_installed(
    manager: FakeManager, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "install"]) == 78
    assert not unit.exists()
    assert manager.calls() == []


def test_a_dry_run_does_nothing(
    manager: FakeManager, root: Path, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--json", "service", "install", "--dry-run"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["action"] == "write"
    assert told["file"] == str(unit)
    assert f"ExecStart={sys.executable} -m bsd run\n" in told["content"]
    assert ["systemctl", "--user", "enable", "bsd.service"] in told["commands"]
    assert run(["service", "install", "--dry-run"]) == 0
    assert "would run systemctl --user enable bsd.service" in capsys.readouterr().out
    assert not unit.parent.exists()
    assert manager.calls() == []


@pytest.mark.parametrize("kind", ["foreign", "edited", "mask"])
def test_another_file_is_not_replaced_unasked(
    kind: str, manager: FakeManager, root: Path, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _another(kind, unit)
    manager.calls()
    before = unit.read_bytes()
    assert run(["service", "install"]) == 2
    assert "Try: `bsd service install --yes`" in capsys.readouterr().err
    assert unit.read_bytes() == before
    assert manager.calls() == []
    assert run(["service", "install", "--yes"]) == 0
    assert not unit.is_symlink()
    assert _start_line(unit).startswith(sys.executable)


def _another(kind: str, unit: Path) -> None:
    unit.parent.mkdir(parents=True)
    match kind:
        case "foreign":
            unit.write_text("[Service]\nExecStart=/bin/true\n")
        case "mask":
            unit.symlink_to("/dev/null")
        case "edited":
            assert run(["service", "install"]) == 0
            unit.write_text(unit.read_text().replace("Nice=10", "Nice=5"))


def test_a_unit_of_an_earlier_bsd_is_replaced(
    manager: FakeManager, root: Path, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["service", "install"])
    monkeypatch.setattr(sys, "executable", "/opt/other/bin/python")
    manager.calls()
    assert run(["service", "install"]) == 0
    assert _start_line(unit) == "/opt/other/bin/python -m bsd run"
    assert manager.calls()[-1] == "--user restart bsd.service"


def test_uninstalling_takes_back_what_was_written(
    manager: FakeManager, root: Path, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["service", "install"])
    manager.calls()
    drop_in = unit.with_name("bsd.service.d")
    drop_in.mkdir()
    assert run(["service", "uninstall", "--dry-run"]) == 0
    assert unit.exists()
    assert manager.calls() == []
    assert run(["service", "uninstall"]) == 0
    assert manager.calls() == ["--user disable --now bsd.service", "--user daemon-reload"]
    assert not unit.exists()
    assert drop_in.exists()
    assert run(["service", "uninstall"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    assert manager.calls() == []


@pytest.mark.parametrize("kind", ["foreign", "mask"])
def test_uninstalling_leaves_what_others_wrote(
    kind: str, manager: FakeManager, root: Path, unit: Path
) -> None:
    _another(kind, unit)
    assert run(["service", "uninstall", "--yes"]) == 1
    assert unit.is_symlink() or unit.exists()
    assert manager.calls() == []


def test_uninstalling_asks_before_it_removes_a_changed_file(
    manager: FakeManager, root: Path, unit: Path
) -> None:
    _another("edited", unit)
    assert run(["service", "uninstall"]) == 2
    assert unit.exists()
    assert run(["service", "uninstall", "--yes"]) == 0
    assert not unit.exists()


@pytest.mark.parametrize("verb", ["install", "uninstall", "status"])
def test_without_a_manager_it_says_what_to_do(
    verb: str, manager: FakeManager, root: Path, unit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if verb == "uninstall":
        run(["service", "install"])
    capsys.readouterr()
    manager.calls()
    manager.fail("show-environment", "Failed to connect to bus: No medium found")
    there = unit.exists()
    assert run(["service", verb]) == 69
    told = capsys.readouterr().err
    assert "Failed to connect to bus: No medium found" in told
    assert "Try: log in as this user" in told
    assert unit.exists() == there
    assert manager.calls() == []


def test_a_service_that_does_not_start_is_an_error(
    manager: FakeManager, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.fail("restart", "Job for bsd.service failed")
    assert run(["service", "install"]) == 69
    assert "Job for bsd.service failed" in capsys.readouterr().err


_RUNNING = """ActiveState=active
SubState=running
UnitFileState=enabled
StatusText=watching 12 sessions
MainPID=4711
LoadState=loaded
Result=success
"""


def test_status_tells_what_the_manager_says(
    manager: FakeManager, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.say("bsd.service", _RUNNING)
    assert run(["--json", "service", "status"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["running"] is told["at_login"] is True
    assert told["pid"] == 4711
    assert told["state"] == "active (running): watching 12 sessions"
    assert told["origin"] == "absent"


def test_status_ends_with_3_if_it_does_not_run(
    manager: FakeManager, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.say("bsd.service", "LoadState=not-found\nActiveState=inactive\nMainPID=0\n")
    assert run(["service", "status"]) == 3
    assert "not installed" in capsys.readouterr().out


def test_it_tells_of_what_the_service_cannot_see_and_of_its_end(
    manager: FakeManager,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BRAINSURGEON_WORKERS", "3")
    manager.say("--property=Linger", "no\n")
    assert run(["service", "install"]) == 0
    told = capsys.readouterr().err
    assert "does not see this shell's BRAINSURGEON_WORKERS" in told
    assert "loginctl enable-linger" in told


def test_an_installed_program_is_named_by_its_absolute_path(
    manager: FakeManager, root: Path, unit: Path, tmp_path: Path
) -> None:
    program = tmp_path / "some where" / "bsd"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom bsd.__main__ import main\nraise SystemExit(main())\n"
    )
    program.chmod(0o755)
    subprocess.run(
        ["./bsd", "service", "install"],
        check=True,
        cwd=program.parent,
        env=os.environ | {"PYTHONPATH": str(TOP)},
        capture_output=True,
    )
    assert _start_line(unit) == f'"{program}" run'


# --- launchd, as far as it goes without a Mac ------------------------------------------------


@pytest.fixture
def agent(manager: FakeManager, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(service, "manager_here", Launchd)
    return clean_environment / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def test_launchd_gets_an_agent_with_absolute_paths(
    agent: Path, manager: FakeManager, root: Path
) -> None:
    manager.fail("print", "Could not find service")
    assert run(["service", "install"]) == 0
    document = plistlib.loads(agent.read_bytes())
    assert document["ProgramArguments"] == [sys.executable, "-m", "bsd", "run"]
    domain = f"gui/{os.getuid()}"
    expected = [f"enable {domain}/{LABEL}", f"bootstrap {domain} {agent}"]
    assert manager.calls("launchctl") == expected


def test_launchd_reads_a_changed_agent_anew_and_lets_it_go(
    agent: Path, manager: FakeManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.say("print", "gui/501/x = {\n\tstate = running\n\tpid = 42\n}\n")
    run(["service", "install"])
    verbs: Callable[[], list[str]] = lambda: [  # noqa: E731 - the question, three times
        line.split()[0] for line in manager.calls("launchctl")
    ]
    assert verbs() == ["bootout", "enable", "bootstrap"]
    run(["service", "install"])
    assert verbs() == ["kickstart"]
    assert run(["service", "status"]) == 0
    assert run(["service", "uninstall"]) == 0
    assert verbs() == ["bootout"]
    assert not agent.exists()


def test_leaving_removes_the_service_of_its_root_and_no_other(
    manager: FakeManager,
    root: Path,
    unit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leave, "manager_here", Systemd)
    other = tmp_path / "other"
    (other / "agents").mkdir(parents=True)
    assert run(["--root", str(other), "service", "install"]) == 0
    assert run(["extract"]) == 0
    manager.calls()
    assert run(["leave", "--yes"]) == 0
    assert (unit.exists(), manager.calls()) == (True, [])
    assert "starts another bsd" in capsys.readouterr().err
    assert run(["service", "install", "--yes"]) == 0
    manager.calls()
    assert run(["leave", "--yes"]) == 0
    assert not unit.exists()
    gone = ["--user disable --now bsd.service", "--user daemon-reload"]
    assert [call for call in manager.calls() if "environment" not in call] == gone
    assert run(["service", "install"]) == 0
    manager.fail("disable", "no such bus")
    assert run(["leave", "--purge", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "no such bus" in told
    assert "bsd's directory is not deleted" in told
