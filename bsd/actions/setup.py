"""Forecast an extraction: a dry run with the present settings on a sample of sessions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.extract import extract
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName


@dataclass(frozen=True, slots=True)
class WouldLeave:
    """The values that an extraction would take out of sessions now. Sizes are bytes."""

    sessions: int
    bytes: Annotated[int, Field(description="Size of all sessions")]
    read_sessions: Annotated[int, Field(description="Number of sessions that the dry run has read")]
    read_bytes: int
    values: Annotated[int, Field(description="Values that would leave the read sessions")]
    read_saved: Annotated[int, Field(description="Bytes that would be saved in the read sessions")]
    bytes_saved: Annotated[
        int,
        Field(
            description="Bytes that would be saved in all sessions; an estimate if not all were"
            " read"
        ),
    ]

    @property
    def is_sample(self) -> bool:
        """True if some sessions were not read."""
        return self.read_sessions < self.sessions


def foretell_extraction(
    context: ActionContext,
    files: Sequence[tuple[SessionName, int]],
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> WouldLeave:
    """Compute the values that an extraction would take out of sessions now; changes no session.

    Sessions are read in a random order until all are read or the time is over. In the latter case
    the result for all sessions is estimated, in proportion to size, from those that were read. A
    session that cannot be read, or that bsd does not edit, counts as one without due values.

    Args:
        files: the sessions, with their sizes in bytes.
        seconds: the time for reading sessions.
        clock: returns the time in seconds.
    """
    end = clock() + seconds
    total = sum(size for _, size in files)
    read_sessions = read_bytes = values = saved = 0

    def progress(done: int, of: int | None = None) -> None:  # noqa: ARG001
        context.progress(read_bytes + done, total)
        if clock() >= end:
            raise TimeoutError

    timed = replace(context, progress=progress)
    order = list(files)
    random.Random(len(order)).shuffle(order)  # noqa: S311 - the same order for the same sessions
    for name, size in order:
        try:
            progress(0)
            result = extract(timed, name, dry_run=True)
        except TimeoutError:
            break
        except BsdError:  # the session was just deleted, or the file is not a session
            result = None
        read_sessions, read_bytes = read_sessions + 1, read_bytes + size
        if result is not None:
            values, saved = values + result.values, saved + result.bytes_saved
    share = saved / read_bytes if read_bytes else 0.0
    everything = saved if read_sessions == len(order) else round(share * total)
    return WouldLeave(len(order), total, read_sessions, read_bytes, values, saved, everything)
