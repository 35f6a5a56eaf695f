"""Facts for lists of sessions: title, time of the newest message, directory, extracted values.

The search index has these facts of sessions that have not changed since they were indexed. For
other sessions, the first and last lines are read and the facts are cached in this process.
`state.db` tells which sessions wait for their prompt cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.strays import StoredFiles
from bsd.store.search import KnownTitle, SearchIndex, ask
from bsd.store.state import Left, state_at
from bsd.store.statistics import NOTHING_OUT, TakenOut, out_of
from bsd.transcripts.agents.entry import MARKER
from bsd.transcripts.agents.format import NotOurs, Rank, Title, TranscriptFormat, better
from bsd.transcripts.agents.opening import open_transcript
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Written, packed
from bsd.transcripts.reader import Transcript, parse_entry

_T = TypeVar("_T")

_HEAD, _TAIL = 256 << 10, 64 << 10  # bytes
_LONGEST_TAIL = 1 << 20
_INDEX_WAIT_SECONDS = 1.0
_MOST_REMEMBERED = 100_000  # sessions
# Accepted lead of an entry's time over the file's: clocks differ, programs set mtimes back.
BEYOND_SECONDS = 24 * 3600.0
_MARKERS_BUDGET = 256 << 20  # limit of the bytes that a list reads to count markers


@dataclass(frozen=True, slots=True)
class Ends:
    """The title of a session, the time of its newest entry (ms since 1970), and its directory."""

    title: str | None = None
    newest_ms: float | None = None
    directory: str | None = None  # the working directory in which it began
    parent: str | None = None  # id of the session of which it is a fork


class Titles:
    """Titles and times of all sessions, of the sessions of an `agent`, or of the session `only`."""

    def __init__(
        self, layout: Layout, agent: str | None = None, only: SessionName | None = None
    ) -> None:
        self._layout = layout
        self._asked = agent, only
        nothing: dict[str, KnownTitle] = {}
        self._indexed = _ask(layout, lambda index: index.titles(agent, only), nothing)
        self._stored = StoredFiles(layout)
        self.budget = _MARKERS_BUDGET  # bytes that `out` may still read

    def of(self, name: SessionName, stat: os.stat_result) -> Ends:
        """Return the title and time of a session; empty if unreadable. `stat`: of its file."""
        remembered, key = _ends_read(self._layout), str(name)
        if (known := self._in_index(name, stat)) is not None:
            remembered.pop(key, None)
            title, directory = (
                None if text is None else text.decode(errors="replace")
                for text in (known.title, known.directory)
            )
            return Ends(title, known.newest_ms, directory, known.parent)
        return _remember(remembered, key, packed(stat), lambda: _read_ends(self._layout, name))

    def updated(self, name: SessionName, stat: os.stat_result) -> float:
        """Return the time of the newest message (epoch seconds)."""
        return when(self.of(name, stat), stat)

    def out(self, name: SessionName, stat: os.stat_result) -> TakenOut | None:
        """Return the amount of extracted values; None if unreadable or over the `budget`."""
        key = str(name)
        if self._in_index(name, stat) is not None and (outs := self._outs) is not None:
            return outs.get(key, NOTHING_OUT)
        if not self._stored.has(name.agent, f"{name.session}{ENDING}"):
            return NOTHING_OUT
        remembered, state = _markers_read(self._layout), packed(stat)
        if remembered.get(key, (b"", None))[0] != state:
            if stat.st_size > self.budget:
                return None
            self.budget -= stat.st_size
        return _remember(remembered, key, state, lambda: _count_markers(self._layout, name))

    def waits(self, name: SessionName, stat: os.stat_result) -> Left | None:
        """Return the daemon's note about an unchanged session that waits for its prompt cache."""
        left = self._waiting.get(str(name))
        return left if left is not None and left.file == Written.of(stat) else None

    def _in_index(self, name: SessionName, stat: os.stat_result) -> KnownTitle | None:
        """Return the facts of a session in the index; None if its file has changed since."""
        known = self._indexed.get(str(name))
        is_current = known and (known.size, known.mtime) == (stat.st_size, stat.st_mtime_ns)
        return known if is_current else None

    @cached_property
    def _waiting(self) -> dict[str, Left]:
        return state_at(self._layout.state_db).waiting()

    @cached_property
    def _outs(self) -> dict[str, TakenOut] | None:
        def read(index: SearchIndex) -> dict[str, TakenOut] | None:
            return index.taken_out(*self._asked)

        return _ask(self._layout, read, None)


def _ask(layout: Layout, question: Callable[[SearchIndex], _T], default: _T) -> _T:
    with suppress(BsdError, OSError):  # a list without the index is better than an error
        return ask(layout.search_db, question, default, wait=_INDEX_WAIT_SECONDS)
    return default


# Caches for sessions that the index lacks, with the state of each file; one cache per root.


@lru_cache(maxsize=8)
def _ends_read(_: Layout) -> dict[str, tuple[bytes, Ends]]:
    return {}


@lru_cache(maxsize=8)
def _markers_read(_: Layout) -> dict[str, tuple[bytes, TakenOut | None]]:
    return {}


def _remember(
    memory: dict[str, tuple[bytes, _T]], key: str, state: bytes, read: Callable[[], _T]
) -> _T:
    """Return the cached facts of a file in this state, or read and cache them.

    None (an error) is not cached. A full cache keeps its rows: a list asks for all sessions in
    turn, so dropping the oldest rows would make the cache useless.
    """
    before = memory.get(key)
    if before is not None and before[0] == state:
        return before[1]
    value = read()
    if value is not None and (before is not None or len(memory) < _MOST_REMEMBERED):
        memory[key] = state, value
    return value


def _count_markers(layout: Layout, name: SessionName) -> TakenOut | None:
    found = NOTHING_OUT
    try:
        with open_transcript(layout, name) as source:
            for line in source.lines_holding(f'"{MARKER}"'.encode()):
                if (entry := parse_entry(line.raw)) is not None:
                    found += out_of(entry, len(line.raw))
    except (BsdError, OSError):  # opening the session reports the problem
        return None
    return found


def when(ends: Ends, stat: os.stat_result) -> float:
    """Return the time of the newest message, else the mtime of the file (epoch seconds).

    Commits of bsd and copying change the mtime. An entry's time that is more than `BEYOND_SECONDS`
    after the mtime is ignored.
    """
    if ends.newest_ms is None or not 0 < ends.newest_ms / 1000 <= stat.st_mtime + BEYOND_SECONDS:
        return stat.st_mtime
    return ends.newest_ms / 1000


def _read_ends(layout: Layout, name: SessionName) -> Ends:
    try:
        with open_transcript(layout, name) as source:
            return ends_in(source, program_of(layout, name.agent))
    except (BsdError, OSError):  # opening the session reports the problem
        return Ends()


def ends_in(
    source: Transcript, program: AgentProgram, change: Callable[[bytes], bytes] = bytes
) -> Ends:
    """Return title and time of an open session from its first and last lines; raises BsdError.

    `change`: converts each line before it is parsed.
    """
    size = source.size
    head = source.read(0, min(size, _HEAD))
    lines = _whole_lines(head, at_end=size <= _HEAD)
    found = program.detect(lines)
    fmt = found.reads if isinstance(found, NotOurs) else found
    if fmt is None:
        return Ends()
    title, newest, directory = _read(map(change, lines), fmt)
    first = parse_entry(lines[0]) if lines else None
    parent = None if first is None else fmt.parent_session(first)
    if size > _HEAD:
        last_title, newest, last_directory = _read(map(change, _last_lines(source)), fmt)
        # A prompt among the last lines is not the first prompt.
        if last_title and last_title.rank is not Rank.PROMPT:
            title = better(title, last_title)
        directory = directory or last_directory
    return Ends(title and title.text, newest, directory, parent)


def _read(
    lines: Iterable[bytes], fmt: TranscriptFormat
) -> tuple[Title | None, float | None, str | None]:
    """Return title, time and directory from some lines of a session."""
    title, newest, directory = None, None, None
    for raw in lines:
        if (entry := parse_entry(raw)) is None:
            continue
        title = better(title, fmt.title(entry))
        directory = directory or fmt.directory(entry)
        if (time := fmt.info(entry).time_ms) is not None:
            newest = max(time, newest or time)
    return title, newest, directory


def _whole_lines(data: bytes, *, at_end: bool) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if at_end else lines[:-1]


def _last_lines(source: Transcript) -> list[bytes]:
    """Return the complete lines among the last 64 KB, or up to 1 MB if a line is longer."""
    size, length = source.size, _TAIL
    while True:
        start = max(0, size - length)
        _, *lines = source.read(start, size - start).split(b"\n")
        if any(lines) or start == 0 or length >= _LONGEST_TAIL:
            return lines
        length *= 4
