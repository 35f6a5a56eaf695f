"""Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<minute>-<id8>.jsonl`.

The sub-agents of a session lie in `chats/<session id>/<agent id>.jsonl`. `<project>` is a short
name for a working directory, which `<project>/.project_root` states.

The first line is a header. Messages have an `id`, and the last line of an id counts: a message is
written again once its calls have their results. `{"$set": {…}}` changes the header. If it has
`messages`, they replace all messages before this line; each resumed session begins with such a copy
of its whole history. `{"$rewindTo": id}` takes a message and all later ones out. Gemini CLI never
reads lines again that were replaced or taken out.

bsd never changes thoughts, parts that the model has signed, and the texts by which Gemini CLI
recognises its own messages. Gemini CLI holds a session in memory and appends lines to the file,
which it does not keep open. It has no lock, and no file shows whether it is at work.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bsd.core.files import LARGEST_NOTE, plain_stream, read_plain
from bsd.core.locations import expand
from bsd.transcripts.agents.entry import (
    Entry,
    entry_time_ms,
    first_entries,
    text_of,
    time_ms,
    usage_of,
)
from bsd.transcripts.agents.format import (
    PROGRAM_NOTES,
    CacheUse,
    EntryInfo,
    Filling,
    NotOurs,
    Rank,
    StartedSubagent,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    named,
    path_text,
)
from bsd.transcripts.agents.parts import (
    CALL,
    RESPONSE,
    part_calls,
    part_results,
    part_texts,
    part_values,
)
from bsd.transcripts.agents.program import (
    ENDING,
    SYNC_COPY,
    AgentProgram,
    Process,
    SourceKind,
    directory_below,
    is_sync_copy,
)
from bsd.transcripts.agents.setup_files import (
    Addition,
    SetupCommands,
    server_and_skill,
)
from bsd.transcripts.agents.values import leaf_values, text_value, unit_values
from bsd.transcripts.spans import ValuePath, value_at

_SET, _REWIND = "$set", "$rewindTo"
_MESSAGES: ValuePath = (_SET, "messages")
_MODEL, _USER = "gemini", "user"
_KINDS = {_MODEL: "assistant", _USER: "user"}
# Gemini CLI does not send messages of users that begin like this: they are its own, or commands.
_UNSENT = ("/", "?", "<session_context>", "<hook_context>")
_DIRECTORY = re.compile(r"\*\*Workspace Directories:\*\*\s+- (/[^\n]+)")
_COPIES = "copies of the conversation"


class Gemini(TranscriptFormat):
    """Lines of a session, whose messages are replaced by later lines."""

    name = "gemini"
    parent_key = None
    unbound_members = frozenset(("projectHash",))  # of the project's path

    def info(self, entry: Entry) -> EntryInfo:
        if _SET in entry:
            return _change(entry)
        if (rewind := text_of(entry.get(_REWIND))) is not None:
            return EntryInfo(None, "rewind", is_message=False, rewinds_to=rewind)
        if _is_header(entry):
            own = text_of(entry.get("sessionId"))
            return EntryInfo(own, "header", is_message=False, is_header=True)
        return _message(entry)

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        message, _, version = entry_id.partition("~")
        time = _CHANGED.fullmatch(entry_id)
        text = re.escape(time[1] if time and not version else message)
        return re.compile(text.replace(r"\-", "[-:]").encode("utf-8", "surrogatepass"))

    def value_name(self, entry: Entry, path: ValuePath) -> Hashable | None:
        """Return a name by ids of message and call: a value keeps it in copies of its message."""
        if path[:2] == _MESSAGES:
            message, path = value_at(entry, path[:3]), path[3:]
        else:
            message = entry
        return _name(message, path) if isinstance(message, dict) else None

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        if _SET not in entry:
            return _values(entry, (), at_least)
        return [
            value
            for index, message in enumerate(_copied(entry))
            for value in _values(message, (*_MESSAGES, index), at_least)
        ]

    def title(self, entry: Entry) -> Title | None:
        change = entry.get(_SET)
        if isinstance(change, dict):
            return named(change.get("summary"), Rank.MADE)
        return asked(part_texts(entry.get("content"))) if entry.get("type") == _USER else None

    def directory(self, entry: Entry) -> str | None:
        for message in _copied(entry)[:1]:
            for text in part_texts(message.get("content")):
                if found := _DIRECTORY.search(text):
                    return path_text(found[1].strip())
        return None

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        for index, call in enumerate(_calls(entry)):
            if (status := text_of(call.get("status"))) is not None:
                yield ("toolCalls", index, "status"), status == "error"
        for result in part_results(entry.get("content"), ("content",)):
            yield result.path, result.failed

    def fillings(self, entry: Entry) -> Iterable[Filling]:
        if _copied(entry):
            return [Filling((), _COPIES)]
        return [] if "type" in entry and "id" in entry else [Filling((), PROGRAM_NOTES)]

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        for call in _calls(entry):
            own, agent = text_of(call.get("id")), text_of(call.get("agentId"))
            if own and agent:
                return StartedSubagent(own, agent)
        return None


# --- messages, and copies of them ---

_CHANGED = re.compile(r"(?:messages|update)\.(.*)")  # id of a line with `$set`


def _is_header(entry: Entry) -> bool:
    return "id" not in entry and text_of(entry.get("sessionId")) is not None


def _copied(entry: Entry) -> list[Entry]:
    """Return the messages in a line that replaces those before it."""
    change = entry.get(_SET)
    messages = change.get("messages") if isinstance(change, dict) else None
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return []
    return messages


def _change(entry: Entry) -> EntryInfo:
    """Return the properties of a change of the header, or of all messages."""
    change = entry[_SET]
    time = text_of(change.get("lastUpdated")) if isinstance(change, dict) else None
    is_copy = isinstance(change, dict) and isinstance(change.get("messages"), list)
    kind = "messages" if is_copy else "update"
    return EntryInfo(
        id=f"{kind}.{time.replace(':', '-')}" if time else None,
        kind=kind,
        is_message=False,
        time_ms=time_ms(time),
        supersedes=is_copy,
    )


def _message(entry: Entry) -> EntryInfo:
    kind, own, calls = (
        text_of(entry.get("type")) or "unknown",
        text_of(entry.get("id")),
        _calls(entry),
    )
    result = next(part_results(entry.get("content"), ("content",)), None)
    return EntryInfo(
        # Versions of a message differ in their calls.
        id=f"{own}~{len(calls)}" if own and calls else own,
        kind="tool_result" if result else _KINDS.get(kind, kind),
        is_message=kind in _KINDS,
        is_assistant=kind == _MODEL,
        turn=_turn(kind, entry, is_result=result is not None),
        role="toolResult" if result else _KINDS.get(kind),
        time_ms=entry_time_ms(entry),
        answer=own if kind == _MODEL else None,
        version_of=own,
        calls=_tool_calls(entry, calls),
        result_of=result.id or None if result else None,
        result_tool=result.name or None if result else None,
        cache=_cache_use(entry) if kind == _MODEL else None,
    )


def _calls(message: Entry) -> list[Entry]:
    calls = message.get("toolCalls")
    known = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    return calls if known and isinstance(calls, list) else []


def _tool_calls(message: Entry, calls: list[Entry]) -> tuple[ToolCall, ...]:
    if not calls:
        return part_calls(message.get("content"), ("content",))
    return tuple(
        ToolCall(
            text_of(call.get("id")) or "",
            text_of(call.get("name")) or "",
            ("toolCalls", index),
            ("toolCalls", index, "args") if "args" in call else None,
            answered="result" in call,
        )
        for index, call in enumerate(calls)
    )


def _turn(kind: str, message: Entry, *, is_result: bool) -> Turn:
    if kind == _USER:
        if is_result:
            return Turn.OPEN
        return Turn.NONE if _is_unsent(message) else Turn.STARTS
    if kind != _MODEL:
        return Turn.NONE
    says = bool(part_texts(message.get("content")))
    return Turn.CLOSES if says and not message.get("toolCalls") else Turn.OPEN


def _is_unsent(message: Entry) -> bool:
    text = "".join(part_texts(message.get("content"))).strip()
    return message.get("type") == _USER and text.startswith(_UNSENT)


def _cache_use(message: Entry) -> CacheUse | None:
    usage, model = usage_of(message), text_of(message.get("model"))
    if usage is None and model is None:
        return None
    return CacheUse(model, in_use=usage is not None and usage.read > 0, usage=usage)


def _values(message: Entry, path: ValuePath, at_least: int) -> list[Value]:
    """List the values of a message at `path`, in the order of its members."""
    kind = text_of(message.get("type"))
    type_, display = _KINDS.get(kind or "", "system"), kind not in _KINDS
    values: list[Value] = []
    for key in message:
        here = (*path, key)
        if key == "content":
            said = part_values(message[key], here, type_, at_least, display=display)
            is_own = _is_unsent(message)
            values += [
                replace(value, fixed=True) if is_own or value.type == "thinking" else value
                for value in said
            ]
        elif key == "displayContent":
            values += part_values(message[key], here, type_, at_least, display=True)
        elif key == "thoughts":
            values += _thoughts(message[key], here)
        elif key == "toolCalls":
            for index, call in enumerate(_calls(message)):
                values += _call_values(call, (*here, index), at_least)
    return values


def _thoughts(thoughts: Any, path: ValuePath) -> list[Value]:
    return [
        text_value((*path, index, "description"), text, "thinking", fixed=True)
        for index, thought in enumerate(thoughts if isinstance(thoughts, list) else ())
        if isinstance(thought, dict) and (text := text_of(thought.get("description")))
    ]


def _call_values(call: Entry, path: ValuePath, at_least: int) -> list[Value]:
    values: list[Value] = []
    for key in call:
        here = (*path, key)
        if key == "args":
            values += leaf_values(call[key], here, "tool_call", at_least)
        elif key == "result":
            values += part_values(call[key], here, "tool_result", at_least)
        elif key == "resultDisplay":
            values += unit_values(call[key], here, "tool_result", at_least, display=True)
        elif key == "description":
            values += unit_values(call[key], here, "tool_call", at_least, display=True)
    return values


def _name(message: Entry, path: ValuePath) -> Hashable | None:
    """Return a name for a value that is the same wherever Gemini CLI copies it.

    Arguments and results of calls are named by the ids of the calls, since they stand several times
    in their own message and in the next one, and in the copies of both. Texts are named by the
    message and by their number in it, without thoughts.
    """
    for at, step in enumerate(path):
        if step in (CALL, RESPONSE):
            call = value_at(message, (*path[: at + 1], "id"))
            member, *below = path[at + 1 :] or (None,)
            return (member, call, tuple(below)) if text_of(call) else None
    own, calls = text_of(message.get("id")), path[:1] == ("toolCalls",)
    if calls and len(path) > 2:
        call = value_at(message, (*path[:2], "id"))
        return (path[2], call, path[3:]) if text_of(call) else None
    if path[:1] != ("content",) or own is None:
        return None
    parts = message.get("content")
    if not isinstance(parts, list) or len(path) < 2 or not isinstance(path[1], int):
        return "content", own, 0
    return "content", own, path[1] - sum(not _is_said(part) for part in parts[: path[1]])


def _is_said(part: Any) -> bool:
    return not (isinstance(part, dict) and (part.get("thought") or CALL in part))


GEMINI = Gemini()


# --- files ---

_SESSION = re.compile(r"session-[0-9T-]+-(?P<id8>[A-Za-z0-9_-]{1,8})")
_SUBAGENT = re.compile(r"[A-Za-z0-9_-]+")
_QUIET_SECONDS = 60.0
_LONGEST_HEADER = 1 << 16  # bytes
_KEPT_DAYS = 30.0
_PERIOD = re.compile(r"([0-9]{1,6})([dhwm])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "m": 30 * 86_400.0}


@dataclass(frozen=True, slots=True)
class GeminiProject(AgentProgram):
    """The sessions of Gemini CLI in one working directory, which are the sessions of one agent."""

    tmp: Path
    directory: Path
    quiet_seconds = _QUIET_SECONDS
    keeps_mtime = True  # lists of its sessions are in the order of mtime
    undeletable = "only Gemini CLI may delete it"
    uncallable = (
        "Gemini CLI holds its sessions in memory while it runs, so bsd takes no calls out of them;"
        " `bsd agents on gemini` gives its agents the tools"
    )

    def is_session_file(self, name: str) -> bool:
        if is_sync_copy(name) or not name.endswith(ENDING):
            return False
        return _SESSION.fullmatch(name.removesuffix(ENDING)) is not None

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        if is_sync_copy(name):
            return SYNC_COPY
        return "Gemini CLI names its sessions session-<time>-<id>"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return _detect(first_lines)

    def belongings(self, session: str) -> Iterator[Path]:
        if own := _session_id(self.directory / f"{session}{ENDING}"):
            project = self.directory.parent
            for top in (
                project / "logs" / f"session-{own}{ENDING}",
                project / "tool-outputs" / f"session-{own}",
                project / own,
            ):
                yield from _files(top)

    @property
    def deletes(self) -> str | None:
        if self.kept_for_seconds is None:
            return None
        return "Gemini CLI deletes sessions by its setting general.sessionRetention"

    @property
    def kept_for_seconds(self) -> float | None:
        """Return the time in the user's own settings; those of a project may differ."""
        return _kept_for(self.tmp.parent / "settings.json")

    def ids_in(self, session: str) -> tuple[str, ...]:
        found = _SESSION.fullmatch(session)
        return (session, found["id8"]) if found else (session,)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Change to the session's directory: Gemini CLI lists only the sessions of its own."""
        own = _session_id(self.directory / f"{session}{ENDING}")
        place = directory or _project_root(self.directory.parent)
        if own is None or place is None:
            return None
        return f"cd {shlex.quote(place)} && gemini --resume {shlex.quote(own)}"

    def conversations(self, entry: Entry) -> set[str]:
        own = text_of(entry.get("sessionId"))
        return {own} if own else set()

    def is_named(self, entry: Entry) -> bool:
        return GEMINI.info(entry).id is not None


class GeminiSubagents(GeminiProject):
    """The sub-agents of one session, which are the sessions of one agent."""

    __slots__ = ()

    @property
    def part_of(self) -> Path | None:
        session = self.directory.name
        found = sorted(self.directory.parent.glob(f"session-*-{session[:8]}{ENDING}"))
        sizes = [(path.stat().st_size, path) for path in found if _session_id(path) == session]
        return max(sizes)[1] if sizes else self.directory.parent / f"{session}{ENDING}"

    def is_session_file(self, name: str) -> bool:
        if is_sync_copy(name) or not name.endswith(ENDING):
            return False
        return _SUBAGENT.fullmatch(name.removesuffix(ENDING)) is not None

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return SYNC_COPY if is_sync_copy(name) else "its name is not that of a sub-agent"

    def ids_in(self, session: str) -> tuple[str, ...]:
        return (session,)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return the command of the session that started these sub-agents."""
        place = directory or _project_root(self.directory.parent.parent)
        own = self.directory.name
        return f"cd {shlex.quote(place)} && gemini --resume {shlex.quote(own)}" if place else None


def _owner(tmp: Path, directory: Path) -> AgentProgram:
    is_project = directory.name == "chats" and directory.parent.parent == tmp
    return (GeminiProject if is_project else GeminiSubagents)(tmp, directory)


def _detect(first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
    """Recognise a session by its header; the first messages must fit too."""
    entries = first_entries(first_lines)
    header = next(entries, None)
    if header is None or not _is_header(header):
        return NotOurs("not a session of Gemini CLI, or an empty one")
    fits = text_of(header.get("projectHash")) is not None and "messages" not in header
    if fits and all("id" not in entry or text_of(entry.get("type")) for entry in entries):
        return GEMINI
    return NotOurs("a session of Gemini CLI of unknown form", GEMINI, is_unknown_form=True)


def _session_id(path: Path) -> str | None:
    """Return the id of a session from its header; None if it cannot be read."""
    try:
        with plain_stream(path) as file:
            first = next(first_entries([file.readline(_LONGEST_HEADER)]), {})
    except OSError:
        return None
    own = text_of(first.get("sessionId"))
    return own if own and _SUBAGENT.fullmatch(own) else None


def _project_root(project: Path) -> str | None:
    """Return the working directory of a project's sessions."""
    with suppress(OSError):
        said = read_plain(project / ".project_root", LARGEST_NOTE)
        return path_text(said.decode("utf-8", "replace").strip())
    return None


def _files(top: Path) -> Iterator[Path]:
    """Yield a file, or the files below a directory; links are not followed."""
    if not top.is_symlink() and top.is_dir():
        for directory, names, files in os.walk(top):
            names.sort()
            yield from (Path(directory, name) for name in sorted(files))
    elif os.path.lexists(top):
        yield top


def _kept_for(settings: Path) -> float | None:
    """Return the seconds for which Gemini CLI keeps a session; None: it deletes none by age."""
    period: Any = None
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        said = json.loads(read_plain(settings, LARGEST_NOTE, follow=True))
        rule = said.get("general", {}).get("sessionRetention", {})
        if rule.get("enabled") is False:
            return None
        period = rule.get("maxAge")
    found = _PERIOD.fullmatch(period) if isinstance(period, str) else None
    return int(found[1]) * _SECONDS[found[2]] if found else _KEPT_DAYS * _SECONDS["d"]


# --- the program at work ---

# The name of its script, and of the program that runs it.
_PROGRAM = re.compile(r"(?:.*/)?gemini(?:\.[cm]?js)?|.*/gemini-cli/.*")
_CLOCKS_DIFFER_SECONDS = 5.0
_MOST_OPTIONS = 4  # of Node, before the script


def _at_work(tmp: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions of the process's directory that were written since it began.

    Gemini CLI does not say which session it has open. For each resumed session it also makes a file
    with the same id, in which it writes no message.
    """
    if process.cwd is None or process.begun is None:
        return
    if not any(map(_PROGRAM.fullmatch, process.argv[: _MOST_OPTIONS + 2])):
        return
    newest: dict[str, tuple[float, Path]] = {}
    since = process.begun - _CLOCKS_DIFFER_SECONDS
    for project in sorted(tmp.glob("*/chats")):
        root = _project_root(project.parent)
        if root is None or os.path.realpath(root) != os.path.realpath(process.cwd):
            continue
        with suppress(OSError), os.scandir(project) as found:
            for each in found:
                session = _SESSION.fullmatch(each.name.removesuffix(ENDING))
                if session and each.name.endswith(ENDING):
                    at = each.stat(follow_symlinks=False).st_mtime
                    if at >= since:
                        place = at, Path(each.path)
                        newest[session["id8"]] = max(place, newest.get(session["id8"], place))
    yield from (path for _, path in sorted(newest.values(), reverse=True))


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of Gemini CLI."""
    directory = expand(environ.get("GEMINI_CLI_HOME") or "~", environ) / ".gemini"
    return server_and_skill(directory, "settings.json", commands)


KIND = SourceKind(
    routes=((None, "chats"), (None, "chats", None)),
    called="tmp",
    program=_owner,
    at_work=_at_work,
    title="Gemini CLI",
    usual_directory=directory_below("GEMINI_CLI_HOME", "", ".gemini/tmp"),
    additions=_additions,
)
