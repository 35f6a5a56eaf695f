"""How sessions are called, and when something was last said in them.

By the index of words where that has read them; else by their first and last lines alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from bsd.agents.dialect import Format, NotOurs
from bsd.agents.entry import Rank, Title, better
from bsd.agents.owners import owner_of
from bsd.foundation.errors import BsdError
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName
from bsd.store.search import SearchIndex, use
from bsd.store.search_rows import Told
from bsd.text.reader import Transcript, TranscriptFile, parse_entry

_HEAD, _TAIL = 256 << 10, 64 << 10  # bytes
_LONGEST_TAIL = 1 << 20
_PATIENCE_SECONDS = 1.0
_KEPT = 16_384  # sessions whose ends are kept in memory
# So far a file may be older than its newest entry: clocks differ, programs put times back.
_BEYOND_SECONDS = 24 * 3600.0


@immutable
class Ends:
    """What a session says of itself."""

    title: str | None = None
    newest_ms: float | None = None  # time of its newest entry, milliseconds since 1970


class Titles:
    """Of all sessions, those of an `agent`, or `only` one; the index is asked once."""

    def __init__(
        self, layout: Layout, agent: str | None = None, only: SessionName | None = None
    ) -> None:
        self._layout = layout
        self._known = _in_index(layout, agent, only)

    def of(self, name: SessionName, stat: os.stat_result) -> Ends:
        """What one says, whose file is as `stat` says; nothing if it cannot be read."""
        known = self._known.get(str(name))
        if known and (known.size, known.mtime) == (stat.st_size, stat.st_mtime_ns):
            return Ends(known.title, known.newest_ms)
        state = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
        return _ends(self._layout, name, state)

    def updated(self, name: SessionName, stat: os.stat_result) -> float:
        """When something was last said in it (epoch seconds)."""
        return when(self.of(name, stat), stat)


def when(ends: Ends, stat: os.stat_result) -> float:
    """When something was last said: by the newest entry, else by the file.

    A commit of ours and a copy change the file's time. A time that lies beyond it is none.
    """
    if ends.newest_ms is None or not 0 < ends.newest_ms / 1000 <= stat.st_mtime + _BEYOND_SECONDS:
        return stat.st_mtime
    return ends.newest_ms / 1000


def _in_index(layout: Layout, agent: str | None, only: SessionName | None) -> dict[str, Told]:
    def read(index: SearchIndex) -> dict[str, Told]:
        return index.told(agent, only)

    # Nobody waits for it: what it cannot tell, the sessions can.
    with suppress(BsdError, OSError, sqlite3.Error):
        if layout.search_db.exists():
            return use(layout.search_db, read, wait=_PATIENCE_SECONDS)
    return {}


@lru_cache(maxsize=_KEPT)
def _ends(layout: Layout, name: SessionName, _state: tuple[int, ...]) -> Ends:
    try:
        with TranscriptFile(layout.session_file(name)) as source:
            size = source.identity.size
            head = source.read(0, min(size, _HEAD))
            lines = _whole_lines(head, at_end=size <= _HEAD)
            found = owner_of(layout, name.agent).detect(lines)
            fmt = found.reads if isinstance(found, NotOurs) else found
            if fmt is None:
                return Ends()
            title, newest = _read(lines, fmt)
            if size > _HEAD:
                later, newest = _read(_last_lines(source), fmt)
                # A prompt among the last lines is not the first one.
                if later and later.rank is not Rank.PROMPT:
                    title = better(title, later)
    except (BsdError, OSError):  # whoever opens it is told why it cannot be read
        return Ends()
    return Ends(title.text if title else None, newest)


def _read(lines: Iterable[bytes], fmt: Format) -> tuple[Title | None, float | None]:
    title, newest = None, None
    for raw in lines:
        if (entry := parse_entry(raw)) is None:
            continue
        title = better(title, fmt.title(entry))
        if (time := fmt.facts(entry).time_ms) is not None:
            newest = max(time, newest or time)
    return title, newest


def _whole_lines(data: bytes, *, at_end: bool) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if at_end else lines[:-1]


def _last_lines(source: Transcript) -> list[bytes]:
    """Those among the last bytes that are whole; of more bytes if there is none."""
    size, length = source.identity.size, _TAIL
    while True:
        start = max(0, size - length)
        _, *lines = source.read(start, size - start).split(b"\n")
        if any(lines) or start == 0 or length >= _LONGEST_TAIL:
            return lines
        length *= 4
