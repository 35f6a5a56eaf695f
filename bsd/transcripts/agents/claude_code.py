"""Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, and how it tells that it is at work.

Every line is an object with a `type`; one block of a message is a line, and what ties lines
together is `uuid` and `parentUuid`. Lines without a `uuid` are the program's own notes. Thinking is
never touched, nor what sums up a conversation, nor what the program adds to it by itself, nor
reports of background tasks, nor a last turn of which nothing says that it has come to its end.

Subagents write `<session>/subagents/agent-<id>.jsonl` beside it. A process that continues one reads
that file and begins with another prompt, so the turn it has ended with is as any other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.processes import alive
from bsd.transcripts.agents.entry import Entry, entry_time_ms, first_entries, message_of, text_of
from bsd.transcripts.agents.format import (
    TIES,
    EntryInfo,
    NotOurs,
    Rank,
    Shape,
    Title,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    named,
    texts_in,
)
from bsd.transcripts.agents.page_size import PageSize
from bsd.transcripts.agents.program import (
    ENDING,
    SYNC_COPY,
    AgentProgram,
    Process,
    SourceKind,
    directory_below,
    is_sync_copy,
)
from bsd.transcripts.agents.values import calls_in, leaf_values, result_values, text_value
from bsd.transcripts.spans import ValuePath

_CONTENT = ("message", "content")
_CALLS = {"tool_use": "input"}
_MESSAGES = ("user", "assistant")
_MEDIA = ("image", "document")
_RENEWING = "1."  # versions
# What it notes when a turn has come to its end; older versions do not say so in the answer.
_ENDS = ("turn_duration", "stop_hook_summary")

# Lines that say how the session is called, and which of them it goes by itself.
_NAMES = {
    "agent-name": ("agentName", Rank.GIVEN),
    "custom-title": ("customTitle", Rank.GIVEN),
    "ai-title": ("aiTitle", Rank.MADE),
    "summary": ("summary", Rank.SUMMARY),
}
# Whole messages in a person's name that older versions do not mark as the program's own.
_NOT_TYPED = re.compile(
    r"(?:Caveat: The messages below were|\[Request interrupted by user"
    r"|This session is being continued from a previous conversation).*",
    re.DOTALL,
)

# How a background task's report begins. On resume the program looks for it in the texts of all user
# lines, and sends again each report that it does not find there.
_NOTIFICATION = "<task-notification>"

# Wherever they stand: proofs, counts, and what ties things together.
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
        return EntryInfo(
            id=text_of(entry.get("uuid")),
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
            is_compaction=kept is not None,
            kept=listed,
            kept_from=first,
            kept_to=last,
            calls=calls,
            result_of=result,
        )

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
        if text_of(entry.get("uuid")) is None:
            return []
        kind = entry.get("type")
        if kind == "progress":
            return _copies(entry.get("data"), ("data",), at_least)
        if kind not in _MESSAGES:
            return []
        values: list[Value] = []
        for key, value in entry.items():  # in the order of the line
            if key == "message":
                values += _message_values(entry, message_of(entry), at_least)
            elif key == "toolUseResult":
                # One that is a text is read by the program itself.
                values += _copies(value, (key,), at_least)
        return values

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(entry.get("sessionId")) if "uuid" in entry else None
        if own is None:
            return ()
        origin = entry.get("forkedFrom")
        forked_from = origin.get("sessionId") if isinstance(origin, dict) else None
        named = (own, text_of(entry.get("requestSessionId")), text_of(forked_from))
        return tuple(filter(None, named))

    def renews_id(self, entry: Entry, was: str) -> bool:
        # These versions write a session that they resume into a new file, under new ids.
        version = text_of(entry.get("version")) or ""
        return version.startswith(_RENEWING)

    def _is_aside(self, entry: Entry) -> bool:
        """Whether a subagent was asked or did this: once, that stood among a session's lines."""
        return entry.get("isSidechain") is True

    def _turn(self, entry: Entry, kind: str, *, goes_on: bool, aside: bool) -> Turn:
        """Say what a line does to its turn."""
        if goes_on:
            return Turn.OPEN
        if aside:
            return Turn.NONE
        if kind == "system" and entry.get("subtype") in _ENDS:
            return Turn.CLOSES
        if kind == "assistant" and message_of(entry).get("stop_reason") == "end_turn":
            return Turn.CLOSES
        is_prompt = kind == "user" and entry.get("isMeta") is not True
        return Turn.STARTS if is_prompt else Turn.NONE


class ClaudeCodeSubagent(ClaudeCode):
    """The same lines, in the file of a subagent."""

    def _is_aside(self, entry: Entry) -> bool:  # here all is said to be
        return False


def _result_of(message: Entry) -> str | None:
    """The call that a user's message answers, if it is an answer."""
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


# Of what was before a compaction: the entries that it lists, and the two ends of what it keeps.
_Kept = tuple[tuple[str, ...], str | None, str | None]


def _kept_by(boundary: Entry) -> _Kept | None:
    """What stays in context; None: the boundary says so in a form that is not known.

    Then it is as if nothing had been taken out of context. The list counts where there is one, as
    it does for the program; versions before it name the two ends.
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
    # What the program wrote itself is its own business: summaries, caveats, reminders.
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
                values += result_values(block.get("content"), (*path, "content"), "text", _media)
            case "thinking" if text := text_of(block.get("thinking")):
                values.append(text_value((*path, "thinking"), text, "thinking", fixed=True))
            case "text" if text := text_of(block.get("text")):
                values.append(text_value((*path, "text"), text, type_, fixed=own))
            case _ if not own:
                values += _media(block, path, type_)
    return values


def _is_notification(entry: Entry, message: Entry) -> bool:
    """True if a user line reports on a background task; old versions do not say so in `origin`."""
    if entry.get("type") != "user":
        return False
    origin = entry.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "task-notification":
        return True
    return any(_NOTIFICATION in text for text in texts_in(message.get("content")))


def _media(block: Entry, path: ValuePath, type_: str | None) -> list[Value]:
    source = block.get("source")
    data = text_of(source.get("data")) if isinstance(source, dict) else None
    if block.get("type") not in _MEDIA or data is None:
        return []
    # The whole block leaves: a placeholder is not valid base64.
    return [Value(path, Shape.BLOCK, type_, display=False, length=len(data))]


def _copies(tree: Any, path: ValuePath, at_least: int) -> list[Value]:
    """What only the program's own page shows: copies of results, the course of things."""
    return _apart(leaf_values(tree, path, "tool_result", at_least, display=True))


def _apart(values: list[Value]) -> list[Value]:
    """Without what is never touched, at whatever depth."""
    return [value for value in values if _NEVER.isdisjoint(value.path)]


CLAUDE_CODE = ClaudeCode()
SUBAGENT = ClaudeCodeSubagent()


# --- detection ---

# So many lines of its own the program may write before the first of a conversation.
_LINES_LOOKED_AT = 400
_MESSAGES_LOOKED_AT = 20
_VERSIONS = re.compile(r"[12]\.")


def _detect(first_lines: Iterable[bytes], fmt: ClaudeCode) -> TranscriptFormat | NotOurs:
    """Tell a session by its first messages: a single one that is not as we know it is enough."""
    known = 0
    for entry in first_entries(first_lines, _LINES_LOOKED_AT):
        if not isinstance(kind := entry.get("type"), str):
            return NotOurs("not a Claude Code session: a line has no type")
        if kind in _MESSAGES:
            if what := _unknown(entry, kind) or (fmt is SUBAGENT and _not_a_subagents(entry)):
                return NotOurs(f"a Claude Code session of unknown form: {what}")
            known += 1
            if known == _MESSAGES_LOOKED_AT:
                break
    return fmt if known else NotOurs("no Claude Code session, or one without messages")


def _unknown(entry: Entry, kind: str) -> str | None:
    """What about a message is not as in the versions that are known; None if nothing is."""
    message, parent = message_of(entry), entry.get("parentUuid", 0)
    if text_of(entry.get("uuid")) is None or text_of(entry.get("sessionId")) is None:
        return "a message without uuid or sessionId"
    if parent is not None and not isinstance(parent, str):
        return "a message without parentUuid"
    if message.get("role") != kind or not isinstance(message.get("content"), (str, list)):
        return "a message without role or content"
    version = entry.get("version")
    if not isinstance(version, str) or not _VERSIONS.match(version):
        return f"version {version!r:.40}"
    return None


def _not_a_subagents(entry: Entry) -> str | None:
    if entry.get("isSidechain") is True and text_of(entry.get("agentId")) is not None:
        return None
    return "a subagent's message without isSidechain or agentId"


# --- directories: projects/<project>/<session>.jsonl, sessions/<pid>.json beside projects/ ---

_SESSION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LONGEST_PROJECT = 200
_SUBAGENT = re.compile(r"agent-[A-Za-z0-9_@-]+")
_PROCESS = re.compile(r"[0-9]+\.json")
# Its setting cleanupPeriodDays, where none is set; the administrator's settings go before others.
_CLEANUP_DAYS, _MOST_DAYS = 30, 1_000_000
_MANAGED_SETTINGS = Path("/etc/claude-code/managed-settings.json")
_QUIET_SECONDS = 10.0
# Without the files that name the processes at work, nothing else tells that one is.
_UNTOLD_QUIET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClaudeCodeProject(AgentProgram):
    """One project: its sessions are an agent's."""

    projects: Path
    directory: Path
    keeps_mtime = True  # it continues the latest session, and deletes those of last month
    undeletable = "it is Claude Code's to delete, which keeps lists of its sessions"
    uncallable = (
        "Claude Code's sessions are only read when they are resumed, and nothing may be taken out"
        " of them; give it the tools with `claude mcp add --scope user bsd -- bsd mcp`"
    )

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS if self._running.is_dir() else _UNTOLD_QUIET_SECONDS

    @property
    def _running(self) -> Path:
        """Where each process says which session it has, and whether it is busy."""
        return self.projects.parent / "sessions"

    def is_session_file(self, name: str) -> bool:
        """Not so: what was put aside, copies made while compacting, subagents of old versions.

        Those lay here (`agent-<id>.jsonl`); none of them says that a turn of it has ended.
        """
        return name.endswith(ENDING) and bool(_SESSION.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        if is_sync_copy(name):
            return SYNC_COPY
        if _SUBAGENT.fullmatch(name.removesuffix(ENDING)):
            return "it is a subagent's of an old version, and does not say when its turn ends"
        return "Claude Code names its sessions by a UUID"

    def belongings(self, session: str) -> Iterator[Path]:
        """Long results of tools, what is noted of subagents, journals of workflows."""
        top = self.directory / session
        for directory, names, files in os.walk(top):
            names.sort()
            steps = Path(directory).relative_to(top).parts
            has_sessions = steps == ("subagents",) or steps[:2] == ("subagents", "workflows")
            for name in sorted(files):
                stem = name.removesuffix(ENDING)
                if not (has_sessions and stem != name and _SUBAGENT.fullmatch(stem)):
                    yield Path(directory, name)

    @property
    def deletes(self) -> str | None:
        return "Claude Code deletes sessions that are older than its setting cleanupPeriodDays"

    @property
    def kept_for_seconds(self) -> float:
        """By the shortest time that its own settings name; a project's may name another one."""
        own = self.projects.parent
        files = (own / "settings.json", own / "settings.local.json", _MANAGED_SETTINGS)
        named = [days for days in map(_cleanup_days, files) if days is not None]
        return min(named, default=_CLEANUP_DAYS) * 86_400.0

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return _detect(first_lines, CLAUDE_CODE)

    def conversations(self, entry: Entry) -> set[str]:
        session = text_of(entry.get("sessionId"))
        return {session} if session else set()

    def is_named(self, entry: Entry) -> bool:
        return "uuid" in entry

    def in_use(self, session: str) -> str | None:
        """A process that is idle has all in memory, and reopens the file for each line."""
        return self._in_use(session)

    def _in_use(self, session: str, *, by_idle: bool = False) -> str | None:
        try:
            found = [each for each in self._running.iterdir() if _PROCESS.fullmatch(each.name)]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return f"cannot tell whether it is running: {self._running}: {error.strerror}"
        return next(filter(None, (_has(path, session, by_idle=by_idle) for path in found)), None)


class ClaudeCodeSubagents(ClaudeCodeProject):
    """The subagents of one session, or of one of its workflows: an agent's sessions."""

    __slots__ = ()

    @property
    def part_of(self) -> Path | None:
        project, session, *_ = self.directory.relative_to(self.projects).parts
        return self.projects / project / f"{session}{ENDING}"

    def belongings(self, session: str) -> Iterator[Path]:  # the session's own
        yield from ()

    def is_session_file(self, name: str) -> bool:
        return name.endswith(ENDING) and bool(_SUBAGENT.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return "Claude Code names the files of its subagents agent-<id>"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return _detect(first_lines, SUBAGENT)

    def in_use(self, session: str) -> str | None:
        """A process that is idle may have some at work, and may continue any at any time."""
        return self._in_use(self.directory.relative_to(self.projects).parts[1], by_idle=True)


def _cleanup_days(settings: Path) -> float | None:
    """The cleanupPeriodDays of one file; None: it names none, or cannot be read."""
    try:
        said = json.loads(read_plain(settings, LARGEST_NOTE, follow=True))
    except (OSError, ValueError, RecursionError):
        return None
    days = said.get("cleanupPeriodDays") if isinstance(said, dict) else None
    if not isinstance(days, int) or isinstance(days, bool):
        return None
    return days if 0 < days < _MOST_DAYS else None


def _owner(projects: Path, directory: Path) -> AgentProgram:
    is_project = directory.parent == projects
    return (ClaudeCodeProject if is_project else ClaudeCodeSubagents)(projects, directory)


def _directory_of_project(path: str) -> str:
    """How it names the directory of a project's sessions; `*` and `?` stay.

    Newer versions cut a long name and add a hash, which may be any here.
    """
    name = re.sub(r"[^A-Za-z0-9*?]", "-", path)
    return name if len(name) <= _LONGEST_PROJECT else f"{name[:_LONGEST_PROJECT]}-*"


def _at_work(projects: Path, process: Process) -> Iterator[Path]:
    """The session that a process says it has; what an earlier one of its number said is over."""
    try:
        path = projects.parent / "sessions" / f"{process.pid}.json"
        said = json.loads(read_plain(path, LARGEST_NOTE))
    except (OSError, ValueError, RecursionError):
        return
    session = said.get("sessionId") if isinstance(said, dict) else None
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        return
    then = str(said.get("procStart", ""))
    if process.started is not None and then.isdecimal() and int(then) != process.started:
        return
    with suppress(OSError), os.scandir(projects) as found:
        paths = [Path(each.path) / f"{session}{ENDING}" for each in found]
        yield from (path for path in paths if path.is_file())


KIND = SourceKind(
    routes=(
        (None,),
        (None, None, "subagents"),
        (None, None, "subagents", "workflows", None),
    ),
    called="projects",
    program=_owner,
    project_directory=_directory_of_project,
    at_work=_at_work,
    # It takes 500,000 characters of a tool that asks for them; its model shall have room to work.
    page_size=PageSize(most=60_000, texts=57_000, whole=60_000, as_json=False),
    title="Claude Code",
    usual_directory=directory_below("CLAUDE_CONFIG_DIR", ".claude", "projects"),
)


def _has(path: Path, session: str, *, by_idle: bool) -> str | None:
    """Why a session counts as in use by a process, by what it says of itself."""
    if not alive(int(path.stem)):
        return None
    try:
        said = json.loads(read_plain(path, LARGEST_NOTE))
    except FileNotFoundError:  # it has just ended
        return None
    except (OSError, ValueError, RecursionError):
        return f"cannot tell whether it is running: {path} cannot be read"
    if not isinstance(said, dict):
        return f"cannot tell whether it is running: {path} is not as expected"
    other = isinstance(said.get("sessionId"), str) and said["sessionId"] != session
    if other:
        return None
    if said.get("status") != "idle":
        return f"process {path.stem} is busy with it"
    return f"process {path.stem} may go on with it" if by_idle else None
