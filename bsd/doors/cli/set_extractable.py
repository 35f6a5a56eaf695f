"""`bsd set-extractable`: an entry's own rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import print_json, say

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName


@command(
    "set-extractable",
    """
    VALUE is false (never extract this entry), true (extract it, whatever its type, size or
    position), a number (keep it for so many messages instead of keep_recent), or unset. Any of
    them gives back to the daemon what an undo had kept inline.

    \b
    Examples:
      bsd set-extractable main/4f2a 1c556fa0 false
      bsd set-extractable main/4f2a 1c556fa0 20
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("entry", metavar="ENTRY", shell_complete=complete.entries)
@click.argument(
    "value",
    metavar="true|false|N|unset",
    shell_complete=complete.words("true", "false", "unset"),
)
@click.pass_obj
def set_extractable(call: Call, /, session: SessionName, entry: str, value: str) -> int:
    from bsd.doors.cli.interrupt import stop_request

    wanted = read_extractable(value)
    with stop_request() as request:
        surgeon = call.surgeon(sleep=request.sleep)
        answer = call.with_entry(
            session, entry, lambda one: surgeon.set_extractable(session, one, wanted)
        )
    if call.json:
        print_json(answer)
    else:
        tell_extractable(answer)
    return request.exit_code


def read_extractable(text: str) -> bool | int | None:
    """Read `true`, `false`, a whole number, or `unset` (None); raises Invalid."""
    from bsd.foundation.errors import Invalid

    words: dict[str, bool | None] = {"true": True, "false": False, "unset": None}
    if text.lower() in words:
        return words[text.lower()]
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise Invalid(f"{text!r} is no value for _extractable", hint="true, false, a number, or unset")


def tell_extractable(answer: dict[str, Any]) -> None:
    """Say what `Surgeon.set_extractable` answered."""
    now, before = (_shown(answer[key]) for key in ("extractable", "previous"))
    say(f"Set _extractable={now} for entry {answer['entry_id']} (before: {before})")


def _shown(value: bool | int | None) -> str:
    return "unset" if value is None else str(value).lower()
