"""`bsd context`: a session as an agent is told of it (seed 001's get_context)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import print_json, print_table, say
from bsd.doors.cli.text import counted, size

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName


@command(
    "context",
    """
    Lists every entry with the six-digit hash of its content, its size, and whether it can be or
    has been extracted.

    \b
    Examples:
      bsd context main/4f2a
      bsd context main/4f2a --json | jq -r '.extracted_ids[]'
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.pass_obj
def context(call: Call, /, session: SessionName) -> None:
    call.say_whose(session.agent)
    found = call.examiner().context(session)
    if call.json:
        print_json(found)
        return
    _print(found)


def _print(found: dict[str, Any]) -> None:
    columns = ("HASH", "INDEX", "ID", "TYPE", "SIZE", "EXTRACTABLE", "EXTRACTED")
    rows = [
        (
            str(entry.get("hash") or ""),
            str(entry["index"]),
            entry["id"] or "",
            entry["type"],
            size(entry["size_bytes"]),
            "" if entry["extractable"] is None else str(entry["extractable"]).lower(),
            "yes" if entry["extracted"] else "",
        )
        for entry in found["entries"]
    ]
    print_table(columns, rows, right=("INDEX", "SIZE"))
    out = f"{counted(found['extracted_entries'], 'entry')} extracted"
    stored = size(found["extracted_size_bytes"])
    say(
        f"\n{found['session']}: {counted(found['total_entries'], 'entry')}, "
        f"{size(found['size_bytes'])}; {out} ({stored}), "
        f"{found['extractable_entries']} extractable; "
        f"last extraction: {found['last_extracted_at'] or 'never'}"
    )
