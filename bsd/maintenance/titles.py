"""How sessions are called, how new they are, and what is out of them.

The index of words tells it of sessions that it has read as they are; of others some lines are read,
and kept in mind.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.strays import StoredFiles
from bsd.store.search import KnownTitle, SearchIndex, ask
from bsd.store.statistics import NOTHING_OUT, TakenOut, out_of
from bsd.transcripts.agents.entry import MARKER
from bsd.transcripts.agents.format import NotOurs, Rank, Title, TranscriptFormat, better
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import packed
from bsd.transcripts.reader import Transcript, TranscriptFile, parse_entry

_T = TypeVar("_T")

_HEAD, _TAIL = 256 << 10, 64 << 10  # bytes
_LONGEST_TAIL = 1 << 20
_PATIENCE_SECONDS = 1.0
_KEPT = 100_000  # sessions whose ends are kept in memory until the index has read them
# So far a file may be older than its newest entry: clocks differ, programs put times back.
_BEYOND_SECONDS = 24 * 3600.0
_MARKERS_BUDGET = 256 << 20  # bytes that one list reads for what is out of sessions


@dataclass(frozen=True, slots=True)
class Ends:
    """The title and the times that stand in a session."""

    title: str | None = None
    newest_ms: float | None = None  # time of its newest entry, milliseconds since 1970


class _ReadHere:
    """The ends of sessions that the index has not read as they are: at a start that may be all.

    Of very many some are read anew each time, and always the same ones: a list asks for all in
    turn, and whoever drops what was asked for longest ago would find nothing.
    """

    _AS_READ = struct.Struct("=d?")  # newest_ms, whether there is a title, which follows

    def __init__(self) -> None:
        self._ends: dict[str, tuple[bytes, bytes]] = {}  # packed: the file's state, what it says
        self._outs: dict[str, tuple[bytes, TakenOut]] = {}  # if something is stored

    def get(self, name: str, state: bytes) -> Ends | None:
        """Return the title and times of a session, if its file was read in this state."""
        before, said = self._ends.get(name, (b"", b""))
        if before != state:
            return None
        newest, titled = self._AS_READ.unpack_from(said)
        title = said[self._AS_READ.size :].decode(errors="surrogatepass") if titled else None
        return Ends(title, None if math.isnan(newest) else newest)

    def keep(self, name: str, state: bytes, ends: Ends) -> None:
        newest = math.nan if ends.newest_ms is None else ends.newest_ms
        said = self._AS_READ.pack(newest, ends.title is not None)
        title = (ends.title or "").encode(errors="surrogatepass")
        if name in self._ends or len(self._ends) < _KEPT:
            self._ends[name] = state, said + title

    def drop(self, name: str) -> None:
        """The index has read the session meanwhile."""
        if self._ends:
            self._ends.pop(name, None)
        if self._outs:
            self._outs.pop(name, None)

    def get_out(self, name: str, state: bytes) -> TakenOut | None:
        """Return what was out of a session, if its file was read in this state."""
        before, out = self._outs.get(name, (b"", None))
        return out if before == state else None

    def keep_out(self, name: str, state: bytes, out: TakenOut) -> None:
        if name in self._outs or len(self._outs) < _KEPT:
            self._outs[name] = state, out


class Titles:
    """Of all sessions, those of an `agent`, or `only` one; the index is asked once."""

    def __init__(
        self, layout: Layout, agent: str | None = None, only: SessionName | None = None
    ) -> None:
        self._layout = layout
        self._asked = agent, only
        self._known = _in_index(layout, agent, only)
        self._read_here = _read_here(layout)
        self._stored = StoredFiles(layout)
        self.budget = _MARKERS_BUDGET  # bytes that may still be read for `out`

    @cached_property
    def _outs(self) -> dict[str, TakenOut] | None:
        def read(index: SearchIndex) -> dict[str, TakenOut] | None:
            return index.taken_out(*self._asked)

        return _ask(self._layout, read, None)

    def of(self, name: SessionName, stat: os.stat_result) -> Ends:
        """What one says, whose file is as `stat` says; nothing if it cannot be read."""
        text = str(name)
        known = self._known.get(text)
        if known and (known.size, known.mtime) == (stat.st_size, stat.st_mtime_ns):
            self._read_here.drop(text)
            title = None if known.title is None else known.title.decode(errors="replace")
            return Ends(title, known.newest_ms)
        state = packed(stat)
        found = self._read_here.get(text, state)
        if found is None:
            found = _ends(self._layout, name)
            self._read_here.keep(text, state, found)
        return found

    def updated(self, name: SessionName, stat: os.stat_result) -> float:
        """The time of the newest message (epoch seconds)."""
        return when(self.of(name, stat), stat)

    def out(self, name: SessionName, stat: os.stat_result) -> TakenOut | None:
        """Return what is out of the lines; None if that takes reading and no budget is left."""
        text = str(name)
        known = self._known.get(text)
        is_known = known and (known.size, known.mtime) == (stat.st_size, stat.st_mtime_ns)
        if is_known and (outs := self._outs) is not None:
            return outs.get(text, NOTHING_OUT)
        if not self._stored.has(name.agent, f"{name.session}{ENDING}"):
            return NOTHING_OUT
        state = packed(stat)
        found = self._read_here.get_out(text, state)
        if found is None and stat.st_size <= self.budget:
            self.budget -= stat.st_size
            found = _count_markers(self._layout, name)
            if found is not None:
                self._read_here.keep_out(text, state, found)
        return found


def _count_markers(layout: Layout, name: SessionName) -> TakenOut | None:
    found = NOTHING_OUT
    try:
        with TranscriptFile(layout.session_file(name)) as source:
            for line in source.lines_holding(f'"{MARKER}"'.encode()):
                if (entry := parse_entry(line.raw)) is not None:
                    found += out_of(entry, len(line.raw))
    except (BsdError, OSError):  # whoever opens it is told why it cannot be read
        return None
    return found


def when(ends: Ends, stat: os.stat_result) -> float:
    """When something was last said: by the newest entry, else by the file.

    A commit of ours and a copy change the file's time. A time that lies beyond it is none.
    """
    if ends.newest_ms is None or not 0 < ends.newest_ms / 1000 <= stat.st_mtime + _BEYOND_SECONDS:
        return stat.st_mtime
    return ends.newest_ms / 1000


def _in_index(layout: Layout, agent: str | None, only: SessionName | None) -> dict[str, KnownTitle]:
    return _ask(layout, lambda index: index.titles(agent, only), {})


def _ask(layout: Layout, question: Callable[[SearchIndex], _T], nothing: _T) -> _T:
    # Nobody waits for it: what it cannot tell, the sessions can.
    with suppress(BsdError, OSError):
        return ask(layout.search_db, question, nothing, wait=_PATIENCE_SECONDS)
    return nothing


@lru_cache(maxsize=8)
def _read_here(_: Layout) -> _ReadHere:
    """What was read of the sessions of a root; one for all who ask in this process."""
    return _ReadHere()


def _ends(layout: Layout, name: SessionName) -> Ends:
    try:
        with TranscriptFile(layout.session_file(name)) as source:
            return ends_in(source, program_of(layout, name.agent))
    except (BsdError, OSError):  # whoever opens it is told why it cannot be read
        return Ends()


def ends_in(source: Transcript, program: AgentProgram) -> Ends:
    """What an open session says by its first and its last lines; raises BsdError."""
    size = source.identity.size
    head = source.read(0, min(size, _HEAD))
    lines = _whole_lines(head, at_end=size <= _HEAD)
    found = program.detect(lines)
    fmt = found.reads if isinstance(found, NotOurs) else found
    if fmt is None:
        return Ends()
    title, newest = _read(lines, fmt)
    if size > _HEAD:
        later, newest = _read(_last_lines(source), fmt)
        # A prompt among the last lines is not the first one.
        if later and later.rank is not Rank.PROMPT:
            title = better(title, later)
    return Ends(title.text if title else None, newest)


def _read(lines: Iterable[bytes], fmt: TranscriptFormat) -> tuple[Title | None, float | None]:
    title, newest = None, None
    for raw in lines:
        if (entry := parse_entry(raw)) is None:
            continue
        title = better(title, fmt.title(entry))
        if (time := fmt.info(entry).time_ms) is not None:
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
