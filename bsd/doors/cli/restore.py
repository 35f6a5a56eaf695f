"""`bsd restore`: one entry's values back inline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import KEYS, SESSION, Call, command
from bsd.doors.cli.output import note, print_json, say
from bsd.doors.cli.text import counted, size

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName


@command(
    "restore",
    """
    ENTRY is the id in the placeholder [[extracted-ENTRY]]. A key is a value's path (`bsd show`
    lists them) or one segment of it; without --keys all values come back. A restored entry is not
    extracted again for keep_after_restore_seconds.

    \b
    Examples:
      bsd restore main/4f2a 1c556fa0
      bsd restore main/4f2a 1c556fa0 --keys text,details
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("entry", metavar="ENTRY", shell_complete=complete.entries)
@click.option("--keys", type=KEYS, metavar="KEY,…", help="Only these values.")
@click.pass_obj
def restore(call: Call, /, session: SessionName, entry: str, keys: list[str] | None) -> int:
    from bsd.doors.cli.interrupt import stop_request

    with stop_request() as request:
        surgeon = call.surgeon(sleep=request.sleep)
        answer = call.with_entry(session, entry, lambda one: surgeon.restore(session, one, keys))
    if call.json:
        print_json(answer)
    else:
        tell_restored(answer, str(session))
    lost = answer.get("unavailable") or (keys and answer.get("changed"))
    return request.exit_code or (1 if lost else 0)


def tell_restored(answer: dict[str, Any], session: str) -> None:
    """Say what `Surgeon.restore` answered."""
    sizes: dict[str, int] = answer["sizes_bytes"]
    keys: list[str] = answer["keys_restored"]
    if keys:
        total = size(sum(sizes.values()))
        say(
            f"Restored {counted(len(keys), 'value')} ({total}) of {answer['entry_id']} in {session}"
        )
        for key in keys:
            say(f"  {key}  {size(sizes[key])}")
    for key, why in answer.get("unavailable", {}).items():
        note(f"{key}: {why}")
    if "expired" in answer:
        note(answer["expired"])
    for key in answer.get("changed", ()):
        note(f"{key}: somebody has changed it since it was extracted; it stays as it is")
    if "previous_restored_at" in answer:
        say(f"It was restored before, at {answer['previous_restored_at']}. {answer['suggestion']}")
