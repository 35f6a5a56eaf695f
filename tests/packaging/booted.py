"""A small Debian of our own, booted by its systemd in a container of systemd-nspawn."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = "systemd-sysv,dbus,libpam-systemd,dbus-user-session,python3,curl"
_DEADLINE_SECONDS = 120.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Machine:
    """One that is up; what is run in it is run by root, unless `user` says who."""

    tree: Path
    leader: int

    def run(self, script: str, user: str | None = None, *, check: bool = True) -> str:
        """What a shell in it prints, errors included."""
        environ = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root"]
        inside = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        shell = ["sh", "-c", script]
        if user is not None:  # `su -`, with the user's own systemd at hand
            uid = self.run(f"id -u {user}").strip()
            shell = ["su", user, "-c", f"export XDG_RUNTIME_DIR=/run/user/{uid}; cd; {script}"]
        done = subprocess.run(
            [*inside, *environ, *shell],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_DEADLINE_SECONDS,
        )
        assert done.returncode == 0 or not check, f"{script}\n{done.stdout}"
        return done.stdout

    def wait_for(self, script: str, wanted: str, user: str | None = None) -> str:
        """Run it until it prints what is wanted, and return that."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while wanted not in (said := self.run(script, user, check=False)):
            assert time.monotonic() < deadline, f"{script}\n{said}\nwithout {wanted!r}"
            time.sleep(_PAUSE_SECONDS)
        return said


def make_tree(tree: Path) -> None:
    """Bootstrap it from Debian's mirror; takes a minute."""
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(tree)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def booted(tree: Path) -> Iterator[Machine]:
    """Boot it; in the end it shuts down as when somebody presses the button."""
    command = ["systemd-nspawn", "--quiet", f"--directory={tree}", "--boot", "--private-network"]
    if not Path("/run/systemd/system").exists():  # nobody who would keep an account of it
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
                container.wait(_DEADLINE_SECONDS)
            finally:
                container.kill()


def _leader(container: subprocess.Popen[bytes], log: Path) -> int:
    """The first process in it, as it is numbered outside."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not (found := children.read_text().split()):
        assert container.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(_PAUSE_SECONDS)
    return int(found[0])


def add_user(machine: Machine, name: str, sessions: Path) -> None:
    """A user with OpenClaw's and Claude Code's sessions, and settings that name the latter."""
    machine.run(f"useradd --create-home --shell /bin/bash {name}")
    home = machine.tree / "home" / name
    shutil.copytree(sessions, home, dirs_exist_ok=True)
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[[sources]]\nkind = "claude-code"\nname = "claude"\npath = "~/.claude/projects"\n'
    )
    machine.run(f"chown -R {name}: /home/{name}")
