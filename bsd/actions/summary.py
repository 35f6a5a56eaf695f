"""summarize_session: the subject of a session, by simple text rules, and its kinds of content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.session_outline import metered
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.formatting import format_duration, iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.catalog import resume_command
from bsd.maintenance.disk_use import FilesInDirectory, database_use, directory_use
from bsd.planning.session_fills import Fill
from bsd.planning.session_outline import ContextInOutline
from bsd.store.markers import stored_line
from bsd.store.originals import OriginalStore
from bsd.transcripts.agents.entry import Entry, Marker, error_text, model_of
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat, Value
from bsd.transcripts.agents.opening import database_with
from bsd.transcripts.damage import DamageCount, DamagedLines
from bsd.transcripts.reader import Transcript, parse_entry
from bsd.transcripts.spans import value_at

# Answers in runs that a timer started. No user asked for them, so a summary leaves them out.
_HEARTBEATS = (
    "heartbeat",
    "checking token",
    "context compacted",
    "compacted (",
    "tokens:",
    "token count",
    "system: [",
    "[system]",
    "you've been rate limited",
    "rate limit",
    "compacting context",
    "continue on your open tasks",
)
_ACTION = re.compile(
    r"\b(?:(?:implement|build|fix|add|deploy|refactor)(?:s|es|ed|ing)?"
    r"|(?:creat|updat|configur|integrat|optimiz)(?:e|es|ed|ing))\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_COMMIT = re.compile(r"\bgit\b[^\n|;&]*\bcommit\b")
_LONGEST = 200  # characters of each item in a list
_LOOKED_AT = 20_000  # characters of a text that are searched for actions
_MANY_CALLS, _MANY_MESSAGES = 5, 30


@dataclass(slots=True)
class SummaryFields:
    """The results of a summary; each list has the first items of its kind, without duplicates."""

    session_type: Literal["development", "tool_heavy", "long_chat", "chat"] = "chat"
    key_actions: list[str] = field(default_factory=list)
    user_requests: list[str] = field(default_factory=list)
    thinking_insights: list[str] = field(default_factory=list)
    tools_used: list[str] = field(default_factory=list)
    models_used: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    duration_estimate: str = format_duration(0)
    message_count: int = 0
    user_messages: int = 0
    meaningful_messages: int = 0
    tool_calls: int = 0
    has_git_commits: bool = False
    files_created: list[str] = field(default_factory=list)
    times: Internal[list[float]] = field(default_factory=list)  # first and last, epoch ms

    def take(self, entry: Entry, fmt: TranscriptFormat) -> None:
        """Take an entry into account."""
        info = fmt.info(entry)
        if model := model_of(entry):
            _list(self.models_used, model, 50)
        if info.time_ms is not None:
            self.times = [min([*self.times, info.time_ms]), max([*self.times, info.time_ms])]
        self.message_count += info.is_message
        values = fmt.values(entry)
        self._take_calls(entry, fmt, info)
        self._take_text(info, values)
        self._take_error(entry, fmt, info, values)

    def _take_calls(self, entry: Entry, fmt: TranscriptFormat, info: EntryInfo) -> None:
        self.tool_calls += len(info.calls)
        for call in info.calls:
            if call.name:
                _list(self.tools_used, call.name, 15)
            arguments = _arguments(entry, call)
            for text in arguments.values():
                if isinstance(text, str) and _COMMIT.search(text):
                    self.has_git_commits = True
            if path := fmt.file_written(call.name, arguments):
                _list(self.files_created, path, 8)

    def _take_text(self, info: EntryInfo, values: Iterable[Value]) -> None:
        spoken = []
        for value in values:
            if value.type == "thinking" and value.text:
                _list(self.thinking_insights, value.text, 5)
            elif value.type == info.role and value.text and not value.display:
                spoken.append(value.text)
        if info.role == "user":
            self.user_messages += 1
        text = "\n".join(spoken).strip()
        if info.role not in {"user", "assistant"} or not text or _is_heartbeat(text):
            return
        self.meaningful_messages += 1
        if info.role == "user":
            _list(self.user_requests, text, 5)
            return
        for sentence in _SENTENCE.split(text[:_LOOKED_AT]):
            if _ACTION.search(sentence):
                _list(self.key_actions, sentence, 5)

    def _take_error(
        self, entry: Entry, fmt: TranscriptFormat, info: EntryInfo, values: Iterable[Value]
    ) -> None:
        if text := error_text(entry):
            _list(self.errors, text, 3)
        elif info.kind == "tool_result" and any(flag for _, flag in fmt.error_flags(entry)):
            text = next((value.text for value in values if value.text), None)
            _list(self.errors, text or "(an error without words)", 3)

    def conclude(self) -> None:
        """Compute the results that depend on all entries."""
        if self.times:
            self.duration_estimate = format_duration(int(self.times[-1] - self.times[0]))
        if self.has_git_commits:
            self.session_type = "development"
        elif self.tool_calls > _MANY_CALLS:
            self.session_type = "tool_heavy"
        elif self.meaningful_messages > _MANY_MESSAGES:
            self.session_type = "long_chat"


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a session."""

    session_id: str
    agent: str
    summary: SummaryFields
    generated_at: str
    damaged: DamagedLines = field(default_factory=DamagedLines)
    left_alone: Annotated[
        str | None, Field(description="Why bsd does not edit the session; null: bsd edits it")
    ] = None
    resume: Annotated[
        str | None, Field(description="The command that continues it in its program")
    ] = None
    fills: Annotated[
        tuple[Fill, ...], Field(description="Its kinds of content, the largest first")
    ] = ()
    context: Annotated[
        ContextInOutline | None,
        Field(description="The content that the model is sent if the session continues"),
    ] = None
    directory: Annotated[
        tuple[FilesInDirectory, ...],
        Field(description="What fills the directory of the session's program, the largest first"),
        OMIT_EMPTY,
    ] = ()


def summarize(
    source: Transcript, fmt: TranscriptFormat, stored: OriginalStore
) -> tuple[SummaryFields, DamagedLines]:
    """Read a session and its extracted values; return the results and the damaged lines."""
    found, damaged = SummaryFields(), DamageCount()
    for line in source.lines():
        entry = parse_entry(line.raw)
        damaged.look_at(line, entry)
        if entry is not None:
            found.take(_original(line.raw, entry, fmt, stored), fmt)
    found.conclude()
    return found, damaged.lines


def summarize_session(context: ActionContext, session: SessionName) -> Summary:
    """Return the subject of a session, by simple text rules, and its kinds of content.

    The summary uses no model.

    Raises:
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
    """
    with context.reader(session) as opened:
        found, damaged = summarize(opened.transcript, opened.format, opened.store)
        at, left_alone = iso_utc(opened.now), opened.left_alone
        with metered(context, opened) as meter:
            parts = meter.parts()
    return Summary(
        session_id=session.session,
        agent=session.agent,
        summary=found,
        generated_at=at,
        damaged=damaged,
        left_alone=left_alone,
        resume=resume_command(context.layout, session),
        fills=tuple(sorted(parts.fills, key=lambda fill: -fill.bytes)),
        context=parts.context,
        directory=_directory(context.layout, session),
    )


def _directory(layout: Layout, session: SessionName) -> tuple[FilesInDirectory, ...]:
    if (database := database_with(layout, session)) is not None:
        return database_use(database)
    source = layout.source_of(session.agent)
    return directory_use(source) if source else ()


def _original(raw: bytes, entry: Entry, fmt: TranscriptFormat, stored: OriginalStore) -> Entry:
    """Return the original of an entry; if the store does not have it, the entry as it is."""
    marker = Marker.of(entry)
    line = stored_line(raw, entry, marker, fmt, stored) if marker else None
    return (parse_entry(line) if isinstance(line, bytes) else None) or entry


def _is_heartbeat(text: str) -> bool:
    lowered = text.casefold()
    return any(words in lowered for words in _HEARTBEATS)


def _list(found: list[str], text: str, most: int) -> None:
    line = " ".join(text[: 8 * _LONGEST].split())
    line = line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
    if line and len(found) < most and line not in found:
        found.append(line)


def _arguments(entry: Entry, call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call if they are an object, else an empty dict."""
    given = value_at(entry, call.arguments) if call.arguments else None
    return given if isinstance(given, dict) else {}
