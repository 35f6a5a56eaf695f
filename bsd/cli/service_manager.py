"""The programs that start services for a user: systemd's user manager, and launchd.

The launchd part is written to its documentation and has not run on a Mac yet.
"""

from __future__ import annotations

import os
import plistlib
import pwd
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files

from bsd.core.errors import Invalid, Unavailable
from bsd.core.locations import home, settings_file

UNIT = "bsd.service"
LABEL = "brainsurgeond"
_DEADLINE_SECONDS = 120.0  # a start waits until bsd reports that it is ready

Argv = list[str]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The service as its manager describes it."""

    running: bool
    at_login: bool  # started when the user logs in
    state: str  # in the manager's words
    pid: int | None = None


def run_commands(commands: list[Argv]) -> None:
    """Run a manager's commands; raises Unavailable with the manager's message."""
    for argv in commands:
        done = _ask(argv)
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise Unavailable(
                f"`{' '.join(argv)}` failed: {said}",
                hint="`bsd service status` and `bsd run` may say why",
            )


class Systemd:
    """The user's own systemd, which needs no root.

    Its methods return commands as data, so that a dry run can show them.
    """

    name = "systemd"
    comment = ("# ", "")

    def __init__(self) -> None:
        # Beside the settings' directory: ~/.config unless XDG_CONFIG_HOME is set.
        self.file = settings_file(os.environ).parents[1] / "systemd" / "user" / UNIT

    def text(self, program: Argv) -> str:
        """Return the unit for a program with its arguments; all paths are absolute."""
        command = " ".join(_word(word, first=not n) for n, word in enumerate(program))
        template = _template(UNIT)
        text, count = re.subn(r"(?m)^ExecStart=.*$", lambda _: f"ExecStart={command}", template)
        assert count == 1  # noqa: S101 - a defect of the template
        return text

    def check(self) -> None:
        """Raise Unavailable if this user's systemd cannot be reached."""
        hint = (
            "log in as this user (not by su or sudo); on a server, as root: "
            "`systemctl enable --now bsd@USER`; or start `bsd run` by other means"
        )
        if shutil.which("systemctl") is None:
            raise Unavailable("there is no systemd on this machine to start bsd", hint=hint)
        done = _ask(["systemctl", "--user", "show-environment"])
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise Unavailable(f"your systemd cannot be reached: {said}", hint=hint)

    def start(self, *, changed: bool) -> list[Argv]:
        """Return the commands that start the service now and at each login.

        Args:
            changed: the unit file is new or changed.
        """
        verb = "restart" if changed else "start"
        return [*self.after_removal(), _systemctl("enable"), _systemctl(verb)]

    def stop(self) -> list[Argv]:
        """Return the commands that stop the service, before its file is removed."""
        return [_systemctl("disable", "--now")]

    def after_removal(self) -> list[Argv]:
        """Return the commands that make systemd forget the service."""
        return [["systemctl", "--user", "daemon-reload"]]

    def state(self) -> ServiceState:
        """Return the state of the service."""
        names = "ActiveState,SubState,UnitFileState,StatusText,MainPID,LoadState,Result"
        done = _ask(_systemctl("show", f"--property={names}"))
        said = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
        active, sub = said.get("ActiveState", "unknown"), said.get("SubState", "")
        text = f"{active} ({sub})" if sub else active
        if said.get("LoadState") == "not-found":
            text = "not installed"
        elif said.get("StatusText"):
            text += f": {said['StatusText']}"
        elif said.get("Result", "success") != "success":
            text += f": {said['Result']}; `journalctl --user -u {UNIT}` says more"
        return ServiceState(
            running=active in {"active", "reloading"},
            at_login=said.get("UnitFileState", "").startswith("enabled"),
            state=text,
            pid=int(said.get("MainPID") or 0) or None,
        )

    def advice(self) -> str | None:
        """Return a note for the user after an installation; None if there is none."""
        user = pwd.getpwuid(os.getuid()).pw_name
        if shutil.which("loginctl") is None:
            return None
        done = _ask(["loginctl", "show-user", user, "--property=Linger", "--value"])
        if done.stdout.strip() != "no":
            return None
        return f"it stops when you log out; `loginctl enable-linger {user}` keeps it running"


class Launchd:
    """An agent in the user's graphical session; see `Systemd`."""

    name = "launchd"
    comment = ("<!-- ", " -->")

    def __init__(self) -> None:
        self.file = home(os.environ) / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self._service = f"{self._domain}/{LABEL}"

    def text(self, program: Argv) -> str:
        document = plistlib.loads(_template("bsd.plist").encode())
        document["ProgramArguments"] = program
        return plistlib.dumps(document, sort_keys=False).decode()

    def check(self) -> None:
        if shutil.which("launchctl") is None:
            raise Unavailable(
                "there is no launchd on this machine to start bsd",
                hint="start `bsd run` by other means",
            )

    def start(self, *, changed: bool) -> list[Argv]:
        begin = [
            ["launchctl", "enable", self._service],
            ["launchctl", "bootstrap", self._domain, str(self.file)],
        ]
        if not self._loaded():
            return begin
        # launchd reads a file only when it is loaded.
        return [*self.stop(), *begin] if changed else [["launchctl", "kickstart", self._service]]

    def stop(self) -> list[Argv]:
        return [["launchctl", "bootout", self._service]] if self._loaded() else []

    def after_removal(self) -> list[Argv]:
        return []

    def state(self) -> ServiceState:
        done = _ask(["launchctl", "print", self._service])
        if done.returncode != 0:
            return ServiceState(running=False, at_login=False, state="not loaded")
        said = dict(re.findall(r"(?m)^\t(\S[^=\n]*?) = (.*)$", done.stdout))
        text = said.get("state", "unknown")
        if said.get("last exit code", "0") not in {"0", "(never exited)"}:
            text += f"; it ended with exit code {said['last exit code']}: `bsd run` says why"
        pid = said.get("pid", "")
        return ServiceState(
            text == "running" or pid.isdigit(), True, text, int(pid) if pid else None
        )

    def advice(self) -> str | None:
        return None

    def _loaded(self) -> bool:
        return _ask(["launchctl", "print", self._service]).returncode == 0


def _systemctl(verb: str, *options: str) -> Argv:
    return ["systemctl", "--user", verb, *options, UNIT]


def _template(name: str) -> str:
    return (files("bsd.cli") / "units" / name).read_text(encoding="utf-8")


def _ask(argv: Argv) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="backslashreplace",
            timeout=_DEADLINE_SECONDS,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", f"there is no {argv[0]} on this machine")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", "it did not end in time")


def _word(word: str, *, first: bool) -> str:
    """Quote a word of ExecStart=."""
    if not word.isprintable():
        raise Invalid(
            f"a unit file cannot name {word!r}", hint="choose a path without control characters"
        )
    text = word.replace("%", "%%")
    if not first:  # variables are not expanded in the program's path
        text = text.replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", text, re.ASCII):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


Manager = Systemd | Launchd


def manager_here() -> Manager:
    """Return the service manager of this system."""
    return Launchd() if sys.platform == "darwin" else Systemd()
