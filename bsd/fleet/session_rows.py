"""Reads a session, or a copy of one, into the rows of the catalogue and of Parquet files.

A session is read in parts, so that memory stays bounded, and is open only while the bytes of a part
are read, because an open file blocks a commit. Nothing here depends on where the rows go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from bsd.core.errors import NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import PriceTable, price_of
from bsd.fleet.rows import EntryFacts, SessionFacts
from bsd.maintenance.deleted_sessions import open_or_snapshot
from bsd.maintenance.indexing import file_of, guard_before, take_lines
from bsd.planning.tokens import Answers, Estimate, Meter, PresentAnswer, TextSize, size_of
from bsd.sessions.session import format_of
from bsd.store.markers import stored_line
from bsd.store.originals import Missing, SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import Snapshot
from bsd.store.statistics import Statistics, out_of
from bsd.transcripts.agents.entry import (
    MARKER,
    Entry,
    Marker,
    Usage,
    cost_of,
    model_of,
    provider_of,
    time_ms,
)
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import ROOT_KIND, program_of
from bsd.transcripts.agents.values import words_of
from bsd.transcripts.reader import InBlocks, Line, parse_entry, parse_kept

ROWS = b"1"  # changes with the meaning of a row, so that all rows are written anew
_LEAST_DETAIL = 20  # characters of a string in an object that counts as a value
_EARLIEST = 1.4e9  # epoch seconds; times before (2014) and more than a day ahead are damage
_DAY = 86_400.0
_MOST_CALLS = 500  # that wait for their results
# Characters of texts that another program has written.
_LONGEST_ID, _LONGEST_NAME, _LONGEST_TITLE, _LONGEST_PATH = 200, 120, 500, 4096


@dataclass(frozen=True, slots=True)
class Watermark:
    """The end of the part that was read; `state`: facts of earlier lines for later ones."""

    file: tuple[int, int, int, int, int]  # dev, ino, size, mtime_ns, ctime_ns
    offset: int  # bytes
    lines: int
    guard: bytes  # hash of the bytes before the offset; empty: an append has all read again
    state: str  # JSON, in ASCII


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The rows of a part of a session."""

    first: int  # number of its first line
    rows: list[EntryFacts]
    mark: Watermark  # after this part
    more: bool  # further parts follow
    fresh: bool  # its lines follow those of the watermark with which the reader began


@dataclass(frozen=True, slots=True)
class RowsOrigin:
    """A session as it is opened, and the facts of it that are not in its lines."""

    name: SessionName
    kind: str  # its program's name in the settings
    program: AgentProgram
    open: Callable[[], InBlocks]
    store: SessionStore  # the originals of its extracted values
    title: str | None = None  # by its program's list, or by the copy
    parent: str | None = None
    directory: str | None = None
    deleted_at: float | None = None


@dataclass(slots=True)
class _State:
    """The facts about the session after the lines so far."""

    statistics: Statistics = field(default_factory=Statistics)
    calls: int = 0
    cost: float = 0.0
    saved: int = 0
    time: float = 0.0  # of the last entry that has one; 0: none has
    model: str | None = None
    provider: str | None = None
    characters: float = 0.0  # per token, if measured
    tools: dict[str, str] = field(default_factory=dict)  # by the ids of calls
    answers: Answers = field(default_factory=Answers)
    inner: Answers = field(default_factory=Answers)  # of sub-agents within the session

    def dumps(self) -> str:
        numbers = {
            name: value
            for name in ("calls", "cost", "saved", "time", "model", "provider", "characters")
            if (value := getattr(self, name))
        }
        return json.dumps(
            {
                **numbers,
                "statistics": self.statistics.dumps(),
                "tools": dict(list(self.tools.items())[-_MOST_CALLS:]),
                "answers": [self.answers.present, self.inner.present],
            },
            separators=(",", ":"),
        )

    @classmethod
    def loads(cls, text: str) -> _State:
        told = json.loads(text)
        statistics = Statistics.loads(told.pop("statistics"))
        answers = (Answers(_present(each)) for each in told.pop("answers"))
        return cls(statistics, answers=next(answers), inner=next(answers), **told)


def _present(told: list[Any]) -> PresentAnswer:
    answer, usage, is_over = told
    return PresentAnswer(answer, None if usage is None else Usage(*usage), is_over)


class _Draft(NamedTuple):
    """A row without its tokens, which are estimated when the whole part has been read."""

    row: dict[str, Any]
    size: TextSize


class SessionRows:
    """Reads one session: `parts` first, then `facts`.

    Raises, in all methods: NotFound (also if it is excluded), Busy, Forbidden, LeftAlone,
    Unavailable (a damaged copy).
    """

    def __init__(self, origin: RowsOrigin, *, prices: PriceTable, text: bool = False) -> None:
        """Read a session from its origin; `of` and `of_copy` are the usual constructors.

        Args:
            origin: of the session.
            prices: for calls of which the program records no cost.
            text: give rows their words, also those of extracted values.
        """
        self.name = origin.name
        self._origin, self._prices, self._text = origin, prices, text
        self._person = ROWS + (b"t" if text else b"")
        self._fmt: TranscriptFormat | None = None
        self._state = _State()
        self._size = self._lines = 0
        self._changed = 0.0  # epoch seconds

    @classmethod
    def of(
        cls, layout: Layout, name: SessionName, *, prices: PriceTable, text: bool = False
    ) -> SessionRows:
        """Return a reader of a session of this root, or of the copy of a deleted one."""
        if layout.excluded(name):
            raise NotFound(f"session {name} is excluded")
        with open_or_snapshot(layout, name) as source:
            if isinstance(source, SnapshotReader):
                return cls.of_copy(layout, source.snapshot, prices=prices, text=text)
        program, found = program_of(layout, name.agent), layout.source_of(name.agent)
        listed = program.registry()
        entry = next(listed.find(name.session), None)
        origin = RowsOrigin(
            name,
            found.kind if found else ROOT_KIND,
            program,
            partial(open_or_snapshot, layout, name),
            SessionStore(layout, name),
            title=listed.title(name.session),
            parent=entry.parent if entry else None,
        )
        return cls(origin, prices=prices, text=text)

    @classmethod
    def of_copy(
        cls, layout: Layout, snapshot: Snapshot, *, prices: PriceTable, text: bool = False
    ) -> SessionRows:
        """Return a reader of the copy of a session that its program has deleted."""
        name = snapshot.name
        found = layout.source_of(name.agent)
        origin = RowsOrigin(
            name,
            found.kind if found else ROOT_KIND,
            program_of(layout, name.agent),
            partial(SnapshotReader, snapshot),
            SessionStore(layout, name),
            title=snapshot.title,
            parent=snapshot.parent,
            directory=snapshot.working_directory,
            deleted_at=snapshot.gone_at or snapshot.kept_at,
        )
        return cls(origin, prices=prices, text=text)

    def parts(self, since: Watermark | None = None) -> Iterator[RowsPart]:
        """Yield the rows of the session, a part at a time; nothing if it has not changed.

        Args:
            since: begin after the lines that are read already, if they are as they were.
        """
        mark = since
        if since is not None:
            with self._origin.open() as source:
                if not self._resume(since, source):
                    mark = None
                elif since.file == file_of(source.identity):
                    return
        more, fresh = True, mark is not None
        while more:
            with self._origin.open() as source:
                if mark is None or not _was_appended_to(mark, source):
                    mark, fresh, self._state = None, False, _State()
                offset, first = (mark.offset, mark.lines) if mark else (0, 0)
                self._fmt = self._fmt or format_of(source, self._origin.program)
                lines, more = take_lines(source, offset, first)
                end = offset + sum(len(line.raw) for line in lines)
                # A last line without a newline may be continued: then all is read next time.
                ended = not lines or lines[-1].raw.endswith(b"\n")
                guard = guard_before(source, end) if ended else b""
                file = file_of(source.identity)
                self._note_size(source)
            rows = self._read(lines)  # the file is closed, so this blocks no commit
            self._lines = first + len(lines)
            known = (*file[:2], end, 0, 0) if more else file
            mark = Watermark(known, end, self._lines, guard, self._state.dumps())
            yield RowsPart(first, rows, mark, more, fresh)

    def facts(self) -> SessionFacts:
        """Return the facts of the session, after `parts` has ended."""
        origin, state, name = self._origin, self._state, self.name
        told = state.statistics
        return SessionFacts(
            agent=name.agent,
            session=name.session,
            program=origin.kind,
            title=clean(origin.title or told.title, _LONGEST_TITLE),
            directory=clean(told.directory or origin.directory, _LONGEST_PATH),
            parent=clean(origin.parent or told.parent, _LONGEST_ID),
            created=self._time(told.created_ms),
            updated=self._time(told.last_ms) or self._changed,
            size=self._size,
            lines=self._lines,
            models=tuple(filter(None, (clean(each, _LONGEST_NAME) for each in told.models))),
            calls=state.calls,
            cost=state.cost,
            saved=state.saved,
            deleted_at=origin.deleted_at,
        )

    def _note_size(self, source: InBlocks) -> None:
        self._size = source.size
        self._changed = source.identity.mtime_ns / 1e9

    def _resume(self, mark: Watermark, source: InBlocks) -> bool:
        """Take over the state of a watermark; return False if it is of another version."""
        self._note_size(source)
        with suppress(ValueError, TypeError, KeyError, AttributeError, StopIteration):
            self._state, self._lines = _State.loads(mark.state), mark.lines
            return True
        return False

    def _read(self, lines: list[Line]) -> list[EntryFacts]:
        meter = Meter()
        drafts = [draft for line in lines if (draft := self._draft(line, meter)) is not None]
        estimate = meter.estimate()
        state = self._state
        if estimate.measured:
            state.characters = estimate.characters
        elif state.characters:
            estimate = estimate._replace(characters=state.characters)
        return [EntryFacts(**draft.row, tokens=_tokens(estimate, draft.size)) for draft in drafts]

    def _draft(self, line: Line, meter: Meter) -> _Draft | None:
        fmt, state, raw = self._fmt, self._state, line.raw
        entry = parse_entry(raw)
        if entry is None:
            return None
        row: dict[str, Any] = {
            "line": line.index,
            "digest": blake2b(raw, digest_size=16, person=self._person).digest(),
            "size": len(raw),
        }
        if fmt is None:  # an unknown format does not show which texts are the user's
            state.statistics.take(entry, None, None, len(raw))
            return _Draft({**row, "entry": None, "time": self._when(None), **_NOTHING}, TextSize())
        info, title = fmt.info(entry), fmt.title(entry)
        told = state.statistics
        told.directory = told.directory or fmt.directory(entry)
        told.parent = told.parent or fmt.parent_session(entry)
        told.take(entry, info, title, len(raw))
        values = fmt.values(entry, 1 if MARKER in entry else _LEAST_DETAIL)
        size = meter.follow(entry, info, values)
        if not size.messages and info.is_message and not info.may_be_last:
            size = size_of(entry, info, values)  # of a sub-agent within the session
        row |= {
            "entry": clean(info.id, _LONGEST_ID),
            "time": self._when(info.time_ms),
            "role": clean(info.role, _LONGEST_NAME),
            "tool": clean(self._tool(info), _LONGEST_NAME),
        }
        row |= self._call(entry, info, row["time"])
        row |= _extracted(entry, len(raw))
        state.saved += row.get("saved", 0)
        if self._text:
            row["text"] = words_of(entry, fmt, info, title, partial(self._original, raw, fmt))
        return _Draft(row, size)

    def _tool(self, info: EntryInfo) -> str | None:
        """Return the tool whose call or result an entry is; of several calls, the first."""
        tools = self._state.tools
        for call in info.calls:
            tools[call.id] = call.name
            if len(tools) > _MOST_CALLS:
                del tools[next(iter(tools))]
        if info.result_of is not None:
            known = tools.pop(info.result_of, None)
            return info.result_tool or known
        return info.calls[0].name if info.calls else info.result_tool

    def _call(self, entry: Entry, info: EntryInfo, at: float) -> dict[str, Any]:
        """Return the members of a row that reports the tokens of a call; else nothing."""
        state = self._state
        cache = info.cache
        state.model = (cache and cache.model) or model_of(entry) or state.model
        state.provider = (cache and cache.provider) or provider_of(entry) or state.provider
        inner = info.is_message and not info.may_be_last
        usage = (state.inner if inner else state.answers).follow(entry, info).usage
        if usage is None:
            return {}
        cost = cost_of(entry) or self._price(usage, at, cache.life_seconds if cache else None)
        state.calls += 1
        state.cost += cost or 0.0
        return {
            "model": clean(state.model, _LONGEST_NAME),
            "provider": clean(state.provider, _LONGEST_NAME),
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_tokens": usage.read,
            "cache_write_tokens": usage.written,
            "cost": cost,
        }

    def _price(self, usage: Usage, at: float, life_seconds: float | None) -> float | None:
        """Return the US dollars of a call by the prices of its model; None if it has none."""
        price = price_of(self._prices, self._state.provider, self._state.model, at)
        if price is None:
            return None
        price = price.charged_at(at)
        life, step = price.life(life_seconds), price.step(usage.prompt)
        write = life.write if life else 1.0
        sent = usage.input + price.read * usage.read + write * usage.written
        received = usage.output * price.output * (step.output if step else 1.0)
        return (sent * price.input * (step.input if step else 1.0) + received) / 1e6

    def _when(self, milliseconds: float | None) -> float:
        """Return the time of an entry; without a plausible one, that of the entry before it."""
        self._state.time = self._time(milliseconds) or self._state.time
        return self._state.time or self._changed

    def _time(self, milliseconds: float | None) -> float | None:
        latest = max(time.time(), self._changed) + _DAY
        if milliseconds is None or not _EARLIEST < milliseconds / 1000 < latest:
            return None
        return milliseconds / 1000

    def _original(self, raw: bytes, fmt: TranscriptFormat) -> Entry | None:
        """Return the original entry of a line from store or archive; None if there is none."""
        entry = parse_entry(raw)
        if entry is None or (marker := Marker.of(entry)) is None:
            return None
        line = stored_line(raw, entry, marker, fmt, self._origin.store)
        return None if isinstance(line, Missing) else parse_kept(line)


_NOTHING = {"role": None, "tool": None}


def clean(text: str | None, longest: int) -> str | None:
    """Return a text that every database holds: without NUL and lone surrogates, and cut."""
    if text is None:
        return None
    text = text[:longest].replace("\0", " ")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text or None


def _extracted(entry: Entry, size: int) -> dict[str, Any]:
    """Return the members of a row whose values are in the store; else nothing."""
    marker = Marker.of(entry) if MARKER in entry else None
    if marker is None:
        return {}
    out, at = out_of(entry, size), time_ms(marker.at)
    stored = None
    with suppress(ValueError):
        stored = bytes.fromhex(marker.hash.removeprefix("sha256:"))
    return {
        "extracted_at": at / 1000 if at is not None and _EARLIEST < at / 1000 < 2**32 else None,
        "extracted_size": out.content,
        "saved": out.saved,
        "stored": stored if stored is not None and len(stored) == 32 else None,
    }


def _tokens(estimate: Estimate, size: TextSize) -> int:
    return int(estimate.tokens(size)) if any(size) else 0


def _was_appended_to(mark: Watermark, source: InBlocks) -> bool:
    if mark.file[:2] != file_of(source.identity)[:2] or not mark.guard:
        return False
    return source.size > mark.offset and guard_before(source, mark.offset) == mark.guard


def read_rows(
    layout: Layout, name: SessionName, *, prices: PriceTable, text: bool = False
) -> Iterator[EntryFacts]:
    """Yield all rows of a session; raises as `SessionRows`."""
    for part in SessionRows.of(layout, name, prices=prices, text=text).parts():
        yield from part.rows
