"""Entries of Claude Code's sessions.

Every line is an object with a `type`. Each block of a message has its own line, and `uuid` and
`parentUuid` tie the lines together. Lines without a `uuid` are the program's own notes; `records`
lists the values that are extracted from lines that are never sent. bsd never changes thinking,
summaries of a conversation, texts that the program adds to it, reports of background tasks, and an
unfinished last turn. A turn ends with one of these lines: an answer whose `stop_reason` says so; an
error of the API, which the program writes in the name of the model `<synthetic>`; or a note that
the user has interrupted the turn.

A process that continues a sub-agent reads its file and begins with another prompt, so the same
rule applies to the last turn of a sub-agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from bsd.transcripts.agents.claude_code.records import (
    filling_of_line,
    is_record,
    made_of,
    record_id,
    unsent_values,
)
from bsd.transcripts.agents.claude_code.usage import cache_use
from bsd.transcripts.agents.entry import Entry, entry_time_ms, first_entries, message_of, text_of
from bsd.transcripts.agents.format import (
    ADDED,
    RESULT_COPIES,
    SUMMARIES,
    TIES,
    TOKEN_COUNTS,
    EntryInfo,
    Filling,
    NotOurs,
    Rank,
    StartedSubagent,
    Title,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    named,
    path_text,
    texts_in,
)
from bsd.transcripts.agents.values import (
    calls_in,
    embedded_values,
    leaf_values,
    result_values,
    text_value,
)
from bsd.transcripts.spans import ValuePath

_CONTENT = ("message", "content")
_CALLS = {"tool_use": "input"}
_MESSAGES = ("user", "assistant")
_RENEWING = "1."  # versions
# The notes at the end of a turn; older versions do not state it in the answer.
_ENDS = ("turn_duration", "stop_hook_summary")
# Reasons for which the model stops and the turn does not continue by itself.
_STOPS = frozenset(
    ("end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded")
)
_SYNTHETIC = "<synthetic>"  # the model of messages that the program writes in place of a model
_INTERRUPTED = "[Request interrupted by user"

# Lines that name the session: the member with the name, and its rank.
_NAMES = {
    "agent-name": ("agentName", Rank.GIVEN),
    "custom-title": ("customTitle", Rank.GIVEN),
    "ai-title": ("aiTitle", Rank.MADE),
    "summary": ("summary", Rank.SUMMARY),
}
# Messages in the user's name that older versions do not mark as the program's own.
_NOT_TYPED = re.compile(
    r"(?:Caveat: The messages below were|\[Request interrupted by user"
    r"|This session is being continued from a previous conversation).*",
    re.DOTALL,
)

# Members of records of requests, which the program keeps although their parts have left.
_REQUEST_HASHES = frozenset(("hash", "shapeHash", "requestDigest"))
# The beginning of a background task's report. On resume, the program searches the texts of all user
# lines, and sends each report again that it does not find there.
_NOTIFICATION = "<task-notification>"

# Never extracted at any depth: signatures, counts, and ids that tie entries together.
_NEVER = frozenset(
    (
        *("uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "agentId"),
        *("sourceToolAssistantUUID", "parentToolUseID", "toolUseID", "messageId", "requestId"),
        *("signature", "encrypted_content", "usage"),
    )
)


class ClaudeCode(TranscriptFormat):
    """Lines of versions 1 and 2."""

    name = "claude-code"
    parent_key = "parentUuid"
    ties = TIES | {"uuid", "parentUuid", "logicalParentUuid", "sessionId"}
    origin_members = frozenset(("forkedFrom",))

    def why_unknown_form(self, entry: Entry) -> str | None:
        kind = entry.get("type")
        why = None
        if kind in _MESSAGES:
            why = self.misshapen(entry, kind) or _unknown_version(entry)
        elif is_record(kind):
            entry = {key: entry[key] for key in entry if key not in _REQUEST_HASHES}
        why = why or super().why_unknown_form(entry)
        return f"{_UNKNOWN}: {why}" if why else None

    def misshapen(self, entry: Entry, kind: str) -> str | None:
        """Return the part of a message that does not have the known form; None: all parts have."""
        return _misshapen(entry, kind)

    def info(self, entry: Entry) -> EntryInfo:
        kind = text_of(entry.get("type")) or "unknown"
        message = message_of(entry) if kind in _MESSAGES else {}
        result = _result_of(message) if kind == "user" else None
        aside = self._is_aside(entry)
        is_assistant = kind == "assistant" and not aside
        calls = calls_in(message.get("content"), _CONTENT, _CALLS) if kind == "assistant" else ()
        boundary = kind == "system" and entry.get("subtype") == "compact_boundary"
        kept = _kept_by(entry) if boundary else None
        listed, first, last = kept or ((), None, None)
        uuid, is_note = text_of(entry.get("uuid")), is_record(kind)
        return EntryInfo(
            id=record_id(entry) if uuid is None and is_note else uuid,
            kind="tool_result" if result is not None else kind,
            is_message=bool(message),
            parent=text_of(entry.get("parentUuid")),
            names_parent="parentUuid" in entry,
            is_assistant=is_assistant,
            turn=self._turn(entry, kind, goes_on=result is not None or bool(calls), aside=aside),
            role="toolResult" if result is not None else text_of(message.get("role")),
            time_ms=entry_time_ms(entry),
            signed_by=_signed_by(message) if is_assistant else None,
            answer=text_of(message.get("id")) if is_assistant else None,
            may_be_last=(bool(message) or boundary) and not aside,
            is_note=is_note,
            is_compaction=kept is not None,
            kept=listed,
            kept_from=first,
            kept_to=last,
            calls=calls,
            result_of=result,
            cache=cache_use(entry) if is_assistant else None,
        )

    def directory(self, entry: Entry) -> str | None:
        return path_text(entry.get("cwd"))

    def title(self, entry: Entry) -> Title | None:
        kind = entry.get("type")
        if isinstance(kind, str) and kind in _NAMES:
            key, rank = _NAMES[kind]
            return named(entry.get(key), rank)
        is_own = entry.get("isMeta") is True or entry.get("isCompactSummary") is True
        if kind != "user" or is_own or _result_of(message := message_of(entry)) is not None:
            return None
        return asked(texts_in(message.get("content")), _NOT_TYPED)

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        if entry.get("type") not in _MESSAGES:
            return _apart(unsent_values(entry, at_least))
        if text_of(entry.get("uuid")) is None:
            return []
        values: list[Value] = []
        for key, value in entry.items():  # in the order of the line
            if key == "message":
                values += _message_values(entry, message_of(entry), at_least)
            elif key == "toolUseResult":
                # A copy that is a text stays, since the program reads it.
                values += _copies(value, (key,), at_least)
        return values

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        return made_of(entry_id)

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(entry.get("sessionId")) if "uuid" in entry else None
        if own is None:
            return ()
        origin = entry.get("forkedFrom")
        forked_from = origin.get("sessionId") if isinstance(origin, dict) else None
        named = (own, text_of(entry.get("requestSessionId")), text_of(forked_from))
        return tuple(filter(None, named))

    def renews_id(self, entry: Entry, was: str) -> bool:
        # These versions write a resumed session into a new file, under new ids.
        version = text_of(entry.get("version")) or ""
        return version.startswith(_RENEWING)

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        yield from super().error_flags(entry)
        for index, block in enumerate(_blocks(message_of(entry))):
            if block.get("type") == "tool_result" and isinstance(
                flag := block.get("is_error"), bool
            ):
                yield (*_CONTENT, index, "is_error"), flag

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        if entry.get("type") not in _MESSAGES:
            yield Filling((), filling_of_line(entry))
            return
        message = message_of(entry)
        if "toolUseResult" in entry:
            yield Filling(("toolUseResult",), RESULT_COPIES)
        if "usage" in message:
            yield Filling(("message", "usage"), TOKEN_COUNTS)
        if entry.get("isCompactSummary") is True:
            yield Filling(_CONTENT, SUMMARIES)
        elif entry.get("isMeta") is True or _is_notification(entry, message):
            yield Filling(_CONTENT, ADDED)

    def tokens_before(self, entry: Entry) -> int | None:
        metadata = entry.get("compactMetadata")
        tokens = metadata.get("preTokens") if isinstance(metadata, dict) else None
        return tokens if type(tokens) is int else None

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        told = entry.get("toolUseResult")
        agent = text_of(told.get("agentId")) if isinstance(told, dict) else None
        call = _result_of(message_of(entry)) if agent else None
        return StartedSubagent(call, f"agent-{agent}") if call else None

    def _is_aside(self, entry: Entry) -> bool:
        """Return whether a sub-agent's line stands among the lines of a session, as it once did."""
        return entry.get("isSidechain") is True

    def _turn(self, entry: Entry, kind: str, *, goes_on: bool, aside: bool) -> Turn:
        """Return the effect of a line on its turn."""
        if not aside and _breaks_off(entry, kind):
            return Turn.BREAKS
        if goes_on:
            return Turn.OPEN
        if aside:
            return Turn.NONE
        if kind == "system" and entry.get("subtype") in _ENDS:
            return Turn.CLOSES
        if kind == "assistant" and text_of(message_of(entry).get("stop_reason")) in _STOPS:
            return Turn.CLOSES
        is_prompt = kind == "user" and entry.get("isMeta") is not True
        return Turn.STARTS if is_prompt else Turn.NONE


class ClaudeCodeSubagent(ClaudeCode):
    """The same lines in the file of a sub-agent."""

    def misshapen(self, entry: Entry, kind: str) -> str | None:
        return _misshapen(entry, kind) or _not_a_subagents(entry)

    def _is_aside(self, entry: Entry) -> bool:  # all lines have `isSidechain` there
        return False


def _breaks_off(entry: Entry, kind: str) -> bool:
    """Return whether a line reports an error of the API, or an interruption by the user."""
    message = message_of(entry)
    if kind == "assistant":
        return entry.get("isApiErrorMessage") is True or message.get("model") == _SYNTHETIC
    texts = texts_in(message.get("content")) if kind == "user" else []
    return any(text.startswith(_INTERRUPTED) for text in texts)


def _result_of(message: Entry) -> str | None:
    """Return the id of the call that a user's message answers; None if it is no answer."""
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            return text_of(block.get("tool_use_id")) or ""
    return None


def _blocks(message: Entry) -> Iterator[Entry]:
    content = message.get("content")
    if isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _signed_by(message: Entry) -> str | None:
    for block in _blocks(message):
        is_signed = block.get("type") == "redacted_thinking" or text_of(block.get("signature"))
        if is_signed:
            return text_of(message.get("model")) or ""
    return None


# Of the entries before a compaction: the listed ids, and both ends of the range that stays.
_Kept = tuple[tuple[str, ...], str | None, str | None]


def _kept_by(boundary: Entry) -> _Kept | None:
    """Return the entries that stay in context; None if the form of the boundary is unknown.

    With None, all entries count as in context. The list takes precedence, as in the program;
    earlier versions name the two ends.
    """
    metadata = boundary.get("compactMetadata")
    kept = {
        key: value
        for key, value in (metadata.items() if isinstance(metadata, dict) else ())
        if key.startswith("preserved") and value
    }
    if not kept:
        return (), None, None
    listed, segment = (kept.pop(key, None) for key in ("preservedMessages", "preservedSegment"))
    if kept:
        return None
    if listed is not None:
        ids = listed.get("uuids") if isinstance(listed, dict) else None
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            return None
        return tuple(ids), None, None
    if not isinstance(segment, dict):
        return None
    first, last = text_of(segment.get("headUuid")), text_of(segment.get("tailUuid"))
    return ((), first, last) if first and last else None


def _message_values(entry: Entry, message: Entry, at_least: int) -> list[Value]:
    role, content = message.get("role"), message.get("content")
    type_ = role if isinstance(role, str) else None
    # Texts that the program wrote itself are never extracted: summaries, caveats, reminders.
    own = (
        entry.get("isMeta") is True
        or entry.get("isCompactSummary") is True
        or _is_notification(entry, message)
    )
    if isinstance(content, str):
        return [text_value(_CONTENT, content, type_, fixed=own)] if content else []
    values: list[Value] = []
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict):
            continue
        path = (*_CONTENT, index)
        match block.get("type"):
            case "tool_use" if isinstance(block.get("input"), dict):
                values += _apart(
                    leaf_values(block["input"], (*path, "input"), "tool_call", at_least)
                )
            case "tool_result":
                inside = (*path, "content")
                values += result_values(block.get("content"), inside, "text", embedded_values)
            case "thinking" if text := text_of(block.get("thinking")):
                values.append(text_value((*path, "thinking"), text, "thinking", fixed=True))
            case "text" if text := text_of(block.get("text")):
                values.append(text_value((*path, "text"), text, type_, fixed=own))
            case _ if not own:
                values += embedded_values(block, path, type_)
    return values


def _is_notification(entry: Entry, message: Entry) -> bool:
    """Return whether a user line reports on a background task; old versions have no `origin`."""
    if entry.get("type") != "user":
        return False
    origin = entry.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "task-notification":
        return True
    return any(_NOTIFICATION in text for text in texts_in(message.get("content")))


def _copies(tree: Any, path: ValuePath, at_least: int) -> list[Value]:
    """List the values that only the program's own page shows: copies of results."""
    return _apart(leaf_values(tree, path, "tool_result", at_least, display=True))


def _apart(values: list[Value]) -> list[Value]:
    """Return the values without those that are never extracted, at any depth."""
    return [value for value in values if _NEVER.isdisjoint(value.path)]


CLAUDE_CODE = ClaudeCode()
SUBAGENT = ClaudeCodeSubagent()


# The program may write this many lines of its own before the first message: it keeps a snapshot of
# files for each step that was rewound or compacted.
_LINES_LOOKED_AT = 20_000
_MESSAGES_LOOKED_AT = 20
# In other files, this many lines are searched for messages of the known form.
_FOREIGN_LINES_LOOKED_AT = 400
_VERSIONS = re.compile(r"[12]\.")
_UNKNOWN = "a Claude Code session of unknown form"  # how the reasons for unknown forms begin


def detect(first_lines: Iterable[bytes], fmt: ClaudeCode) -> TranscriptFormat | NotOurs:
    """Recognise a session by its first messages; a single unknown message excludes it.

    An excluded session is only read if at least one message has the known form.
    """
    why, known, typed = None, 0, False
    for number, entry in enumerate(first_entries(first_lines, _LINES_LOOKED_AT)):
        kind = entry.get("type")
        if isinstance(kind, str):
            typed, problem = True, fmt.why_unknown_form(entry)
            known += kind in _MESSAGES and fmt.misshapen(entry, kind) is None
        else:
            problem = "not a Claude Code session: a line has no type"
        why = why or problem
        if known == _MESSAGES_LOOKED_AT or (why and (known or number >= _FOREIGN_LINES_LOOKED_AT)):
            break
    if why is not None:
        is_own = bool(known) or why.startswith(_UNKNOWN)
        return NotOurs(why, fmt if known else None, is_unknown_form=is_own)
    if known:
        return fmt
    return NotOurs("not a Claude Code session, or without messages", fmt if typed else None)


def _misshapen(entry: Entry, kind: str) -> str | None:
    """Return the part of a message that does not have the known form; None if all parts have."""
    message, parent = message_of(entry), entry.get("parentUuid", 0)
    if text_of(entry.get("uuid")) is None or text_of(entry.get("sessionId")) is None:
        return "a message without uuid or sessionId"
    if parent is not None and not isinstance(parent, str):
        return "a message without parentUuid"
    if message.get("role") != kind or not isinstance(message.get("content"), (str, list)):
        return "a message without role or content"
    return None


def _unknown_version(entry: Entry) -> str | None:
    version = entry.get("version")
    if isinstance(version, str) and _VERSIONS.match(version):
        return None
    return f"version {version!r:.40}"


def _not_a_subagents(entry: Entry) -> str | None:
    if entry.get("isSidechain") is True and text_of(entry.get("agentId")) is not None:
        return None
    return "a subagent's message without isSidechain or agentId"
