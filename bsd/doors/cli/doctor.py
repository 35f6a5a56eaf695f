"""`bsd doctor`: what could be in the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import BsdCommand, Call, command
from bsd.doors.cli.output import note, print_json, say, say_check

if TYPE_CHECKING:
    from bsd.care.doctor import Check
    from bsd.foundation.rights import FileOwner


class _Doctor(BsdCommand):
    """Looks as the root's owner, whom root may have given back what is the owner's."""

    def first_as_root(self, ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        return _give_back if ctx.params["repair"] else None


def _give_back(root: Path, owner: FileOwner) -> None:
    from bsd.care.file_owners import give_back
    from bsd.foundation.rights import environment_of

    count = give_back(root, environment_of(owner, os.environ), owner.uid, owner.gid)
    note(f"({count} files and directories of root's are {owner}'s now)")


@command(
    "doctor",
    """
    Looks at owner and permissions, settings, what the file system guarantees, free space, inotify
    limits, locks, agents that moved to SQLite, and the store. Changes nothing, unless --repair is
    given by root: then what root has made in another user's root is that user's. Exit code 1 if a
    check fails; warnings do not count.

    \b
    Examples:
      bsd doctor
      sudo bsd --root /home/ada/.openclaw doctor --repair
      bsd doctor --json | jq '.checks[] | select(.level != "ok")'
    """,
    _Doctor,
)
@click.option("--repair", is_flag=True, help="As root: give its owner what root made there.")
@click.pass_obj
def doctor(call: Call, /, repair: bool) -> int:
    if repair:
        _refuse_unless_repaired(call)
    checks = list(_checks(call))
    failed = any(check.level == "fail" for check in checks)
    if call.json:
        print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    else:
        for check in checks:
            _print(check)
    return 1 if failed else 0


def _refuse_unless_repaired(call: Call) -> None:
    """Raise Forbidden if somebody was to give files away who cannot: an ordinary user."""
    from bsd.care.file_owners import wrongly_owned
    from bsd.foundation.errors import Forbidden

    if any(each.uid != os.geteuid() for each in wrongly_owned(call.layout.root, os.environ)):
        hint = f"`sudo bsd --root {call.layout.root} doctor --repair`"
        raise Forbidden("only root can give away what belongs to root", hint=hint)


def _checks(call: Call) -> Iterator[Check]:
    from bsd.care.doctor import Check, Level, clock, examine, versions
    from bsd.foundation.errors import BsdError

    try:
        layout = call.layout
    except BsdError as error:  # without a root there is nothing else to look at
        yield versions()
        for field in error.errors:
            yield Check("settings", Level.FAIL, f"{field.field}: {field.message}")
        yield Check("settings", Level.FAIL, error.message, error.hint)
        return
    yield from examine(layout)
    yield Check("settings", Level.OK, f"valid; the root is {layout.root}")
    try:
        config = call.pruning.current
    except BsdError as error:
        yield Check("config", Level.FAIL, error.message, error.hint)
        return
    file = layout.config_file
    state = "valid" if file.exists() else "not there yet; the defaults hold"
    yield Check("config", Level.OK, f"{file} is {state}; enabled: {str(config.enabled).lower()}")
    yield clock(layout, config.retention, config.trash_retention)


def _print(check: Check) -> None:
    say_check(check.level.value, f"{check.name:<12}{check.message}")
    if check.hint:
        say(f"{'':14}Try: {check.hint}")
