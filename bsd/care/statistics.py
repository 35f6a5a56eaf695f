"""Figures of a session: counted while the search index reads it, and kept there (O(sessions))."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, fields

from bsd.agents.dialect import Facts, Rank, Title, better
from bsd.agents.entry import Entry, Marker, answer_of, model_of, tokens_of
from bsd.care.catalog import ListedSession
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.store.search import SearchIndex, ask
from bsd.store.search_file import Known

_STALE_SECONDS = 24 * 3600.0
_MOST_MODELS = 50


@dataclass(slots=True)
class Statistics:
    """What was counted in the lines of a session. Times are milliseconds since 1970."""

    entries: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_outputs: int = 0
    models: list[str] = field(default_factory=list)  # in order of appearance
    tokens: dict[str, int] = field(default_factory=dict)  # input, output, cache_…, total
    created_ms: float | None = None
    last_ms: float | None = None
    saved_bytes: int = 0  # by which the lines are shorter than they were
    title: str | None = None  # how the session is called by what stands in it
    title_rank: int = 0  # `bsd.agents.dialect.Rank`
    _answer: str | None = field(default=None, init=False, compare=False)  # whose tokens are counted

    def take(self, entry: Entry, facts: Facts | None, title: Title | None, size: int) -> None:
        """Count an entry; `size` is its line's bytes. A foreign dialect tells no facts."""
        self.entries += 1
        if (marker := Marker.of(entry)) is not None:
            self.saved_bytes += max(0, marker.size - size)
        if model := model_of(entry):
            self._add_model(model)
        answer = answer_of(entry)
        if answer is None or answer != self._answer:
            for word, count in tokens_of(entry).items():
                self.tokens[word] = self.tokens.get(word, 0) + count
        self._answer = answer or self._answer
        if facts is None:
            return
        self._call(title)
        self.messages += facts.is_message
        self.tool_calls += len(facts.calls)
        self.tool_outputs += facts.kind == "tool_result"
        if facts.time_ms is not None:
            self.created_ms = min(facts.time_ms, self.created_ms or facts.time_ms)
            self.last_ms = max(facts.time_ms, self.last_ms or facts.time_ms)

    def add(self, later: Statistics) -> Statistics:
        """Count what was counted in the lines that follow, too; returns itself."""
        self.entries += later.entries
        self.messages += later.messages
        self.tool_calls += later.tool_calls
        self.tool_outputs += later.tool_outputs
        self.saved_bytes += later.saved_bytes
        if later.title is not None:
            self._call(Title(later.title, Rank(later.title_rank)))
        for model in later.models:
            self._add_model(model)
        for word, count in later.tokens.items():
            self.tokens[word] = self.tokens.get(word, 0) + count
        times = [self.created_ms, later.created_ms]
        self.created_ms = min((time for time in times if time is not None), default=None)
        times = [self.last_ms, later.last_ms]
        self.last_ms = max((time for time in times if time is not None), default=None)
        return self

    def _call(self, new: Title | None) -> None:
        old = None if self.title is None else Title(self.title, Rank(self.title_rank))
        if new is not None and better(old, new) is new:
            self.title, self.title_rank = new

    def _add_model(self, model: str) -> None:
        if model not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(model)

    def dumps(self) -> str:
        # In ASCII: a model's name may be any text.
        return json.dumps({name: getattr(self, name) for name in _KEPT})

    @classmethod
    def loads(cls, text: str) -> Statistics:
        """Read what `dumps` wrote; what another version wrote counts nothing."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(text))
        return cls()


_KEPT = tuple(one.name for one in fields(Statistics) if not one.name.startswith("_"))


def is_stale(updated: float, now: float) -> bool:
    """Whether nothing was written to a session for a day. Epoch seconds."""
    return now - updated > _STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in a session; `current` says whether in all of it, as it is now."""

    statistics: Statistics
    current: bool


def counted(layout: Layout, infos: Collection[ListedSession]) -> dict[SessionName, Counted]:
    """What is known of these sessions; none is read, and nothing is created."""

    def read(index: SearchIndex) -> dict[str, Known]:
        return index.known_among(str(info.name) for info in infos)

    known: dict[str, Known] = {}
    # A list of sessions without these figures is better than none.
    with suppress(BsdError, OSError):
        known = ask(layout.search_db, read, known)
    return {
        info.name: Counted(Statistics.loads(found.statistics), _is_of(found, info))
        for info in infos
        if (found := known.get(str(info.name))) is not None
    }


def warm(layout: Layout, infos: Collection[ListedSession]) -> dict[SessionName, Statistics]:
    """What is known of these sessions as they are now."""
    found = counted(layout, infos).items()
    return {name: one.statistics for name, one in found if one.current}


def _is_of(known: Known, info: ListedSession) -> bool:
    return known.size == info.size and abs(known.mtime / 1e9 - info.mtime) < 1e-5
