"""`bsd restore`: what people are told of it."""

from __future__ import annotations

from bsd.doors.cli.output import note, say
from bsd.doors.cli.text import counted, size
from bsd.doors.cli.verbs import verb_command
from bsd.foundation.layout import SessionName
from bsd.surgery.restore import Restored
from bsd.verbs.restore import Restore


def _tell(answer: Restored, session: SessionName) -> None:
    keys, sizes = answer.keys_restored, answer.sizes_bytes
    if keys:
        total = size(sum(sizes.values()))
        say(f"Restored {counted(len(keys), 'value')} ({total}) of {answer.entry_id} in {session}")
        for key in keys:
            say(f"  {key}  {size(sizes[key])}")
    for key, why in answer.unavailable.items():
        note(f"{key}: {why}")
    if answer.expired is not None:
        note(answer.expired)
    for key in answer.changed:
        note(f"{key}: somebody has changed it since it was extracted; it stays as it is")
    if answer.previous_restored_at is not None:
        say(f"It was restored before, at {answer.previous_restored_at}. {answer.suggestion}")


def _lost(asked: Restore, answer: Restored) -> bool:
    return bool(answer.unavailable or (asked.keys and answer.changed))


restore = verb_command("restore", _tell, _lost)
