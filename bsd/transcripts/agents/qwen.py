"""Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`, and its sub-agents.

Every line is an object with `uuid`, `parentUuid`, `sessionId` and `type`. The content of a message
is a list of parts in the form of Gemini's API. Lines of type `system` are the program's own notes,
and stand in the same chain of parents. `toolCallResult.resultDisplay` is the copy of a result that
the program's own page shows; `ui_telemetry` repeats arguments and texts of answers. Neither is ever
sent. After a compaction (`chat_compression`), only the history in its line and the lines after it
are sent.

Qwen Code reads a session when it is resumed, and appends each line by path. It has no lock of a
session, except for editors that run it with its experimental writer lease. A process with a
terminal records its session in `~/.qwen/sessions/<pid>.json`; one without a terminal leaves no
sign, except that it gives its child processes the id of the session.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.locations import expand
from bsd.core.processes import alive
from bsd.transcripts.agents.entry import (
    Entry,
    entry_time_ms,
    first_entries,
    message_of,
    text_of,
    usage_of,
)
from bsd.transcripts.agents.format import (
    ADDED,
    PROGRAM_NOTES,
    RESULT_COPIES,
    SUMMARIES,
    TIES,
    TOKEN_COUNTS,
    CacheUse,
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
)
from bsd.transcripts.agents.parts import (
    RESPONSE,
    PartResult,
    has_signature,
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
    is_sync_copy,
)
from bsd.transcripts.agents.setup_files import (
    Addition,
    SetupCommands,
    server_and_skill,
)
from bsd.transcripts.agents.values import leaf_values
from bsd.transcripts.spans import ValuePath

_TYPES = frozenset(("user", "assistant", "tool_result", "system"))
_PARTS = ("message", "parts")
_COMPACTION = "chat_compression"
_TELEMETRY = "ui_telemetry"
_HISTORY = ("systemPayload", "compressedHistory")
# Members of telemetry that repeat content. The program reads the others again on resume.
_REPEATED = ("function_args", "response_text")
# Messages in the user's name that the program itself wrote.
_ADDED = frozenset(("notification", "cron", "goal_runtime"))
_WITHIN_A_TURN = frozenset(("mid_turn_user_message", "realtime_message"))
_NOTES = {
    _COMPACTION: SUMMARIES,
    "file_history_snapshot": "never sent: snapshots of files",
    _TELEMETRY: "never sent: records of requests",
}


class Qwen(TranscriptFormat):
    """Lines of versions 0.x."""

    name = "qwen"
    parent_key = "parentUuid"
    ties = TIES | {"uuid", "parentUuid", "sessionId", "subtype", "thoughtSignature"}
    origin_members = frozenset(("forkedFrom",))

    def info(self, entry: Entry) -> EntryInfo:
        kind = text_of(entry.get("type")) or "unknown"
        note = text_of(entry.get("subtype")) if kind == "system" else None
        message = {} if kind == "system" else message_of(entry)
        parts = message.get("parts")
        calls = part_calls(parts, _PARTS)
        result = _result(entry, parts) if kind == "tool_result" else None
        is_assistant = kind == "assistant"
        return EntryInfo(
            id=text_of(entry.get("uuid")),
            kind=note or kind,
            is_message=bool(message),
            parent=text_of(entry.get("parentUuid")),
            names_parent="parentUuid" in entry,
            is_assistant=is_assistant,
            turn=_turn(entry, kind, has_calls=bool(calls)),
            role="toolResult" if kind == "tool_result" else kind if message else None,
            time_ms=entry_time_ms(entry),
            signed_by=_signed_by(entry, parts) if is_assistant else None,
            is_compaction=note == _COMPACTION and isinstance(_history(entry), list),
            calls=calls,
            result_of=result.id or None if result else None,
            result_tool=result.name or None if result else None,
            cache=_cache_use(entry) if is_assistant else None,
        )

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        kind = entry.get("type")
        if text_of(entry.get("uuid")) is None:
            return []
        if kind == "system":
            return _values_of_note(entry, at_least)
        values: list[Value] = []
        for key, value in entry.items():  # in the order of the line
            if key == "message":
                type_ = kind if isinstance(kind, str) else None
                sent = _sent(message_of(entry).get("parts"), _PARTS, type_, at_least)
                is_added = kind == "user" and entry.get("subtype") in _ADDED
                values += [replace(one, fixed=True) for one in sent] if is_added else sent
            elif key == "toolCallResult" and isinstance(value, dict):
                shown = {"resultDisplay": value.get("resultDisplay")}
                values += leaf_values(shown, (key,), "tool_result", at_least, display=True)
        return values

    def directory(self, entry: Entry) -> str | None:
        return path_text(entry.get("cwd"))

    def title(self, entry: Entry) -> Title | None:
        payload = _payload(entry)
        if entry.get("type") == "system":
            if entry.get("subtype") != "custom_title":
                return None
            is_made = payload.get("titleSource") == "auto"
            return named(payload.get("customTitle"), Rank.MADE if is_made else Rank.GIVEN)
        if entry.get("type") != "user" or entry.get("subtype") is not None:
            return None
        if shown := text_of(payload.get("displayText")):
            return asked([shown])
        return asked(part_texts(message_of(entry).get("parts")))

    def why_unknown_form(self, entry: Entry) -> str | None:
        return _unknown_version(entry) or super().why_unknown_form(entry)

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(entry.get("sessionId")) if "uuid" in entry else None
        if own is None:
            return ()
        origin = entry.get("forkedFrom")
        forked_from = text_of(origin.get("sessionId")) if isinstance(origin, dict) else None
        return tuple(filter(None, (own, forked_from)))

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        yield from super().error_flags(entry)
        result = entry.get("toolCallResult")
        if isinstance(result, dict) and (status := text_of(result.get("status"))):
            yield ("toolCallResult", "status"), status == "error"

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        kind, note = entry.get("type"), text_of(entry.get("subtype"))
        if kind == "system":
            yield Filling((), _NOTES.get(note or "", PROGRAM_NOTES))
            return
        if "toolCallResult" in entry:
            yield Filling(("toolCallResult",), RESULT_COPIES)
        if "usageMetadata" in entry:
            yield Filling(("usageMetadata",), TOKEN_COUNTS)
        if kind == "user" and note in _ADDED:
            yield Filling(_PARTS, ADDED)

    def call_seconds(self, entry: Entry) -> tuple[str, float] | None:
        event = _payload(entry).get("uiEvent")
        if not isinstance(event, dict):
            return None
        call, duration = text_of(event.get("call_id")), event.get("duration_ms")
        if call is None or isinstance(duration, bool) or not isinstance(duration, int | float):
            return None
        return call, duration / 1000

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        told = entry.get("toolCallResult")
        if not isinstance(told, dict) or not isinstance(shown := told.get("resultDisplay"), dict):
            return None
        call, name = text_of(told.get("callId")), text_of(shown.get("subagentName"))
        return StartedSubagent(call, f"agent-{_file_name(f'{name}-{call}')}") if call else None

    def tokens_before(self, entry: Entry) -> int | None:
        told = _payload(entry).get("info")
        tokens = told.get("originalTokenCount") if isinstance(told, dict) else None
        return tokens if type(tokens) is int else None


def _file_name(agent: str) -> str:
    """Return an id of a sub-agent as it stands in the name of its file."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", agent)


def _payload(entry: Entry) -> Entry:
    payload = entry.get("systemPayload")
    return payload if isinstance(payload, dict) else {}


def _history(compaction: Entry) -> Any:
    """Return the history that a compaction's line holds: a list of contents, if it is known."""
    return _payload(compaction).get("compressedHistory")


def _result(entry: Entry, parts: Any) -> PartResult:
    """Return the result that a line holds. It may be known by `toolCallResult` alone."""
    told = entry.get("toolCallResult")
    call = text_of(told.get("callId")) if isinstance(told, dict) else None
    found = next(part_results(parts, _PARTS), PartResult("", "", (), failed=False))
    return found if found.id else found._replace(id=call or "")


def _signed_by(entry: Entry, parts: Any) -> str | None:
    return (text_of(entry.get("model")) or "") if has_signature(parts) else None


def _turn(entry: Entry, kind: str, *, has_calls: bool) -> Turn:
    """Return the effect of a line on its turn."""
    if kind == "assistant":
        return Turn.OPEN if has_calls else Turn.CLOSES
    if kind == "tool_result":
        return Turn.OPEN
    if kind == "user":
        return Turn.NONE if entry.get("subtype") in _WITHIN_A_TURN else Turn.STARTS
    return Turn.NONE


def _cache_use(entry: Entry) -> CacheUse | None:
    request = usage_of(entry)
    if request is None:
        return None
    in_use = bool(request.read or request.written)
    return CacheUse(text_of(entry.get("model")), in_use=in_use, usage=request)


def _values_of_note(entry: Entry, at_least: int) -> list[Value]:
    """List the values of a line of type `system`."""
    note, payload = entry.get("subtype"), _payload(entry)
    if note == _COMPACTION:
        return _values_of_history(_history(entry), at_least)
    event = payload.get("uiEvent")
    if note != _TELEMETRY or not isinstance(event, dict):
        return []
    repeated = {key: event[key] for key in event if key in _REPEATED}
    path = ("systemPayload", "uiEvent")
    return leaf_values(repeated, path, "tool_result", at_least, display=True)


def _values_of_history(history: Any, at_least: int) -> list[Value]:
    """List the results and pictures in the history of a compaction; its texts must stay."""
    values: list[Value] = []
    for index, content in enumerate(history if isinstance(history, list) else ()):
        if isinstance(content, dict):
            path = (*_HISTORY, index, "parts")
            values += _sent(content.get("parts"), path, None, at_least)
    return [replace(value, fixed=True) if value.type is None else value for value in values]


def _sent(parts: Any, path: ValuePath, type_: str | None, at_least: int) -> list[Value]:
    """List the values in parts that are sent; thinking and what the model has signed must stay.

    A picture in a result may leave: Qwen Code itself puts texts in place of some.
    """
    values = part_values(parts, path, type_, at_least)
    return [
        replace(
            value, fixed=value.type == "thinking" or (value.fixed and RESPONSE not in value.path)
        )
        for value in values
    ]


QWEN = Qwen()


# --- detection ---

_VERSION = re.compile(r"0\.[0-9]+\..*|unknown")
_LINES_LOOKED_AT = 400
_MESSAGES_LOOKED_AT = 20


def _detect(first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
    """Recognise a session by its first lines; a single unknown line excludes it.

    An excluded session is only read if at least one line has the known form.
    """
    why, messages, is_understood = None, 0, False
    for entry in first_entries(first_lines, _LINES_LOOKED_AT):
        problem = _misshapen(entry)
        if problem is None:
            is_understood = True
            messages += entry["type"] != "system"
            problem = _unknown_version(entry)
        why = why or problem
        if messages == _MESSAGES_LOOKED_AT or (why and is_understood):
            break
    if why is not None:
        return NotOurs(why, QWEN if is_understood else None, is_unknown_form=is_understood)
    if messages:
        return QWEN
    reads = QWEN if is_understood else None
    return NotOurs("not a session of Qwen Code, or without messages", reads)


def _misshapen(entry: Entry) -> str | None:
    """Return why a line does not have the known form; None if it has."""
    kind, message = entry.get("type"), entry.get("message")
    if kind not in _TYPES or text_of(entry.get("sessionId")) is None:
        return "not a session of Qwen Code: a line of unknown type, or without sessionId"
    parent = entry.get("parentUuid", 0)
    if text_of(entry.get("uuid")) is None or not (parent is None or isinstance(parent, str)):
        return "a session of Qwen Code of unknown form: a line without uuid or parentUuid"
    if kind != "system" and message is not None:
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list):
            return "a session of Qwen Code of unknown form: a message without parts"
    return None


def _unknown_version(entry: Entry) -> str | None:
    """Return why the version that a line states is not known; None if it is, or is not stated."""
    version = entry.get("version")
    if version is None or (isinstance(version, str) and _VERSION.fullmatch(version)):
        return None
    return f"a session of Qwen Code of unknown version {version!r:.40}"


# --- directories: projects/<project>/chats/, projects/<project>/subagents/<session>/ ---

_SESSION_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUBAGENT_NAME = re.compile(r"agent-[A-Za-z0-9_-]+")
_RECORD = re.compile(r"([0-9]+)(?:-[0-9a-f]{8})?\.json")
_PROGRAM = re.compile(r"(?:.*/)?qwen(?:-code)?(?:\.[cm]?js)?|.*/@qwen-code/qwen-code/.*")
_MOST_WORDS = 5  # of its command line; options of Node stand before its name
_SESSION_VARIABLE = "QWEN_CODE_SESSION_ID"
# A process without a terminal leaves no sign while it works.
_QUIET_SECONDS = 60.0
# Files beside a session that belong to it: `<session>.worktree.json`, ….
_BESIDE = (".worktree.json", ".pr.json", ".ledger.jsonl")


@dataclass(frozen=True, slots=True)
class QwenProject(AgentProgram):
    """The sessions of one project, which are the sessions of one agent."""

    projects: Path
    directory: Path
    quiet_seconds = _QUIET_SECONDS
    keeps_mtime = True  # it continues the latest session
    undeletable = "only Qwen Code may delete it"
    uncallable = (
        "Qwen Code reads its sessions only when they are resumed, so bsd takes no calls out of"
        " them; `bsd agents on qwen` gives its agents the tools"
    )

    def is_session_file(self, name: str) -> bool:
        return name.endswith(ENDING) and bool(_SESSION_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return SYNC_COPY if is_sync_copy(name) else "Qwen Code names its sessions by a UUID"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return _detect(first_lines)

    def belongings(self, session: str) -> Iterator[Path]:
        """Yield the session's notes on its worktree, pull request and prompts, if they exist."""
        paths = (self.directory / f"{session}{ending}" for ending in _BESIDE)
        yield from (path for path in paths if os.path.lexists(path))

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Change to the session's directory: Qwen Code finds sessions by their project."""
        place = f"cd {shlex.quote(directory)} && " if directory else ""
        return f"{place}qwen --resume {shlex.quote(session)}"

    def conversations(self, entry: Entry) -> set[str]:
        session = text_of(entry.get("sessionId"))
        return {session} if session else set()

    def is_named(self, entry: Entry) -> bool:
        return "uuid" in entry

    def in_use(self, session: str) -> str | None:
        """Return why a session counts as in use: an editor holds its writer lease.

        A process with a terminal does not count: it has all in memory, and appends by path.
        """
        lease = self.projects.parent / "tmp" / "session-writer-locks" / f"{session}.lock"
        try:
            said = json.loads(read_plain(lease, LARGEST_NOTE))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError):
            return f"cannot tell whether it is open: {lease} cannot be read"
        pid = said.get("pid") if isinstance(said, dict) else None
        if type(pid) is int and not alive(pid):
            return None
        return f"process {pid} has it open"


class QwenSubagents(QwenProject):
    """The sub-agents of one session, which are the sessions of one agent."""

    __slots__ = ()

    @property
    def part_of(self) -> Path | None:
        project, _, session = self.directory.relative_to(self.projects).parts
        return self.projects / project / "chats" / f"{session}{ENDING}"

    def is_session_file(self, name: str) -> bool:
        return name.endswith(ENDING) and bool(_SUBAGENT_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return "Qwen Code names the files of its sub-agents agent-<id>"

    def belongings(self, session: str) -> Iterator[Path]:
        path = self.directory / f"{session}.meta.json"
        if os.path.lexists(path):
            yield path

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return the command of the session that started these sub-agents."""
        return QwenProject.resume_command(self, self.directory.name, directory)

    def in_use(self, session: str) -> str | None:
        """A process with a terminal counts, even if idle: it may continue its sub-agents."""
        if why := QwenProject.in_use(self, self.directory.name):
            return why
        for record in _records(self.projects.parent / "sessions"):
            if record.session == self.directory.name and alive(record.pid):
                return f"process {record.pid} may continue it"
        return None


def _owner(projects: Path, directory: Path) -> AgentProgram:
    is_project = directory.name == "chats"
    return (QwenProject if is_project else QwenSubagents)(projects, directory)


def _directory_of_project(path: str) -> str:
    """Return the name of the directory of a project's sessions; `*` and `?` stay in a pattern."""
    return re.sub(r"[^a-zA-Z0-9*?]", "-", path)


def _at_work(projects: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions of a process: from its own record, else the one that it gives children."""
    found = [
        record.session
        for record in _records(projects.parent / "sessions")
        if record.pid == process.pid and record.start.endswith(str(process.started or ""))
    ]
    if not found and any(map(_PROGRAM.fullmatch, process.argv[:_MOST_WORDS])):
        found = [os.environ.get(_SESSION_VARIABLE, "")]
    for session in found:
        if _SESSION_NAME.fullmatch(session):
            yield from projects.glob(f"*/chats/{session}{ENDING}")


class _Record(NamedTuple):
    """A process with a terminal, as it records itself."""

    pid: int
    start: str  # ends with the clock ticks after boot
    session: str


def _records(directory: Path) -> Iterator[_Record]:
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            found = _RECORD.fullmatch(name)
            if found is None:
                continue
            with suppress(OSError, ValueError, RecursionError):
                said = json.loads(read_plain(directory / name, LARGEST_NOTE))
                if isinstance(said, dict) and (session := text_of(said.get("sessionId"))):
                    yield _Record(int(found[1]), str(said.get("procStart")), session)


def _usual_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("QWEN_RUNTIME_DIR") or environ.get("QWEN_HOME") or "~/.qwen"
    return expand(base, environ) / "projects"


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of Qwen Code."""
    directory = expand(environ.get("QWEN_HOME") or "~/.qwen", environ)
    return server_and_skill(directory, "settings.json", commands)


KIND = SourceKind(
    routes=((None, "chats"), (None, "subagents", None)),
    called="projects",
    program=_owner,
    project_directory=_directory_of_project,
    at_work=_at_work,
    title="Qwen Code",
    usual_directory=_usual_directory,
    additions=_additions,
)
