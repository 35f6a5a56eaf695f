"""`bsd verify`, which checks that the data is complete, and `bsd doctor`, which finds obstacles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from bsd.actions.checks import Examined, diagnose, diagnose_without_root, verify
from bsd.cli.call import BsdCommand, Call
from bsd.cli.output import counted, note, print_table, say, say_check, say_wrapped
from bsd.cli.privileges import FileOwner, environment_of
from bsd.cli.progress import waiting
from bsd.core.errors import BsdError
from bsd.maintenance.file_owners import give_back
from bsd.maintenance.session_check import Verification

_INDENT = 14  # columns before the message of a check


@click.command("verify", cls=BsdCommand)
@click.option("--repair", is_flag=True, help="Repair problems where possible.")
@click.pass_obj
def verify_command(call: Call, /, repair: bool) -> int:
    """Check that every extracted value is stored intact.

    Checks that every placeholder has a stored file with the right hash, that every file is indexed,
    and that no commit is in flight. --repair repairs problems where possible and lists the rest.
    Exit code 1 if a problem is left. Damaged lines of sessions (torn, several entries in one line,
    zero bytes) are listed and kept as they are; they do not count as problems.

    \b
    Examples:
      bsd verify
      bsd verify --repair
    """
    with call.context(changes=repair) as context:
        answer = verify(context, repair=repair)
    call.answer(answer, tell_verified)
    return int(not answer.clean)


def tell_verified(found: Verification) -> None:
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
        print_table(("", "WHAT", "WHERE", "MESSAGE"), rows, wraps=("WHERE", "MESSAGE"))
        say()
    numbers = [
        counted(found.sessions, "session"),
        counted(found.placeholders, "placeholder"),
        counted(found.files, "stored file"),
    ]
    if found.packed:
        numbers.append(f"{counted(found.packed, 'line')} in the archive")
    if found.expired:
        numbers.append(f"{found.expired:,} expired")
    if found.unmarked:
        numbers.append(f"{found.unmarked:,} without marker")
    if found.damaged_lines:
        numbers.append(counted(found.damaged_lines, "damaged line"))
    for why in found.elsewhere:
        say(f"{why}: its sessions are verified there")
    left = sum(finding.is_open for finding in found.findings)
    state = f"{counted(left, 'problem')} left" if left else "no problems"
    if found.damaged_lines and not left:
        state = "every extracted value is there"
    say_wrapped(f"{', '.join(numbers)}: {state}")


class _DoctorCommand(BsdCommand):
    """`bsd doctor` runs as the root's owner, after root has given back the owner's files.

    Commits in flight are only listed, not finished.
    """

    finishes_due = False

    def first_as_root(self, ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        return _give_back if ctx.params["repair"] else None


def _give_back(root: Path, owner: FileOwner) -> None:
    count = give_back(root, environment_of(owner, os.environ), owner.uid, owner.gid)
    note(f"({count} files and directories now belong to {owner})")


@click.command("doctor", cls=_DoctorCommand)
@click.option("--repair", is_flag=True, help="As root: give files that root made to the owner.")
@click.pass_obj
def doctor_command(call: Call, /, repair: bool) -> int:
    """Check this machine and this directory for trouble.

    Checks owner and permissions, settings, guarantees of the file system, free space, inotify
    limits, locks, agents that moved to SQLite, and the store. It changes files only if root gives
    --repair: then files that root has made in another user's root become that user's. Exit code 1
    if a check fails; warnings do not count.

    \b
    Examples:
      bsd doctor
      sudo bsd --root /home/ada/.openclaw doctor --repair
      bsd doctor --json | jq '.checks[] | select(.level != "ok")'
    """
    try:
        call.layout  # noqa: B018 - raises if there is no root
    except BsdError as problem:
        answer = diagnose_without_root(problem)
    else:
        with call.context(changes=False) as context, waiting("checking"):
            answer = diagnose(context, repair=repair)
    call.answer(answer, tell_examined)
    return int(not answer.ok)


def tell_examined(found: Examined) -> None:
    for check in found.checks:
        say_check(check.level.value, f"{check.name:<12}{check.message}", _INDENT)
        for number, line in enumerate((check.hint or "").splitlines()):
            say_wrapped(f"{'':{_INDENT}}{'Try:' if number == 0 else '':<5}{line}", _INDENT)
