"""`bsd service`: bsd as a service of this user, which starts at login and stays.

There are two that start services for a user: systemd's user manager, and launchd. The launchd part
is written to its documentation and has not run on a Mac yet.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import pwd
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import click

from bsd.cli.call import BsdGroup, Call, ask_first
from bsd.cli.output import note, print_json, say, say_check
from bsd.core.errors import Conflict, Invalid, Unavailable, os_problem
from bsd.core.files import sync_dir, write_private
from bsd.core.locations import home, settings_file
from bsd.core.settings import VARIABLES

_NOT_RUNNING = 3


@click.group("service", cls=BsdGroup)
def service() -> None:
    """Start bsd at login, as a service of this user.

    On Linux this is a unit of your own systemd, on macOS an agent of launchd; neither needs root.
    For a server on which nobody logs in there is the system's unit bsd@USER.

    \b
    Examples:
      bsd service install --dry-run
      bsd service install
      bsd --root /srv/openclaw service install
      bsd service status
    """


@service.command("install")
@click.option("--dry-run", is_flag=True, help="Show the file and the commands; do nothing.")
@click.option("--yes", is_flag=True, help="Replace another file without asking.")
@click.pass_obj
def install(call: Call, dry_run: bool, yes: bool) -> None:
    """Start bsd now and at each login.

    The service works on the root that this call works on. Call it again after bsd has moved.
    """
    manager = manager_here()
    content = _signed(manager.text([*_program(), *_options(call), "run"]), manager.comment)
    origin, there = _read(manager.file)
    changed = there != content
    if dry_run:
        text = content.decode() if changed else ""
        _announce(
            call, manager, "write" if changed else "keep", manager.start(changed=changed), text
        )
        return
    manager.check()
    if changed and origin in {Origin.EDITED, Origin.FOREIGN} and not yes:
        ask_first(
            f"{manager.file} is there, {origin.value}. Replace it?", "`bsd service install --yes`"
        )
    if changed:
        _write(manager.file, content)
    _run(manager.start(changed=changed))
    if call.json:
        print_json(_state(manager))
        return
    say(f"{'wrote' if changed else 'kept'} {manager.file}")
    say_check("ok", f"bsd is a service of {manager.name} now; `bsd status` asks it how it is")
    _warn(manager)


@service.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Show what would be done; do nothing.")
@click.option("--yes", is_flag=True, help="Remove a file that was changed without asking.")
@click.pass_obj
def uninstall(call: Call, dry_run: bool, yes: bool) -> None:
    """Stop bsd and remove what `install` wrote; sessions, store and settings stay."""
    manager = manager_here()
    origin, _ = _read(manager.file)
    if origin is Origin.FOREIGN:
        raise Conflict(
            f"{manager.file} was not written by bsd; it stays as it is",
            hint="remove it yourself, if it is of no use",
        )
    if dry_run:
        gone = [] if origin is Origin.NOBODY else [*manager.stop(), *manager.after_removal()]
        _announce(call, manager, "keep" if origin is Origin.NOBODY else "remove", gone)
        return
    if origin is not Origin.NOBODY:
        manager.check()
        if origin is Origin.EDITED and not yes:
            question = f"{manager.file} was changed since bsd wrote it. Remove it?"
            ask_first(question, "`bsd service uninstall --yes`")
        _run(manager.stop())
        _remove(manager.file)
        _run(manager.after_removal())
    if call.json:
        print_json({"file": str(manager.file), "removed": origin is not Origin.NOBODY})
    elif origin is Origin.NOBODY:
        say(f"nothing to remove: there is no {manager.file}")
    else:
        say(f"removed {manager.file}")


@service.command("status")
@click.pass_obj
def status(call: Call) -> int:
    """Say whether bsd is installed as a service and runs; exit code 3 if it does not."""
    manager = manager_here()
    manager.check()
    state = _state(manager)
    if call.json:
        print_json(state)
    else:
        process = f", process {state['pid']}" if state["pid"] else ""
        say_check(
            "ok" if state["running"] else "fail", f"{manager.name}: {state['state']}{process}"
        )
        say(f"  {manager.file}: {state['origin']}")
        say(f"  starts at login: {'yes' if state['at_login'] else 'no'}")
    return 0 if state["running"] else _NOT_RUNNING


def _state(manager: Manager) -> dict[str, Any]:
    state = manager.state()
    return {
        "manager": manager.name,
        "file": str(manager.file),
        "origin": _read(manager.file)[0].value,
        "running": state.running,
        "at_login": state.at_login,
        "state": state.text,
        "pid": state.pid,
    }


def _program() -> Argv:
    """How this bsd was called, so that it can be called from anywhere."""
    name = os.path.basename(sys.argv[0])
    found = shutil.which(sys.argv[0]) if name == "bsd" else None
    # Links stay: what they lead to may move with the next version, they will not.
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "bsd"]


def _options(call: Call) -> Argv:
    """What the service would otherwise not learn: options, and the environment of this shell."""
    options = []
    chosen = call.root or os.environ.get("OPENCLAW_ROOT")
    root = call.layout.root  # which must be there
    if chosen or os.environ.get("BRAINSURGEON_AGENTS_DIR"):
        options += ["--root", os.path.abspath(root)]
    if call.config:
        options += ["--config", os.path.abspath(os.path.expanduser(call.config))]
    return options


def _warn(manager: Manager) -> None:
    """Say what the user may not expect."""
    if unseen := [name for name in VARIABLES if os.environ.get(name)]:
        file = settings_file(os.environ)
        note(f"the service does not see {', '.join(unseen)} of this shell; set it in {file}")
    if advice := manager.advice():
        note(advice)


def _announce(
    call: Call, manager: Manager, action: str, commands: list[Argv], text: str = ""
) -> None:
    if call.json:
        file = str(manager.file)
        document = {"dry_run": True, "file": file, "action": action, "commands": commands}
        print_json({**document, "content": text} if text else document)
        return
    say(f"would {action} {manager.file}")
    for line in text.splitlines():
        say(f"  {line}" if line else "")
    for argv in commands:
        say(f"would run {' '.join(argv)}")


_SIGNATURE = re.compile(
    rb"^.*written by bsd service install, sha256:([0-9a-f]{64}).*\n?", re.MULTILINE
)


class Origin(StrEnum):
    """Whose a file is."""

    NOBODY = "absent"  # there is none
    OURS = "written by bsd"  # as bsd wrote it
    EDITED = "written by bsd and changed since"
    FOREIGN = "not written by bsd"


def _signed(text: str, comment: tuple[str, str]) -> bytes:
    """Return `text` with a last line, a comment, by which bsd recognises it as its own."""
    body = text.encode()
    digest = hashlib.sha256(body).hexdigest()
    line = f"{comment[0]}written by bsd service install, sha256:{digest}{comment[1]}\n"
    return body + line.encode()


def _read(path: Path) -> tuple[Origin, bytes]:
    """Look whose file this is; returns its content as well. Raises a BsdError."""
    try:
        if path.is_symlink():  # somebody's own arrangement, a mask (→ /dev/null) among them
            return Origin.FOREIGN, b""
        content = path.read_bytes()
    except FileNotFoundError:
        return Origin.NOBODY, b""
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    signature = _SIGNATURE.search(content)
    if signature is None:
        return Origin.FOREIGN, content
    rest = content[: signature.start()] + content[signature.end() :]
    same = hashlib.sha256(rest).hexdigest().encode() == signature[1]
    return (Origin.OURS if same else Origin.EDITED), content


def _write(path: Path, content: bytes) -> None:
    """Put the file in its place; raises a BsdError."""
    try:
        write_private(path, content)
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error


def _remove(path: Path) -> None:
    """Take the file away; raises a BsdError."""
    try:
        os.unlink(path)
        sync_dir(path.parent)
    except OSError as error:
        raise os_problem(error, f"removing {path}") from error


# --- the two managers ---


UNIT = "bsd.service"
LABEL = "brainsurgeond"
_DEADLINE_SECONDS = 120.0  # a start waits until bsd says that it is ready

Argv = list[str]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the manager says of the service."""

    running: bool
    at_login: bool  # started when the user logs in
    text: str  # in the manager's words
    pid: int | None = None


class Manager(Protocol):
    """One service manager. What it runs, `dry_run` only says: so commands are data."""

    name: str
    file: Path
    comment: tuple[str, str]  # what encloses one in its files

    def text(self, program: Argv) -> str:
        """The file's content for a program with its arguments, all paths absolute."""
        ...

    def check(self) -> None:
        """Raise Unavailable if there is no such manager to talk to, and say what to do then."""
        ...

    def start(self, *, changed: bool) -> list[Argv]:
        """Commands that start it, now and at each login; `changed`: its file is another now."""
        ...

    def stop(self) -> list[Argv]:
        """Commands that end it before its file is removed."""
        ...

    def after_removal(self) -> list[Argv]:
        """Commands that make the manager forget it."""
        ...

    def state(self) -> ServiceState:
        """Ask how it is."""
        ...

    def advice(self) -> str | None:
        """What the user should know after an installation."""
        ...


def manager_here() -> Manager:
    """The one of this system."""
    return Launchd() if sys.platform == "darwin" else Systemd()


def _run(commands: list[Argv]) -> None:
    """Run a manager's commands; raises Unavailable with what it said."""
    for argv in commands:
        done = _ask(argv)
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise Unavailable(
                f"`{' '.join(argv)}` failed: {said}",
                hint="`bsd service status` and `bsd run` may say why",
            )


class Systemd:
    """The user's own systemd, which needs no root."""

    name = "systemd"
    comment = ("# ", "")

    def __init__(self) -> None:
        # The directory of settings, by the same rules: ~/.config unless XDG_CONFIG_HOME is set.
        self.file = settings_file(os.environ).parents[1] / "systemd" / "user" / UNIT

    def text(self, program: Argv) -> str:
        command = " ".join(_word(word, first=not n) for n, word in enumerate(program))
        template = _template(UNIT)
        text, count = re.subn(r"(?m)^ExecStart=.*$", lambda _: f"ExecStart={command}", template)
        assert count == 1  # noqa: S101 - a defect of the template
        return text

    def check(self) -> None:
        hint = (
            "log in as this user (not by su or sudo); on a server, as root: "
            "`systemctl enable --now bsd@USER`; or start `bsd run` by other means"
        )
        if shutil.which("systemctl") is None:
            raise Unavailable("there is no systemd here that could start bsd", hint=hint)
        done = _ask(["systemctl", "--user", "show-environment"])
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise Unavailable(f"your systemd cannot be reached: {said}", hint=hint)

    def start(self, *, changed: bool) -> list[Argv]:
        verb = "restart" if changed else "start"
        return [*self.after_removal(), _systemctl("enable"), _systemctl(verb)]

    def stop(self) -> list[Argv]:
        return [_systemctl("disable", "--now")]

    def after_removal(self) -> list[Argv]:
        return [["systemctl", "--user", "daemon-reload"]]

    def state(self) -> ServiceState:
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
            text=text,
            pid=int(said.get("MainPID") or 0) or None,
        )

    def advice(self) -> str | None:
        user = pwd.getpwuid(os.getuid()).pw_name
        if shutil.which("loginctl") is None:
            return None
        done = _ask(["loginctl", "show-user", user, "--property=Linger", "--value"])
        if done.stdout.strip() != "no":
            return None
        return f"it ends when you log out; `loginctl enable-linger {user}` lets it stay"


class Launchd:
    """An agent in the user's graphical session."""

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
                "there is no launchd here that could start bsd",
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
            return ServiceState(running=False, at_login=False, text="not loaded")
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
        return subprocess.CompletedProcess(argv, 127, "", f"there is no {argv[0]} here")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", "it does not come to an end")


def _word(word: str, *, first: bool) -> str:
    """A word of ExecStart=, so that systemd reads it as it is."""
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
