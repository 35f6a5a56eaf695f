"""Threads of Codex that begin in the file of another thread: forks, and threads taken back a turn.

The header of such a file names the other file by the last id in its name, and the byte up to which
its lines belong to the thread. That file may begin in a further file. Codex does not delete a
thread that another one needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bsd.transcripts.agents.entry import Entry, text_of
from bsd.transcripts.agents.format import Continued

_ID = re.compile(r"[0-9a-f-]{36}")


def continued_by(meta: Entry) -> Continued | None:
    """Return the beginning of a thread that the content of its header names."""
    base = meta.get("history_base")
    if not isinstance(base, dict):
        return None
    session, end = text_of(base.get("thread_id")), base.get("end_byte_offset")
    if session is None or not _ID.fullmatch(session) or type(end) is not int or end < 0:
        return None
    return Continued(session, end)


def threads_files(sessions: Path, thread: str) -> Iterator[str]:
    """Yield the names of the files, compressed or not, whose last id this is."""
    if not _ID.fullmatch(thread):
        return
    ends = re.compile(rf"rollout-.*{thread}\.jsonl(?:\.zst)?")
    with suppress(OSError):
        for path in sessions.glob(f"*/*/*/rollout-*{thread}.jsonl*"):
            if ends.fullmatch(path.name):
                yield path.name
    with suppress(OSError):
        yield from filter(ends.fullmatch, os.listdir(sessions.parent / "archived_sessions"))
