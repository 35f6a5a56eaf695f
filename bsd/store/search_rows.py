"""Lines as the search index stores and finds them."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.core.layout import SessionName
from bsd.transcripts.agents.touched import TouchedFile


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A line that contains all words, its place, and the hash that identifies its text."""

    session: SessionName
    line: int
    offset: int
    digest: int
    score: float  # higher is better
    role: str | None = None
    time: float | None = None  # time of the entry; epoch seconds


@dataclass(frozen=True, slots=True)
class IndexedLine:
    """A line to be stored in the index."""

    number: int
    offset: int  # bytes
    text: str  # empty: the line has no words
    role: str | None = None
    time: int | None = None  # time of the entry; epoch seconds
    touched: tuple[TouchedFile, ...] = ()  # files that its calls name
