"""`bsd undo`: what people are told of it."""

from __future__ import annotations

from bsd.doors.cli.output import note, say
from bsd.doors.cli.text import counted
from bsd.doors.cli.verbs import verb_command
from bsd.foundation.layout import SessionName
from bsd.surgery.undo import Undone


def _tell(answer: Undone, session: SessionName) -> None:
    what = f"operation {answer.undone} ({answer.action}, {answer.at[:19]} UTC)"
    say(f"Undid {what} of {session}: {counted(len(answer.entries), 'entry')}")
    if answer.gone:
        say(f"  Thrown away by another program since: {counted(len(answer.gone), 'entry')}")
    for number in answer.operations:
        say(f"  `bsd undo {session} {number}` does it again")
    if answer.action == "extract":
        note(
            f"It stays inline until `bsd extract {session}` takes it out again, or "
            f"`bsd set-extractable {session} ENTRY unset` gives an entry back to the daemon"
        )


undo = verb_command("undo", _tell)
