"""`bsd service`: bsd as a service of this user, which starts at login and stays."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from bsd.doors.cli.call import BsdCommand, Call, confirm
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.output import note, print_json, say, say_check
from bsd.doors.cli.service_managers import Argv, Manager, manager_here, run
from bsd.foundation.errors import Conflict, os_problem
from bsd.foundation.files import sync_dir, write_private
from bsd.foundation.locations import settings_file
from bsd.foundation.settings import VARIABLES

_NOT_RUNNING = 3
_MORE = """
On Linux this is a unit of your own systemd, on macOS an agent of launchd; neither needs root. For a
server on which nobody logs in there is the system's unit bsd@USER.

\b
Examples:
  bsd service install --dry-run
  bsd service install
  bsd --root /srv/openclaw service install
  bsd service status
"""


class _Service(click.Group, BsdCommand):
    """A group that understands the global options before its subcommands, too."""


@click.group("service", cls=_Service, help=f"{COMMANDS['service'].help}\n\n{_MORE}")
def service() -> None:
    pass


@service.command("install", cls=BsdCommand)
@click.option("--dry-run", is_flag=True, help="Show the file and the commands; do nothing.")
@click.option("--yes", is_flag=True, help="Replace another file without asking.")
@click.pass_obj
def install(call: Call, /, dry_run: bool, yes: bool) -> None:
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
        _ask(f"{manager.file} is there, {origin.value}. Replace it?", "`bsd service install --yes`")
    if changed:
        _write(manager.file, content)
    _carry_out(manager.start(changed=changed))
    if call.json:
        print_json(_state(manager))
        return
    say(f"{'wrote' if changed else 'kept'} {manager.file}")
    say_check("ok", f"bsd is a service of {manager.name} now; `bsd status` asks it how it is")
    _warn(manager)


@service.command("uninstall", cls=BsdCommand)
@click.option("--dry-run", is_flag=True, help="Show what would be done; do nothing.")
@click.option("--yes", is_flag=True, help="Remove a file that was changed without asking.")
@click.pass_obj
def uninstall(call: Call, /, dry_run: bool, yes: bool) -> None:
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
            _ask(question, "`bsd service uninstall --yes`")
        _carry_out(manager.stop())
        _remove(manager.file)
        _carry_out(manager.after_removal())
    if call.json:
        print_json({"file": str(manager.file), "removed": origin is not Origin.NOBODY})
    elif origin is Origin.NOBODY:
        say(f"nothing to remove: there is no {manager.file}")
    else:
        say(f"removed {manager.file}")


@service.command("status", cls=BsdCommand)
@click.pass_obj
def status(call: Call, /) -> int:
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


def _carry_out(commands: list[Argv]) -> None:
    for argv in commands:
        run(argv)


def _ask(question: str, without: str) -> None:
    if not confirm(question, without):
        raise Conflict("nothing was changed", hint=f"{without} does not ask")


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
