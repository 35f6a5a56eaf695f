"""What the answers about sessions hold, as OpenAPI describes them; see `bsd.doors.http.models`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bsd.doors.models import Document


class Agent(Document):
    """One agent; `note` says why its sessions are not listed or not edited, if so."""

    name: str
    sessions: int
    note: str | None
    sqlite: bool


class Agents(Document):
    agents: list[Agent]


class Session(Document):
    """One session. Sizes are bytes, times ISO 8601."""

    session: str = Field(description="agent/id")
    agent: str
    id: str
    title: str | None = Field(description="How it is called, else what was first asked")
    label: str | None = Field(description="Its key in sessions.json")
    status: str | None
    parent: str | None
    size: int
    updated: str = Field(description="Time of its newest entry; of its file if none says one")
    extracted_entries: int
    extracted_bytes: int
    is_stale: bool = Field(description="Nothing was written to it for a day")
    counted: bool = Field(
        description="Whether the figures below are of the session as it is now; each is null "
        "until it was counted once"
    )
    entry_count: int | None
    messages: int | None
    tool_calls: int | None
    tool_outputs: int | None
    model: str | None = Field(description="The last one")
    models: list[str] | None
    tokens: dict[str, int] | None = Field(
        description="input, output, cache_read, cache_write, total"
    )
    created: str | None
    duration_minutes: float | None
    saved_bytes: int | None = Field(description="By which its lines are shorter than they were")


class SearchState(Document):
    """How far the index of words follows the sessions."""

    complete: bool = Field(description="Whether all sessions were read")
    waiting: int = Field(description="Sessions that are still to be read")
    problem: str | None


class Sessions(Document):
    sessions: list[Session]
    next: str | None = Field(description="The cursor of the next page")
    search: SearchState | None = Field(description="With `q`: how far the text is known")


class Hit(Document):
    """An entry with all the words; `matches` are [start, end) in the snippet's characters."""

    session: str
    entry_id: str | None
    index: int = Field(description="Line number; of extracted text: when it was taken out")
    where: Literal["transcript", "extracted"]
    snippet: str
    matches: list[list[int]]
    score: float


class Titled(Document):
    session: str
    title: str


class Found(Document):
    query: str
    sessions: list[Titled] = Field(description="Other sessions, whose titles hold all the words")
    results: list[Hit]
    search: SearchState


class SummaryFields(Document):
    session_type: Literal["development", "tool_heavy", "long_chat", "chat"]
    key_actions: list[str]
    user_requests: list[str]
    thinking_insights: list[str]
    tools_used: list[str]
    models_used: list[str]
    errors: list[str]
    duration_estimate: str
    message_count: int
    user_messages: int
    meaningful_messages: int
    tool_calls: int
    has_git_commits: bool
    files_created: list[str]


class Summary(Document):
    """What a session was about."""

    session_id: str
    agent: str
    summary: SummaryFields
    generated_at: str


class Call(Document):
    """One call of a tool."""

    id: str
    name: str


class EntryRow(Document):
    """One entry; `index` is its 0-based line number."""

    index: int
    id: str | None
    type: str
    role: str | None
    size: int
    position: int = Field(description="Messages after it")
    extracted: bool
    keys: list[str]
    extracted_size: int
    extracted_at: str | None
    extractable: bool | int | None
    restored: str | None
    hash: str
    preview: str = Field(description="The first 200 characters of its text")
    time: str | None = Field(description="When it was written, as the entry says")
    calls: list[Call]
    result_of: str | None = Field(description="Id of the call that it answers")
    tool: str | None = Field(description="Whose result it is")
    extracted_preview: str | None = Field(
        None, description="The first 200 characters of what is away; null if that is large"
    )
    unavailable: str | None = Field(None, description="Why what is away cannot be had")


class Entries(Document):
    entries: list[EntryRow]
    next: int | None = Field(description="The `from` of the next page")
    previous: int | None = Field(description="The `before` of the page before this one")


class SessionDetail(Session):
    """A session with the first page of its entries."""

    children: list[str] = Field(description="What would be deleted with it, all generations")
    entries: list[EntryRow]
    next: int | None
    previous: int | None


class EntryDocument(Document):
    """A whole entry, numbers as they are spelled, for somebody to edit."""

    entry_id: str | None
    index: int
    seen: str = Field(description="Hash of the line; an edit may say what it was made on")
    entry: dict[str, Any]


class ExtractedContent(Document):
    """What was taken out of an entry, by key; what cannot be had is under `unavailable`."""

    entry_id: str | None
    index: int
    ref: str
    extracted_at: str | None
    size_bytes: int
    content: dict[str, Any]
    unavailable: dict[str, str]


class Meta(Document):
    """What is noted on an entry."""

    entry_id: str | None
    index: int
    extractable: bool | int | None = Field(alias="_extractable")
    restored: str | None = Field(alias="_restored")
    extracted: bool
    keys: list[str]


class Deed(Document):
    operation: int
    action: str
    at: str
    actor: str
    state: Literal["done", "undone", "partly_undone", "damaged"]
    undoes: int | None
    entries: int
    entry_ids: list[str]
    values: int
    bytes_before: int
    bytes_after: int


class HistoryList(Document):
    session: str
    operations: list[Deed] = Field(description="The newest first")
