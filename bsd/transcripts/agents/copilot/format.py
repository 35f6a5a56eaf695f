"""Events of GitHub Copilot CLI's sessions.

Every line is `{type, data, id, timestamp, parentId}`, with `agentId` if a sub-agent's. On resume,
the program reads the lines in their order, without regard to `parentId`, and builds its requests
from prompts, answers, results and notifications. Everything else is for its own pages and accounts.

A compaction stands for everything before its start, not before its end: the program compacts while
a turn goes on. Its summary repeats the prompts of the user, as they stand in `user.message`, so
these are never extracted. bsd also never changes thinking, notifications, summaries, answers whose
blocks the program compares with a copy of them (`orderedBlocks`), and an unfinished last turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bsd.transcripts.agents.entry import Entry, Usage, entry_time_ms, first_entries, text_of
from bsd.transcripts.agents.format import (
    RESULT_COPIES,
    SETUP,
    SUMMARIES,
    TOKEN_COUNTS,
    CacheUse,
    EntryInfo,
    Filling,
    NotOurs,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    line_of_type,
    path_text,
)
from bsd.transcripts.agents.values import leaf_values, text_value, unit_values
from bsd.transcripts.spans import ValuePath, is_present, value_at

_DATA = ("data",)
_HEADER, _USER, _ANSWER = "session.start", "user.message", "assistant.message"
_CALL, _RESULT, _SYSTEM = "tool.execution_start", "tool.execution_complete", "system.message"
_NOTIFICATION, _USAGE = "system.notification", "session.usage_record"
_COMPACTING, _COMPACTED = "session.compaction_start", "session.compaction_complete"
_CLEARED = "session.context_cleared"
# Lines in which the program records a request, by the way.
_RECORDS = "model."
_KINDS = {_USER: "user", _ANSWER: "assistant", _RESULT: "tool_result", _SYSTEM: "system"}
_ROLES = {_USER: "user", _ANSWER: "assistant", _RESULT: "toolResult"}
_MESSAGES = frozenset((*_ROLES, _NOTIFICATION))
_WITH_CONTEXT = frozenset((_HEADER, "session.resume", "session.context_changed"))
_STEERING = "steering"  # a prompt that the program passes to a turn that goes on
_BREAKS = frozenset(("abort", "session.error"))
_CLOSES = frozenset(("session.task_complete", "session.shutdown"))
# Members of a result that only its own pages show.
_SHOWN = ("detailedContent", "contents", "structuredContent")

_UNSENT = "tool_result"  # type of copies that are not of one kind
_SENT = "transformedContent"  # a prompt as it is sent
# Members that fill an event in addition to its values.
_COPIES: Mapping[str, Mapping[ValuePath, str]] = {
    _USER: {(*_DATA, "content"): "never sent: copies of messages"},
    _ANSWER: {
        (*_DATA, key): "never sent: copies of thinking"
        for key in ("reasoningText", "reasoningOpaque")
    },
    _RESULT: {
        (*_DATA, "toolTelemetry"): "never sent: measurements of calls",
        **{(*_DATA, "result", key): RESULT_COPIES for key in _SHOWN},
    },
}
_FILLINGS = {
    _SYSTEM: SETUP,
    _CALL: "never sent: copies of calls",
    _COMPACTED: SUMMARIES,
    **dict.fromkeys((_USAGE, "session.shutdown", "session.usage_checkpoint"), TOKEN_COUNTS),
}
_SUBAGENTS = "never sent: sub-agents"
_REQUESTS = "never sent: records of requests"
_STEPS = "never sent: steps of the program"
_VERSION = 1


class Copilot(TranscriptFormat):
    """Events of version 1."""

    name = "copilot"
    parent_key = None

    def why_unknown_form(self, entry: Entry) -> str | None:
        if entry.get("type") == _HEADER and (why := _unfit(_data(entry))):
            return why
        return super().why_unknown_form(entry)

    def info(self, entry: Entry) -> EntryInfo:
        kind, data = text_of(entry.get("type")) or "unknown", _data(entry)
        is_aside = _is_aside(entry)
        is_message = kind in _MESSAGES
        calls = _calls(data) if kind == _ANSWER else ()
        is_compaction = not is_aside and (
            kind == _CLEARED or (kind == _COMPACTED and data.get("success") is True)
        )
        return EntryInfo(
            id=_id(entry, kind, data),
            kind=_KINDS.get(kind, kind),
            is_message=is_message,
            is_header=kind == _HEADER,
            is_assistant=kind == _ANSWER and not is_aside,
            turn=_turn(kind, data, calls=bool(calls), aside=is_aside),
            role=_ROLES.get(kind),
            time_ms=entry_time_ms(entry),
            signed_by=_signed_by(data) if kind == _ANSWER and not is_aside else None,
            may_be_last=not is_aside,
            is_note=kind.startswith(_RECORDS),
            is_compaction=is_compaction,
            kept_from=_kept_from(entry, data) if is_compaction and kind == _COMPACTED else None,
            calls=calls,
            result_of=text_of(data.get("toolCallId")) if kind == _RESULT else None,
            cache=_cache_use(data) if kind == _USAGE and not is_aside else None,
        )

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        kind, data = text_of(entry.get("type")) or "", _data(entry)
        if text_of(entry.get("id")) is None:
            return []
        if kind.startswith(_RECORDS):
            values = _record_values(data, at_least)
        elif (list_values := _VALUES.get(kind)) is not None:
            values = list_values(data, at_least)
        else:
            return []
        if not _is_aside(entry):
            return values
        # No request holds what a sub-agent wrote: the program cannot continue a sub-agent.
        return [replace(value, display=True) for value in values]

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(_data(entry).get("sessionId")) if entry.get("type") == _HEADER else None
        return (own,) if own else ()

    def title(self, entry: Entry) -> Title | None:
        if entry.get("type") != _USER or _is_aside(entry):
            return None
        content = text_of(_data(entry).get("content"))
        return asked([content]) if content else None

    def directory(self, entry: Entry) -> str | None:
        context = _data(entry).get("context") if entry.get("type") in _WITH_CONTEXT else None
        return path_text(context.get("cwd")) if isinstance(context, dict) else None

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        if entry.get("type") != _RESULT:
            return
        success = _data(entry).get("success")
        if isinstance(success, bool):
            yield (*_DATA, "success"), not success
        code = value_at(entry, (*_DATA, "shellExecution", "exitCode"))
        if type(code) is int:
            yield (*_DATA, "shellExecution", "exitCode"), code != 0

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        kind, data = text_of(entry.get("type")) or "unknown", _data(entry)
        if _is_aside(entry):
            yield Filling((), _SUBAGENTS)
        elif kind in _COPIES:
            for path, what in _COPIES[kind].items():
                if is_present(entry, path) and (kind != _USER or _SENT in data):
                    yield Filling(path, what)
        elif kind != _NOTIFICATION:
            steps = _STEPS if kind.startswith(("assistant.", "session.")) else line_of_type(kind)
            is_record = kind.startswith(_RECORDS)
            yield Filling((), _REQUESTS if is_record else _FILLINGS.get(kind, steps))

    def tokens_before(self, entry: Entry) -> int | None:
        tokens = _data(entry).get("preCompactionTokens")
        return tokens if type(tokens) is int else None


def _data(entry: Entry) -> Entry:
    data = entry.get("data")
    return data if isinstance(data, dict) else {}


def _is_aside(entry: Entry) -> bool:
    """Return whether a sub-agent's event stands among the events of the session."""
    return entry.get("agentId") is not None


def _id(entry: Entry, kind: str, data: Entry) -> str | None:
    """Return the id of an event; the start of a compaction goes by the id that its end names."""
    attempt = text_of(data.get("compactionAttemptId")) if kind == _COMPACTING else None
    return attempt or text_of(entry.get("id"))


def _kept_from(entry: Entry, data: Entry) -> str | None:
    """Return the id of the start of a compaction; events after it stay in context.

    Events of older versions do not name it. Their parent is the start if no turn went on meanwhile.
    """
    return text_of(data.get("compactionAttemptId")) or text_of(entry.get("parentId"))


def _turn(kind: str, data: Entry, *, calls: bool, aside: bool) -> Turn:
    """Return the effect of an event on its turn."""
    if calls or kind == _RESULT:
        return Turn.OPEN
    if aside:
        return Turn.NONE
    if kind == _USER:
        return Turn.OPEN if data.get("delivery") == _STEERING else Turn.STARTS
    if kind == "assistant.turn_start":
        return Turn.OPEN
    if kind in _BREAKS:
        return Turn.BREAKS
    if kind in _CLOSES or (kind == _ANSWER and _is_last_part(data)):
        return Turn.CLOSES
    return Turn.NONE


def _is_last_part(answer: Entry) -> bool:
    """Return whether no further part of an answer follows."""
    index, count = answer.get("chunkIndex"), answer.get("chunkCount")
    return type(index) is not int or type(count) is not int or index >= count - 1


def _signed_by(answer: Entry) -> str | None:
    """Return the model of an answer whose thinking is sent again with its signatures."""
    return (text_of(answer.get("model")) or "") if _blocks(answer, "blocks") else None


def _blocks(answer: Entry, key: str) -> list[Any]:
    reasoning = answer.get("reasoningBlocks")
    blocks = reasoning.get(key) if isinstance(reasoning, dict) else None
    return blocks if isinstance(blocks, list) else []


def _calls(answer: Entry) -> tuple[ToolCall, ...]:
    requests, found = answer.get("toolRequests"), []
    for index, request in enumerate(requests if isinstance(requests, list) else ()):
        if isinstance(request, dict):
            path = (*_DATA, "toolRequests", index)
            arguments = (*path, "arguments") if "arguments" in request else None
            call, name = text_of(request.get("toolCallId")), text_of(request.get("name"))
            found.append(ToolCall(call or "", name or "", path, arguments))
    return tuple(found)


def _cache_use(data: Entry) -> CacheUse | None:
    """Return the request that a record of usage reports; its input includes cached tokens."""
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return None
    sent, read, written, output = (
        _count(usage.get(key))
        for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    )
    # GitHub does not charge for tokens as the providers of the models do.
    provider = text_of(usage.get("modelProvider")) if usage.get("isByok") is True else None
    return CacheUse(
        text_of(usage.get("model")),
        in_use=bool(read or written),
        provider=provider or "github-copilot",
        usage=Usage(max(0, sent - read - written), read, written, output) if sent else None,
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value < 1 << 53 else 0


# --- values ---


def _prompt_values(data: Entry, _at_least: int) -> list[Value]:
    """List the prompt as typed, which summaries repeat, and as sent."""
    sent, values = text_of(data.get(_SENT)), []
    for key in data:  # in the order of the line
        text = text_of(data[key])
        if text and key == "content":
            is_copy = sent is not None
            values.append(text_value((*_DATA, key), text, "user", display=is_copy, fixed=True))
        elif text and key == _SENT:
            values.append(text_value((*_DATA, key), text, "user"))
    return values


def _answer_values(data: Entry, at_least: int) -> list[Value]:
    values: list[Value] = []
    is_compared = bool(_blocks(data, "orderedBlocks"))
    for key, value in data.items():
        if key == "content" and (text := text_of(value)):
            values.append(text_value((*_DATA, key), text, "assistant", fixed=is_compared))
        elif key == "toolRequests" and not is_compared:
            for call in _calls(data):
                if call.arguments is not None:
                    given = value[call.path[-1]]["arguments"]
                    values += _argument_values(given, call.arguments, "tool_call", at_least)
        elif key == "reasoningText":
            values += _display(data, (key,), _DATA, "thinking", at_least)
        elif key == "reasoningBlocks":
            for index, block in enumerate(_blocks(data, "blocks")):
                if isinstance(block, dict) and (text := text_of(block.get("thinking"))):
                    path = (*_DATA, key, "blocks", index, "thinking")
                    values.append(text_value(path, text, "thinking", fixed=True))
    return values


def _result_values(data: Entry, at_least: int) -> list[Value]:
    values: list[Value] = []
    for key, value in data.items():
        if not isinstance(value, dict):
            continue
        path = (*_DATA, key)
        if key == "result":
            for member in value:
                if member == "content" and (text := text_of(value[member])):
                    values.append(text_value((*path, member), text, "tool_result"))
                elif member in _SHOWN:
                    values += _display(value, (member,), path, "tool_result", at_least)
        elif key == "error" and (text := text_of(value.get("message"))):
            values.append(text_value((*path, "message"), text, "tool_result"))
        elif key == "toolTelemetry":
            values += leaf_values(value, path, "tool_result", at_least, display=True)
    return values


def _argument_values(
    arguments: Any, path: ValuePath, type_: str, at_least: int, *, display: bool = False
) -> list[Value]:
    """List the strings in arguments; some tools take a text in place of an object."""
    if isinstance(arguments, str):
        return unit_values(arguments, path, type_, at_least, display=display)
    return leaf_values(arguments, path, type_, at_least, display=display)


def _display(
    holder: Entry, keys: Iterable[str], path: ValuePath, type_: str, at_least: int
) -> list[Value]:
    given = {key: holder[key] for key in holder if key in keys}
    return leaf_values(given, path, type_, at_least, display=True)


def _call_values(data: Entry, at_least: int) -> list[Value]:
    path = (*_DATA, "arguments")
    return _argument_values(data.get("arguments"), path, "tool_call", at_least, display=True)


def _system_values(data: Entry, at_least: int) -> list[Value]:
    return _display(data, ("content", "contentBlocks"), _DATA, _UNSENT, at_least)


def _record_values(data: Entry, at_least: int) -> list[Value]:
    values: list[Value] = []
    for key, value in data.items():
        values += unit_values(value, (*_DATA, key), _UNSENT, at_least, display=True)
    return values


def _fixed_text(key: str) -> Callable[[Entry, int], list[Value]]:
    """Return a function that lists a text that is never extracted."""

    def list_values(data: Entry, _at_least: int) -> list[Value]:
        text = text_of(data.get(key))
        return [text_value((*_DATA, key), text, "system", fixed=True)] if text else []

    return list_values


_VALUES: Mapping[str, Callable[[Entry, int], list[Value]]] = {
    _USER: _prompt_values,
    _ANSWER: _answer_values,
    _CALL: _call_values,
    _RESULT: _result_values,
    _SYSTEM: _system_values,
    _NOTIFICATION: _fixed_text("content"),
    _COMPACTED: _fixed_text("summaryContent"),
}

COPILOT = Copilot()


# --- detection ---


def detect(first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
    """Recognise a session by its first line; all other first lines must fit too."""
    why: NotOurs | None = None
    has_header, is_understood = False, False
    for entry in first_entries(first_lines):
        problem, is_unknown = None, False
        if not _is_event(entry):
            problem = "not a session of Copilot CLI, or of an unknown form"
        elif entry["type"] == _HEADER:
            has_header = is_understood = True
            problem = _unfit(_data(entry))
            is_unknown = problem is not None
        elif not has_header:
            problem = "it does not begin with session.start, as sessions of Copilot CLI do"
            is_understood |= entry["type"] in _MESSAGES
        why = why or (NotOurs(problem, is_unknown_form=is_unknown) if problem else None)
    if why is not None:
        return replace(why, reads=COPILOT if is_understood else None)
    return COPILOT if has_header else NotOurs("not a session of Copilot CLI, or an empty one")


def _is_event(entry: Entry) -> bool:
    texts = all(text_of(entry.get(key)) for key in ("type", "id", "timestamp"))
    return texts and isinstance(entry.get("data"), dict)


def _unfit(header: Entry) -> str | None:
    """Return why the header excludes a session from edits; None if it does not."""
    version = header.get("version")
    if version != _VERSION:
        program = text_of(header.get("copilotVersion"))
        return f"a session of unknown version {version!r:.40}, by Copilot CLI {program!r:.40}"
    return None if text_of(header.get("sessionId")) else "a session of Copilot CLI without an id"
