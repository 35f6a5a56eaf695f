"""The statistics of a session, which the search index counts while it reads the session."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from bsd.transcripts.agents.entry import (
    Entry,
    Marker,
    answer_of,
    cost_of,
    model_of,
    tokens_of,
)
from bsd.transcripts.agents.format import EntryInfo, Rank, Title, better

_MOST_MODELS = 50


class TakenOut(NamedTuple):
    """The sums of extracted values in a session, by the markers in its lines."""

    entries: int  # number of entries with a marker
    content: int  # bytes of their original lines
    saved: int  # bytes by which their lines are now shorter

    def __add__(self, other: object) -> TakenOut:
        """Return the sums of both."""
        if not isinstance(other, TakenOut):
            return NotImplemented
        return TakenOut(*map(sum, zip(self, other, strict=True)))


NOTHING_OUT = TakenOut(0, 0, 0)


def out_of(entry: Entry, size: int) -> TakenOut:
    """Return the sums for an entry; `size` is the length of its line in bytes."""
    marker = Marker.of(entry)
    return NOTHING_OUT if marker is None else TakenOut(1, marker.size, max(0, marker.size - size))


@dataclass(slots=True)
class Statistics:
    """The figures counted in the lines of a session. Times are epoch milliseconds."""

    entries: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_outputs: int = 0
    models: list[str] = field(default_factory=list)  # in order of appearance
    tokens: dict[str, int] = field(default_factory=dict)  # input, output, cache_…, total
    cost: float = 0.0  # US dollars, as far as the program recorded them
    created_ms: float | None = None
    last_ms: float | None = None
    extracted_entries: int = 0  # number of entries with a marker
    extracted_bytes: int = 0  # of their original lines
    saved_bytes: int = 0  # by which their lines are now shorter
    title: str | None = None  # from the content of the session
    title_rank: int = 0  # `bsd.transcripts.agents.format.Rank`
    directory: str | None = None  # the first working directory
    parent: str | None = None  # id of the session of which it is a fork
    _answer: str | None = field(default=None, init=False, compare=False)  # whose tokens are counted

    def take(self, entry: Entry, info: EntryInfo | None, title: Title | None, size: int) -> None:
        """Count an entry; `size` is its line's bytes. In a foreign format, `info` is None."""
        self.entries += 1
        out = out_of(entry, size)
        self.extracted_entries += out.entries
        self.extracted_bytes += out.content
        self.saved_bytes += out.saved
        model = model_of(entry)
        if model and model not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(model)
        answer = answer_of(entry)
        if answer is None or answer != self._answer:
            for word, count in tokens_of(entry).items():
                self.tokens[word] = self.tokens.get(word, 0) + count
            self.cost += cost_of(entry)
        self._answer = answer or self._answer
        if info is None:
            return
        old = None if self.title is None else Title(self.title, Rank(self.title_rank))
        if title is not None and better(old, title) is title:
            self.title, self.title_rank = title
        self.messages += info.is_message
        self.tool_calls += len(info.calls)
        self.tool_outputs += info.kind == "tool_result"
        if info.time_ms is not None:
            self.created_ms = min(info.time_ms, self.created_ms or info.time_ms)
            self.last_ms = max(info.time_ms, self.last_ms or info.time_ms)

    def dumps(self) -> str:
        """Return the figures as ASCII JSON, since a model's name may be any text; omits zeros."""
        counted = {name: value for name in _STORED if (value := getattr(self, name))}
        return json.dumps(counted, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Statistics:
        """Read the output of `dumps`; text of another version gives empty statistics."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(text))
        return cls()


_STORED = tuple(each.name for each in fields(Statistics) if not each.name.startswith("_"))
