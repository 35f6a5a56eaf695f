"""`bsd doctor` and `bsd verify`: what could be in the way, whether all is still there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from bsd.care import verify as verification
from bsd.care.doctor import Check, Level, clock, examine, versions
from bsd.care.file_owners import give_back, wrongly_owned
from bsd.care.verify import Verification
from bsd.doors.cli.call import BsdCommand, Call, command
from bsd.doors.cli.output import counted, note, print_json, print_table, say, say_check
from bsd.foundation.errors import BsdError, Forbidden
from bsd.foundation.rights import FileOwner, environment_of


class _Doctor(BsdCommand):
    """Looks as the root's owner, whom root may have given back what is the owner's."""

    def first_as_root(self, ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        return _give_back if ctx.params["repair"] else None


def _give_back(root: Path, owner: FileOwner) -> None:
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
    if any(each.uid != os.geteuid() for each in wrongly_owned(call.layout.root, os.environ)):
        hint = f"`sudo bsd --root {call.layout.root} doctor --repair`"
        raise Forbidden("only root can give away what belongs to root", hint=hint)


def _checks(call: Call) -> Iterator[Check]:
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


@command(
    "verify",
    """
    Every placeholder has a file whose hash is right, every file is indexed, nothing is in flight.
    --repair mends what can be mended and lists the rest. Exit code 1 if something is left.

    \b
    Examples:
      bsd verify
      bsd verify --repair
    """,
)
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@click.pass_obj
def verify(call: Call, /, repair: bool) -> int:
    if repair:
        remark = call.surgeon().remark  # what is in flight is finished or undone first
        found = verification.verify(call.layout, repair=True, remark=remark)
    else:
        call.log(writes=False)
        call.finish_due()
        found = verification.verify(call.layout)
    if call.json:
        print_json(found.as_json())
    else:
        _print_verified(found)
    return 0 if found.clean else 1


def _print_verified(found: Verification) -> None:
    if found.findings:
        rows = [
            (
                "repaired" if finding.repaired else "" if finding.harmless else "open",
                finding.kind.replace("_", " "),
                finding.where,
                finding.message + (f" (try: {finding.hint})" if finding.hint else ""),
            )
            for finding in found.findings
        ]
        print_table(("", "WHAT", "WHERE", "MESSAGE"), rows)
        say()
    numbers = (
        f"{counted(found.sessions, 'session')}, {counted(found.placeholders, 'placeholder')}, "
        f"{counted(found.files, 'stored file')}"
        f"{f', {found.expired:,} expired' if found.expired else ''}"
        f"{f', {found.unmarked:,} without marker' if found.unmarked else ''}"
    )
    for why in found.elsewhere:
        say(f"{why}: its sessions are verified there")
    left = sum(finding.is_open for finding in found.findings)
    say(f"{numbers}: {'all as it should be' if not left else counted(left, 'problem') + ' left'}")
