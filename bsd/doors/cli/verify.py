"""`bsd verify`: says whether everything is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import Call, command
from bsd.doors.cli.output import print_json, print_table, say
from bsd.doors.cli.text import counted

if TYPE_CHECKING:
    from bsd.care.verify import Verification


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
    from bsd.care import verify as lifecycle

    if repair:
        remark = call.surgeon().remark  # what is in flight is finished or undone first
        found = lifecycle.verify(call.layout, repair=True, remark=remark)
    else:
        call.log(writes=False)
        call.finish_due()
        found = lifecycle.verify(call.layout)
    if call.json:
        print_json(found.as_json())
    else:
        _print(found)
    return 0 if found.clean else 1


def _print(found: Verification) -> None:
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
