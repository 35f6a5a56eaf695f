"""The package on a booted Debian: its units, the drop-in of their head, upgrade and purge.

Runs only on request (`make booted`), since it takes minutes and a mirror. BSD_BOOT names a tree
made by debootstrap; if there is none, the test makes it there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.needs import require_program
from tests.openclaw_tree import add_session, set_idle
from tests.packaging.test_debian import build
from tests.packaging.units import TEMPLATE
from tests.session_files import sample
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import raw
from tests.waiting import DEADLINE_SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("BSD_BOOT" not in os.environ, reason="`make booted` boots a Debian"),
]


_PACKAGES = "systemd-sysv,dbus,libpam-systemd,dbus-user-session,python3,curl"
_PAUSE_SECONDS = 0.5


# --- a small Debian for the tests, booted by its systemd in a container of systemd-nspawn ---


@dataclass(frozen=True)
class Machine:
    """A running machine; its commands run as root unless `user` names another user."""

    tree: Path
    leader: int

    def run(self, script: str, user: str | None = None, *, check: bool = True) -> str:
        """Return the output of a shell command in the machine, errors included."""
        environ = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root"]
        inside = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        shell = ["sh", "-c", script]
        if user is not None:  # `su -`, with the user's own systemd
            uid = self.run(f"id -u {user}").strip()
            shell = ["su", user, "-c", f"export XDG_RUNTIME_DIR=/run/user/{uid}; cd; {script}"]
        done = subprocess.run(
            [*inside, *environ, *shell],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0 or not check, f"{script}\n{done.stdout}"
        return done.stdout

    def wait_for(self, script: str, wanted: str, user: str | None = None) -> str:
        """Repeat the command until its output contains the expected text, and return the output."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while wanted not in (said := self.run(script, user, check=False)):
            assert time.monotonic() < deadline, f"{script}\n{said}\nwithout {wanted!r}"
            time.sleep(_PAUSE_SECONDS)
        return said


def make_tree(tree: Path) -> None:
    """Bootstrap the tree from Debian's mirror, which takes a minute."""
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(tree)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def booted(tree: Path) -> Iterator[Machine]:
    """Boot the machine; at the end shut it down as the power button does."""
    command = ["systemd-nspawn", "--quiet", f"--directory={tree}", "--boot", "--private-network"]
    if not Path("/run/systemd/system").exists():  # no service manager to register the machine with
        command += ["--register=no", "--keep-unit"]
    log = tree.with_name("console.log")
    with (
        log.open("wb") as console,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console
        ) as container,
    ):
        try:
            machine = Machine(tree, _leader(container, log))
            machine.wait_for("systemctl is-system-running", "running")
            yield machine
        finally:
            container.terminate()
            try:
                container.wait(DEADLINE_SECONDS)
            finally:
                container.kill()


def _leader(container: subprocess.Popen[bytes], log: Path) -> int:
    """Return the machine's first process, by its pid on the host."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := children.read_text().split()):
        assert container.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(_PAUSE_SECONDS)
    return int(found[0])


def add_user(machine: Machine, name: str, sessions: Path) -> None:
    """Add a user with OpenClaw's and Claude Code's sessions, and settings that name the latter."""
    machine.run(f"useradd --create-home --shell /bin/bash {name}")
    home = machine.tree / "home" / name
    shutil.copytree(sessions, home, dirs_exist_ok=True)
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[[sources]]\nkind = "claude-code"\nname = "claude"\npath = "~/.claude/projects"\n'
    )
    machine.run(f"chown -R {name}: /home/{name}")


_ASK = "curl -s --unix-socket .openclaw/.brainsurgeon/bsd.sock http://bsd/api"
_CLAUDE = f".claude/projects/{CLAUDE_CODE.directory}/{CLAUDE_CODE.session}.jsonl"
_SERVED = 'bsd_source_served{source="claude"}'


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine with the package and two users who have sessions."""
    for program in ("debootstrap", "systemd-nspawn", "nsenter"):
        require_program(program)
    base, top = Path(os.environ["BSD_BOOT"]), tmp_path_factory.mktemp("booted")
    if not (base / "usr" / "bin" / "python3").exists():
        make_tree(base)
    # Not by copytree: that reads devices, and /dev/zero has no end.
    subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(top / "tree")], check=True)
    sessions = top / "sessions"
    add_session(sessions / ".openclaw", "main/s", sample(12, 1))
    (sessions / _CLAUDE).parent.mkdir(parents=True)
    (sessions / _CLAUDE).write_bytes(raw(claude_code_lines()))
    set_idle(sessions / _CLAUDE)
    package = build(top / "dist")
    with booted(top / "tree") as machine:
        shutil.copyfile(package, top / "tree" / "root" / "bsd.deb")
        said = machine.run("dpkg --install /root/bsd.deb && bsd --version")
        assert f"Python {sys.version_info.major}" not in said
        for user in ("ada", "bob"):
            add_user(machine, user, sessions)
        yield machine
    subprocess.run(["rm", "-rf", "--one-file-system", str(top / "tree")], check=True)


def _drop_in() -> str:
    """Return the drop-in for sources, as in the head of the unit."""
    head = TEMPLATE.read_text(encoding="utf-8").partition("[[sources]]")[2].partition("Each path")
    lines = re.findall(r"(\[Service\]|ReadWritePaths=\S*|ReadOnlyPaths=\S*)", head[0])
    assert len(lines) == 4, lines
    return "\n".join(lines) + "\n"


def test_the_systems_unit_serves_sources_with_its_drop_in(machine: Machine) -> None:
    machine.run("systemctl enable --now bsd@ada")
    machine.wait_for("cat .openclaw/agents/main/sessions/s.jsonl", "[[extracted-", "ada")
    health = json.loads(machine.run(f"{_ASK}/health", "ada"))
    assert health["status"] == "degraded"
    (problem,) = health["problems"]
    assert "sessions of claude cannot be exchanged" in problem
    assert "`systemctl edit bsd@ada.service`: [Service] ReadWritePaths= " in problem
    assert "ReadWritePaths=/home/ada," in problem
    assert f"{_SERVED} 0.0" in machine.run(f"{_ASK}/metrics", "ada")
    place = machine.tree / "etc/systemd/system/bsd@ada.service.d/override.conf"
    place.parent.mkdir()
    place.write_text(_drop_in())
    machine.run("systemctl daemon-reload; systemctl restart bsd@ada")
    machine.wait_for(f"cat {_CLAUDE}", "[[extracted-", "ada")
    assert json.loads(machine.run(f"{_ASK}/health", "ada"))["status"] == "ok"
    assert f"{_SERVED} 1.0" in machine.run(f"{_ASK}/metrics", "ada")
    assert "no problems" in machine.run("bsd verify", "ada")


def test_a_reload_of_the_systems_unit(machine: Machine) -> None:
    machine.run("systemctl start bsd@ada && systemctl reload bsd@ada")
    machine.wait_for("cat .openclaw/logs/brainsurgeon.log", "Settings were read again", "ada")


def test_root_leaves_nothing_of_its_own(machine: Machine) -> None:
    said = machine.run("bsd --root /home/ada/.openclaw config set retention never")
    assert "(running as ada," in said
    machine.run("HOME=/home/ada bsd verify")
    assert machine.run("find /home/ada ! -user ada") == ""


def test_the_users_own_unit(machine: Machine) -> None:
    machine.run("loginctl enable-linger bob")
    machine.wait_for("systemctl --user is-system-running", "running", "bob")
    machine.run("bsd service install", "bob")
    machine.wait_for(f"cat {_CLAUDE}", "[[extracted-", "bob")
    assert json.loads(machine.run(f"{_ASK}/health", "bob"))["status"] == "ok"
    machine.run("systemctl --user reload bsd", "bob")
    machine.wait_for("bsd service status", "active (running)", "bob")


def test_an_upgrade_and_a_purge_while_all_run(machine: Machine) -> None:
    machine.run("systemctl start bsd@ada")

    def processes() -> list[str]:
        asked = "show --property=MainPID --value"
        system = machine.run(f"systemctl {asked} bsd@ada")
        return [system.strip(), machine.run(f"systemctl --user {asked} bsd", "bob").strip()]

    before = processes()
    assert "0" not in before
    machine.run("dpkg --install /root/bsd.deb")
    for user in ("ada", "bob"):
        machine.wait_for("bsd status", "is running", user)
    assert not set(before) & set(processes())
    machine.run("dpkg --purge brainsurgeond")
    assert processes() == ["0", "0"]
    assert "0 loaded units" in machine.run("systemctl --failed --no-pager")
    assert "0 loaded units" in machine.run("systemctl --user --failed --no-pager", "bob")
    assert machine.run("ls /etc/systemd/system/multi-user.target.wants | grep -c bsd@ || true") == (
        "0\n"
    )
    for path in ("/usr/bin/bsd", "/usr/lib/brainsurgeond"):
        assert not (machine.tree / path[1:]).exists()
    for user in ("ada", "bob"):
        assert (machine.tree / "home" / user / ".openclaw" / "extracted").is_dir(), "users' own"
