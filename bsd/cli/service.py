"""`bsd service`: bsd as a service of this user, which starts at login and keeps running."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from bsd.cli.call import BsdGroup, Call, ask_first
from bsd.cli.client import Client
from bsd.cli.output import note, print_json, say, say_check
from bsd.cli.service_manager import Argv, Manager, manager_here, run_commands
from bsd.core.errors import BsdError, Conflict, Unavailable, os_problem
from bsd.core.files import sync_dir, write_private
from bsd.core.locations import settings_file
from bsd.core.settings import VARIABLES
from bsd.setup.commands import own_command

_NOT_RUNNING = 3


@click.group("service", cls=BsdGroup)
def service() -> None:
    """Start bsd at login, as a service of this user.

    On Linux this is a unit of your own systemd, on macOS an agent of launchd; neither needs root.
    On a server without logins, use the system's unit bsd@USER.

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

    The service works on the root of this call. If bsd has moved, install it again.
    """
    manager = manager_here()
    content = _content(call, manager)
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
            f"{manager.file} exists, {origin.value}. Replace it?", "`bsd service install --yes`"
        )
    _install(manager, content, changed=changed)
    if call.json:
        print_json(_state(manager))
        return
    say(f"{'wrote' if changed else 'kept'} {manager.file}")
    say_check("ok", f"bsd is a service of {manager.name} now; `bsd status` shows its state")
    _warn(manager)


@service.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Show what would be done; do nothing.")
@click.option("--yes", is_flag=True, help="Remove a file that was changed without asking.")
@click.pass_obj
def uninstall(call: Call, dry_run: bool, yes: bool) -> None:
    """Stop bsd and remove the file of `install`; sessions, store and settings stay."""
    manager = manager_here()
    origin, _ = _read(manager.file)
    if origin is Origin.FOREIGN:
        raise Conflict(
            f"{manager.file} was not written by bsd; it stays as it is",
            hint="remove it yourself if you do not need it",
        )
    if dry_run:
        gone = [] if origin is Origin.ABSENT else [*manager.stop(), *manager.after_removal()]
        _announce(call, manager, "keep" if origin is Origin.ABSENT else "remove", gone)
        return
    if origin is not Origin.ABSENT:
        manager.check()
        if origin is Origin.EDITED and not yes:
            question = f"{manager.file} was changed since bsd wrote it. Remove it?"
            ask_first(question, "`bsd service uninstall --yes`")
        remove_service(manager)
    if call.json:
        print_json({"file": str(manager.file), "removed": origin is not Origin.ABSENT})
    elif origin is Origin.ABSENT:
        say(f"nothing to remove: there is no {manager.file}")
    else:
        say(f"removed {manager.file}")


@service.command("status")
@click.pass_obj
def status(call: Call) -> int:
    """Show whether bsd is installed as a service and runs; exit code 3 if it does not run."""
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


class LoginStart(StrEnum):
    """Whether bsd starts when this user logs in."""

    RUNS = "runs"  # the service that bsd would install is there and runs
    ABSENT = "absent"  # it can be installed
    OTHER_FILE = "other_file"  # a service file is there that is not as bsd writes it
    NO_MANAGER = "no_manager"  # no service manager of this user can be reached


def login_start(call: Call, manager: Manager) -> tuple[LoginStart, str]:
    """Return whether bsd starts at login, and a sentence about it."""
    origin, there = _read(manager.file)
    try:
        manager.check()
    except Unavailable as problem:
        return LoginStart.NO_MANAGER, problem.message
    if origin in {Origin.EDITED, Origin.FOREIGN}:
        return LoginStart.OTHER_FILE, f"{manager.file} exists, {origin.value}"
    with suppress(BsdError):  # there is no root yet
        state = manager.state()
        if there == _content(call, manager) and state.running and state.at_login:
            return LoginStart.RUNS, f"bsd is a service of {manager.name}"
    return LoginStart.ABSENT, f"bsd is not a service of {manager.name} yet"


def install_service(call: Call, manager: Manager) -> None:
    """Install and start the service if `login_start` says that it is absent; raises BsdError.

    Prints notes on facts that may surprise the user.
    """
    content = _content(call, manager)
    _install(manager, content, changed=_read(manager.file)[1] != content)
    _warn(manager)


def remove_service(manager: Manager) -> None:
    """Stop the service and remove its file, which must exist; raises BsdError."""
    run_commands(manager.stop())
    _remove(manager.file)
    run_commands(manager.after_removal())


def service_of_root(call: Call, manager: Manager) -> tuple[Origin, bool]:
    """Return the origin of the service's file, and whether it starts bsd on this call's root.

    Raises:
        BsdError: the file cannot be read.
    """
    origin, there = _read(manager.file)
    if origin in {Origin.ABSENT, Origin.FOREIGN}:
        return origin, False
    with suppress(BsdError):
        if there == _content(call, manager):
            return origin, True
    if b"--root" not in there:  # it works on the usual root, as this call may do
        return origin, "--root" not in _options(call)
    root = re.escape(os.fsencode(os.path.abspath(call.settings.root)))
    return origin, re.search(root + rb"[\s\"<]", there) is not None


def restart_daemon(call: Call, manager: Manager) -> None:
    """Restart a running daemon, so that it reads bsd.toml; if that is impossible, print a note.

    Raises:
        Unavailable: the service manager failed.
    """
    if login_start(call, manager)[0] is LoginStart.RUNS:
        run_commands(manager.start(changed=True))
        if not call.json:
            say_check("ok", f"bsd was restarted by {manager.name}: `bsd status`")
    elif (process := daemon_process(call)) is not None:
        try:
            Client(call.settings.socket).post("/api/setup/restart")
        except BsdError:  # an older version, or read-only
            note(f"bsd runs as process {process}: restart it, so that it reads bsd.toml")
        else:
            if not call.json:
                say_check("ok", f"bsd restarts, as process {process}: `bsd status`")


def daemon_process(call: Call) -> int | None:
    """Return the process id of the daemon that answers on the socket; None if none does."""
    with suppress(BsdError):
        return int(Client(call.settings.socket).get("/api/health")["pid"])
    return None


def _content(call: Call, manager: Manager) -> bytes:
    return _signed(manager.text([*own_command(), *_options(call), "run"]), manager.comment)


def _install(manager: Manager, content: bytes, *, changed: bool) -> None:
    if changed:
        _write(manager.file, content)
    run_commands(manager.start(changed=changed))


def _state(manager: Manager) -> dict[str, Any]:
    origin, _ = _read(manager.file)
    place = {"manager": manager.name, "file": str(manager.file), "origin": origin.value}
    return {**place, **asdict(manager.state())}


def _options(call: Call) -> Argv:
    """Return the options for the service, which does not see the environment of this shell."""
    options = []
    chosen = call.root or os.environ.get("OPENCLAW_ROOT")
    root = call.layout.root  # raises if it does not exist
    if chosen or os.environ.get("BRAINSURGEON_AGENTS_DIR"):
        options += ["--root", os.path.abspath(root)]
    if call.config:
        options += ["--config", os.path.abspath(os.path.expanduser(call.config))]
    return options


def _warn(manager: Manager) -> None:
    """Print notes on facts that may surprise the user."""
    if unseen := [name for name in VARIABLES if os.environ.get(name)]:
        file = settings_file(os.environ)
        note(f"the service does not see this shell's {', '.join(unseen)}; set it in {file}")
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
    """The origin of a service file."""

    ABSENT = "absent"
    OURS = "written by bsd"  # as bsd wrote it
    EDITED = "written by bsd and changed since"
    FOREIGN = "not written by bsd"


def _signed(text: str, comment: tuple[str, str]) -> bytes:
    """Return `text` with a comment as last line, by which bsd recognises its own file."""
    body = text.encode()
    digest = hashlib.sha256(body).hexdigest()
    line = f"{comment[0]}written by bsd service install, sha256:{digest}{comment[1]}\n"
    return body + line.encode()


def _read(path: Path) -> tuple[Origin, bytes]:
    """Return the origin and the content of a file; raises BsdError."""
    try:
        if path.is_symlink():  # made by the user, as a mask (→ /dev/null) is
            return Origin.FOREIGN, b""
        content = path.read_bytes()
    except FileNotFoundError:
        return Origin.ABSENT, b""
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    signature = _SIGNATURE.search(content)
    if signature is None:
        return Origin.FOREIGN, content
    rest = content[: signature.start()] + content[signature.end() :]
    same = hashlib.sha256(rest).hexdigest().encode() == signature[1]
    return (Origin.OURS if same else Origin.EDITED), content


def _write(path: Path, content: bytes) -> None:
    """Write the file durably; raises BsdError."""
    try:
        write_private(path, content)
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error


def _remove(path: Path) -> None:
    """Remove the file durably; raises BsdError."""
    try:
        os.unlink(path)
        sync_dir(path.parent)
    except OSError as error:
        raise os_problem(error, f"removing {path}") from error
