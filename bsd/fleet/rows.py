"""The rows that a session gives to the catalogue and to Parquet files: facts, and never its text.

Both are made from the same rows, by the same reader, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """An entry of a session. Sizes are bytes, times epoch seconds, costs US dollars.

    A call is an entry with `model` and tokens: one answer of a provider.
    """

    line: int  # number of the line in the session
    digest: bytes  # 16 bytes that change with the line
    entry: str | None  # its id, where the program gives one
    time: float
    role: str | None
    tool: str | None  # the tool whose call or result it is
    size: int  # of its line as it stands in the session
    tokens: int  # estimated, of its values in context
    model: str | None = None
    provider: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    extracted_at: float | None = None  # when its values left the session
    extracted_size: int = 0  # of the original line
    saved: int = 0  # bytes by which the line is shorter now
    stored: bytes | None = None  # SHA-256 of the original line in the store
    text: str | None = None  # its words, only for the catalogue, and only if it wants them


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session. Sizes are bytes, times epoch seconds, costs US dollars."""

    agent: str
    session: str
    program: str
    title: str | None
    directory: str | None  # its first working directory
    parent: str | None
    created: float | None
    updated: float
    size: int
    lines: int
    models: tuple[str, ...]
    calls: int = 0  # answers of a provider
    cost: float = 0.0  # of these calls
    saved: int = 0  # bytes by which its lines are shorter now
    deleted_at: float | None = None  # when its program deleted it; a copy is in the archive

    @property
    def name(self) -> str:
        """Its name: AGENT/SESSION."""
        return f"{self.agent}/{self.session}"
