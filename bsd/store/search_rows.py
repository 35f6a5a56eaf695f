"""Lines as the search index holds them, and as it finds them."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.core.layout import SessionName
from bsd.transcripts.agents.touched import TouchedFile


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A line in which all words were found; where it was, and how its text is known again."""

    session: SessionName
    line: int
    offset: int
    digest: int
    score: float  # the greater the better
    role: str | None = None
    time: float | None = None  # when it was written; epoch seconds


@dataclass(frozen=True, slots=True)
class IndexedLine:
    """A line as the index holds it."""

    number: int
    offset: int  # bytes
    text: str  # empty: it has no words
    role: str | None = None
    time: int | None = None  # when it was written; epoch seconds
    touched: tuple[TouchedFile, ...] = ()  # files that its calls name
