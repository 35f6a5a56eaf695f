"""Searches all text of sessions, stores and archives without an index.

The lines come from `stored_lines`. Only lines that may contain the words are parsed
(`Matcher.candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from bsd.core.errors import BsdError, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted, open_or_snapshot
from bsd.maintenance.stored_lines import (
    ARCHIVED,
    LIVE,
    LIVE_AND_ARCHIVED,
    STORED,
    STORED_AND_ARCHIVED,
    ScanPosition,
    StoredLineReader,
    StoredLines,
)
from bsd.maintenance.wanted_sessions import WantedSessions
from bsd.sessions.session import format_of
from bsd.store.search import SearchHit
from bsd.store.search_filter import NO_FILTER, ROLES, SearchFilter, SearchPlace
from bsd.store.search_words import Matcher, indexable
from bsd.transcripts.agents.entry import Entry, entry_id
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.values import all_words_of, part_words, words_at
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import ValuePath, parse_path

__all__ = ["FullScan", "ScanPosition", "Scanned"]

_PARTS = {
    SearchPlace.LIVE: LIVE,
    SearchPlace.EXTRACTED: STORED,
    SearchPlace.ARCHIVED: ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a search; `place` is None if the search is complete."""

    hits: list[SearchHit]
    place: ScanPosition | None
    scanned: int
    total: int


@dataclass(slots=True)
class FullScan:
    """One search through all text; with `only`, through the stored originals of one session.

    Args:
        with_transcript: with `only`, search the session's own lines, too.
        progress: called with the bytes searched so far and the total.
        stopping: called after each piece of about 1 MB; if it returns True, the search pauses.
        failed: called for files that cannot be read; the search continues with the others.
    """

    layout: Layout
    words: str
    agent: str | None = None
    only: SessionName | None = None
    with_transcript: bool = False
    wanted: SearchFilter = NO_FILTER
    limit: int = 20
    progress: Callable[[int, int], object] = lambda _done, _of: None
    stopping: Callable[[], bool] = lambda: False
    failed: Callable[[SessionName, BsdError], object] = lambda _name, _why: None
    _hits: dict[tuple[SessionName, str | int], SearchHit] = field(init=False, default_factory=dict)
    _formats: dict[SessionName, TranscriptFormat | None] = field(init=False, default_factory=dict)
    _written_at: dict[SessionName, float | None] = field(init=False, default_factory=dict)

    def run(self, position: ScanPosition | None = None) -> Scanned:
        """Search until `limit` hits are found, `stopping` returns True, or all text is read.

        `position`: the `place` of an earlier result, to continue from. Raises Invalid.
        """
        wanted = WantedSessions(self.layout, self.agent, self.wanted)
        alone = self.only or self.wanted.session
        if self.only is None and alone is not None and not self._is_wanted(alone, wanted):
            return Scanned([], None, 0, 0)
        usual = LIVE_AND_ARCHIVED if self.wanted.place is None else _PARTS.get(self.wanted.place)
        reader = StoredLineReader(
            self.layout,
            self.agent,
            () if alone is None else (alone,),
            self.progress,
            lambda: len(self._hits) >= self.limit or self.stopping(),
            self.failed,
            STORED_AND_ARCHIVED
            if self.only and not self.with_transcript
            else usual or LIVE_AND_ARCHIVED,
            self.wanted.of_gone,
            wanted.has,
            wanted.has_gone,
        )
        with closing(Matcher(self.words)) as matcher:
            came_to = reader.run(partial(self._look, matcher), position)
        is_over = came_to.scanned == came_to.total
        hits = list(self._hits.values())
        return Scanned(hits, None if is_over else came_to, max(came_to.scanned, 0), came_to.total)

    def _is_wanted(self, session: SessionName, wanted: WantedSessions) -> bool:
        """Return True if the session that the filter names meets the filter's other conditions."""
        is_gone = is_deleted(self.layout, session)
        if self.wanted.of_gone not in (None, is_gone):
            return False
        if not is_gone:
            with suppress(NotFound, FileNotFoundError):
                return wanted.has(session, stat_transcript(self.layout, session))
            return False
        copies = (copy for copy in deleted_sessions(self.layout, session.agent))
        directories = (copy.working_directory for copy in copies if copy.name == session)
        return wanted.has_gone(session, next(directories, None))

    def _look(self, matcher: Matcher, lines: StoredLines) -> int | None:
        """Search lines; return where the search goes on if enough is found before their end."""
        if lines.is_stored:
            if any(matcher.candidates(lines.data)):
                self._look_at_stored(matcher, lines)
            return None
        fmt = lines.format
        for start, end in matcher.candidates(lines.data):
            index = lines.index + lines.data.count(b"\n", 0, start)
            entry = parse_entry(lines.data[start:end])
            called = fmt.info(entry).id if fmt and entry else entry_id(entry or {})
            about = _about(entry, fmt)
            if self._fits(lines.session, *about):
                text = self._text(entry, fmt, lines.data[start:end])
                self._look_at(matcher, text, lines.session, called, index, about, away=False)
            if len(self._hits) >= self.limit:
                return end
        return None

    def _look_at_stored(self, matcher: Matcher, lines: StoredLines) -> None:
        """Search an original; if its extracted values are known, only these values."""
        entry, fmt = parse_entry(lines.data), self._format_of(lines.session)
        about = _about(entry, fmt)
        if self._fits(lines.session, *about):
            text = self._text(entry, fmt, lines.data, list(_paths(lines.keys)))
            called = lines.entry_id or entry_id(entry or {})
            self._look_at(matcher, text, lines.session, called, lines.index, about, away=True)

    def _fits(self, name: SessionName, role: str | None, time: float | None) -> bool:
        """Return whether an entry meets the conditions; without a time, that of its file counts."""
        if time is None and (self.wanted.since, self.wanted.until) != (None, None):
            time = self._written(name)
        return self.wanted.fits(role, time)

    def _written(self, name: SessionName) -> float | None:
        """Return when a session was last written to (epoch seconds), or the copy of a gone one."""
        if name not in self._written_at:
            self._written_at.clear()
            self._written_at[name] = None
            with suppress(BsdError, OSError), open_or_snapshot(self.layout, name) as source:
                self._written_at[name] = source.identity.mtime_ns / 1e9
        return self._written_at[name]

    def _text(
        self,
        entry: Entry | None,
        fmt: TranscriptFormat | None,
        raw: bytes,
        only: list[ValuePath] | None = None,
    ) -> str:
        """Return the searched text of a line; if `only` has paths, the text of these values."""
        if (part := self.wanted.part) is not None:
            return part_words(entry, fmt, part, only or None) if entry and fmt else ""
        if entry is None:
            return raw.decode("utf-8", "replace")
        return words_at(entry, only) if only else all_words_of(entry)

    def _format_of(self, name: SessionName) -> TranscriptFormat | None:
        """Return the format of a session, which may be deleted; None if it is not known."""
        if name not in self._formats:
            self._formats.clear()  # sessions are read one after the other
            self._formats[name] = None
            with suppress(BsdError, OSError), open_or_snapshot(self.layout, name) as source:
                self._formats[name] = format_of(source, program_of(self.layout, name.agent))
        return self._formats[name]

    def _look_at(
        self,
        matcher: Matcher,
        text: str,
        name: SessionName,
        entry: str | None,
        index: int,
        about: tuple[str | None, float | None],
        *,
        away: bool,
    ) -> None:
        entry = None if entry is None else indexable(entry)
        key = (name, entry or index)
        if key in self._hits or (snippet := matcher.snippet(text)) is None:
            return
        where: Literal["transcript", "extracted"] = "extracted" if away else "transcript"
        self._hits[key] = SearchHit(name, entry, index, where, snippet, 0.0, *about)


def _about(entry: Entry | None, fmt: TranscriptFormat | None) -> tuple[str | None, float | None]:
    """Return the role and the time (epoch seconds) of an entry; None for each if not known."""
    if entry is None or fmt is None:
        return None, None
    info = fmt.info(entry)
    role = info.role if info.role in ROLES.values() else None
    return role, None if info.time_ms is None else info.time_ms / 1000


def _paths(keys: Iterable[str]) -> Iterator[ValuePath]:
    for key in keys:
        with suppress(ValueError):
            yield parse_path(key)
