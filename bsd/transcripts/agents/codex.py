"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, and its writer locks.

Archived threads lie in `~/.codex/archived_sessions`, all in one directory. Their files keep their
names, which tell Codex the day to which they return, so bsd treats them as sessions of that day.

Every line is `{timestamp, type, payload}` and has no id. bsd names a line by the ids that tie it to
other lines, or by its time. Lines of threads with paginated history keep their lengths. bsd never
changes reasoning, states, and messages of users and models, nor compactions that Codex may read
again, nor an unfinished last turn: a turn that is not complete, not aborted, and has not ended in
an error.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bsd.core.errors import Busy
from bsd.core.layout import SessionName
from bsd.core.locations import expand
from bsd.core.sources import ProgramArchive
from bsd.transcripts.agents.codex_directory import directory_files
from bsd.transcripts.agents.codex_lineage import continued_by, threads_files
from bsd.transcripts.agents.codex_lines import (
    BEFORE_A_PROMPT,
    call_seconds,
    fillings_of,
    started_thread,
)
from bsd.transcripts.agents.codex_locks import locked_by, open_files
from bsd.transcripts.agents.codex_values import (
    RESULTS as _RESULTS,
)
from bsd.transcripts.agents.codex_values import (
    compactions_read,
    history_values,
    picture_values,
)
from bsd.transcripts.agents.entry import (
    Entry,
    arguments_at,
    entry_time_ms,
    first_entries,
    payload_of,
    text_of,
    usage_of,
)
from bsd.transcripts.agents.format import (
    TIES,
    CacheUse,
    Continued,
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
    texts_in,
)
from bsd.transcripts.agents.program import (
    COMPRESSED,
    ENDING,
    SYNC_COPY,
    AgentProgram,
    Process,
    SourceKind,
    directory_below,
    is_sync_copy,
)
from bsd.transcripts.agents.program_locks import held, is_held
from bsd.transcripts.agents.setup_files import (
    Addition,
    SetupCommands,
    SetupPart,
    TomlTable,
    tools_skill,
)
from bsd.transcripts.agents.values import leaf_values, result_values, text_value
from bsd.transcripts.spans import ValuePath

_HEADER = "session_meta"
_PAYLOAD = ("payload",)

_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_STARTS = frozenset(("user_message", "task_started", "turn_started"))
_CLOSES = frozenset(("task_complete", "turn_complete"))
_ABORTED, _ERROR = "turn_aborted", "error"
# Errors that do not end a turn: they concern another request that the user made meanwhile.
_BESIDE_A_TURN = frozenset(("thread_rollback_failed", "active_turn_not_steerable"))
_ROLLS_BACK = "thread_rolled_back"
_ITEM = "item_completed"
_COMPACTED = "compacted"
_TURN, _USAGE = "turn_context", "token_count"

# Texts of events that are shown to users and never sent.
_SHOWN = {
    "exec_command_end": ("stdout", "stderr", "aggregated_output", "formatted_output"),
    "patch_apply_end": ("stdout", "stderr", "changes"),
    "mcp_tool_call_end": ("result",),
    "image_generation_end": ("result",),
    "user_message": ("images",),  # the message itself is sent, with its pictures
}
# Never extracted from these events, at any depth: ids that tie them to others, and pictures.
_NEVER = frozenset(("call_id", "turn_id", "data", "blob", "encrypted_content"))

# How results state the exit code of a command: in JSON after the output, or before it.
_EXIT_CODE = re.compile(
    r'"exit_code":(-?[0-9]+)|(?:Exit code:|Process exited with code) (-?[0-9]+)'
)
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9._~-]")


class Codex(TranscriptFormat):
    """Lines of threads whose history is one file, read from its beginning."""

    name = "codex"
    parent_key = None
    ties = TIES | {"ordinal"}
    tells_origin = True
    least_call_seconds = 0.01  # some versions write a call and its result together
    unbound_members = frozenset(("comp_hash",))  # of a turn's settings

    def why_unknown_form(self, entry: Entry) -> str | None:
        kind, payload = entry.get("type"), payload_of(entry)
        if (
            isinstance(kind, str)
            and kind in _KINDS
            and not (payload and text_of(entry.get("timestamp")))
        ):
            return f"{_UNKNOWN} form: a line without payload or timestamp"
        why = _unfit(payload) if kind == _HEADER else None
        return why or super().why_unknown_form(entry) or super().why_unknown_form(payload)

    def info(self, entry: Entry) -> EntryInfo:
        kind, payload = text_of(entry.get("type")) or "unknown", payload_of(entry)
        what = text_of(payload.get("type"))
        is_item = kind == "response_item"
        role = text_of(payload.get("role")) if is_item and what == "message" else None
        return EntryInfo(
            id=_id(entry, payload),
            kind=_kind(kind, what, role),
            is_message=is_item,
            is_header=kind == _HEADER,
            is_assistant=role == "assistant",
            turn=_turn(kind, what, payload),
            role="toolResult" if is_item and what in _RESULTS else role,
            time_ms=entry_time_ms(entry),
            rolls_back=_rolled_back(payload) if what == _ROLLS_BACK else 0,
            is_compaction=kind == _COMPACTED,
            version_of=kind if kind == _COMPACTED else None,
            versions_read=compactions_read(payload) if kind == _COMPACTED else 1,
            calls=_calls(payload) if is_item and what in _CALLS else (),
            result_of=text_of(payload.get("call_id")) if is_item and what in _RESULTS else None,
            cache=None if is_item else _cache_use(kind, what, entry, payload),
        )

    def directory(self, entry: Entry) -> str | None:
        return path_text(payload_of(entry).get("cwd")) if entry.get("type") == _HEADER else None

    def continues(self, entry: Entry) -> Continued | None:
        return continued_by(payload_of(entry)) if entry.get("type") == _HEADER else None

    def parent_session(self, entry: Entry) -> str | None:
        if entry.get("type") != _HEADER:
            return None
        begun = self.continues(entry)
        return begun.session if begun else text_of(payload_of(entry).get("forked_from_id"))

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        # After the last dot, the id holds the end of the text from which it was made, without
        # characters that an id cannot contain, such as the colons of a time.
        end = entry_id.rpartition(".")[2].encode("utf-8", "surrogatepass")
        between = rb"[^A-Za-z0-9._~-]*"
        return re.compile(between.join(re.escape(end[at : at + 1]) for at in range(len(end))))

    def origins(self, entry: Entry) -> tuple[str, ...]:
        if entry.get("type") != _HEADER:
            return ()
        payload = payload_of(entry)
        own = text_of(payload.get("id"))
        return tuple(filter(None, (own, text_of(payload.get("forked_from_id"))))) if own else ()

    def renews_id(self, entry: Entry, was: str) -> bool:
        """Forks have new times, and migration of a thread turns events into items."""
        payload = payload_of(entry)
        what = text_of(payload.get("type")) or text_of(entry.get("type")) or ""
        if what == _ITEM:
            return True
        by_time = _as_id(what, text_of(entry.get("timestamp")) or "")
        return was.partition(".")[0] == what and _id(entry, payload) == by_time

    def title(self, entry: Entry) -> Title | None:
        payload = payload_of(entry)
        what = text_of(payload.get("type"))
        if entry.get("type") == "event_msg":
            if what == "thread_name_updated":
                return named(payload.get("thread_name"), Rank.GIVEN)
            said = payload.get("message") if what == "user_message" else None
            return asked(texts_in(said), BEFORE_A_PROMPT)
        if entry.get("type") == "response_item" and payload.get("role") == "user":
            return asked(texts_in(payload.get("content")), BEFORE_A_PROMPT)
        return None

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        yield from super().error_flags(entry)
        output = payload_of(entry).get("output")
        if isinstance(output, str) and (said := _EXIT_CODE.search(output[:300] + output[-150:])):
            yield (*_PAYLOAD, "output"), int(said[1] or said[2]) != 0

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        payload = payload_of(entry)
        what = text_of(payload.get("type"))
        if entry.get("type") == "event_msg":
            return _shown(what, payload, at_least)
        if entry.get("type") == _COMPACTED:
            return history_values(payload, at_least)
        if entry.get("type") != "response_item":
            return []
        if what in _RESULTS:
            path = (*_PAYLOAD, "output")
            return result_values(payload.get("output"), path, "input_text", picture_values)
        if what == "message":
            return _said(payload.get("content"), "content", text_of(payload.get("role")))
        if what == "reasoning":
            return _said(payload.get("summary"), "summary", "thinking")
        return []

    def fillings(self, entry: Entry) -> Iterable[Filling]:
        return fillings_of(entry)

    def call_seconds(self, entry: Entry) -> tuple[str, float] | None:
        return call_seconds(payload_of(entry))

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        return started_thread(payload_of(entry))


def _id(entry: Entry, payload: Entry) -> str | None:
    """Return a name that the line keeps after extraction; lines that share it never change."""
    what = text_of(payload.get("type")) or text_of(entry.get("type"))
    item = payload.get("item")
    names = [item.get("id")] if isinstance(item, dict) else []
    names += [payload.get("call_id"), payload.get("id"), entry.get("timestamp")]
    own = next(filter(None, map(text_of, names)), None)
    if what is None or own is None:
        return None
    return _as_id(what, own)


def _as_id(what: str, own: str) -> str:
    return _NOT_IN_AN_ID.sub("", f"{what}.{own}")


def _kind(kind: str, what: str | None, role: str | None) -> str:
    if what in _RESULTS:
        return "tool_result"
    if what in _CALLS:
        return "tool_call"
    if what == "reasoning":
        return "thinking"
    return role or what or kind


def _calls(payload: Entry) -> tuple[ToolCall, ...]:
    call_id, name = text_of(payload.get("call_id")), text_of(payload.get("name"))
    given = arguments_at(payload, _PAYLOAD)
    return (ToolCall(call_id or "", name or "", _PAYLOAD, given),)


def _turn(kind: str, what: str | None, payload: Entry) -> Turn:
    """Return the effect of a line on its turn."""
    if kind == "event_msg":
        if what in _CLOSES:
            return Turn.CLOSES
        if what == _ABORTED or (what == _ERROR and not _is_beside_a_turn(payload)):
            return Turn.BREAKS
        return Turn.STARTS if what in _STARTS else Turn.NONE
    return Turn.OPEN if kind == "response_item" and what != "message" else Turn.NONE


def _is_beside_a_turn(error: Entry) -> bool:
    """Return whether an error leaves the turn open, by its kind: a string or an object's key."""
    kind = error.get("codex_error_info")
    names = kind if isinstance(kind, dict) else (kind,)
    return any(isinstance(name, str) and name in _BESIDE_A_TURN for name in names)


def _cache_use(kind: str, what: str | None, entry: Entry, payload: Entry) -> CacheUse | None:
    """Return the request and its use of the cache.

    A turn names its model, and the usage of each answer follows.
    """
    if kind == _TURN:
        model = text_of(payload.get("model"))
        return CacheUse(model) if model else None
    request = usage_of(entry) if what == _USAGE else None
    if request is None:
        return None
    return CacheUse(in_use=bool(request.read or request.written), usage=request)


def _rolled_back(payload: Entry) -> int:
    """Return the number of turns that a thread is rolled back."""
    turns = payload.get("num_turns")
    return turns if isinstance(turns, int) and turns > 0 else 0


def _shown(what: Any, payload: Entry, at_least: int) -> list[Value]:
    if what == "agent_reasoning":
        return _display(payload, "text", _PAYLOAD, "thinking", at_least)
    if what == _ITEM:
        item = payload.get("item")
        if not isinstance(item, dict):
            return []
        path = (*_PAYLOAD, "item")
        # Paginated threads have the text of `agent_reasoning` here.
        return _display(item, "summary_text", path, "thinking", at_least) + _display(
            item, "aggregated_output", path, "tool_result", at_least
        )
    values = []
    keys = _SHOWN.get(what, ()) if isinstance(what, str) else ()
    for key in payload:  # in the order of the line
        if key in keys:
            values += _display(payload, key, _PAYLOAD, "tool_result", at_least)
    return values


def _display(holder: Entry, key: str, path: ValuePath, type_: str, at_least: int) -> list[Value]:
    found = leaf_values({key: holder.get(key)}, path, type_, at_least, display=True)
    return [value for value in found if _NEVER.isdisjoint(value.path)]


def _said(blocks: Any, key: str, type_: str | None) -> list[Value]:
    """List the values in the blocks of a message; only pictures can be extracted."""
    values: list[Value] = []
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if not isinstance(block, dict):
            continue
        path = (*_PAYLOAD, key, index)
        if text := text_of(block.get("text")):
            values.append(text_value((*path, "text"), text, type_, fixed=True))
        values += picture_values(block, path, type_)
    return values


class CodexPaginated(Codex):
    """Lines of threads with paginated history. Codex keeps byte offsets into their files.

    Values that are only shown stay: a file that keeps its length would not get smaller.
    """

    keeps_length = True

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        return [
            replace(value, fixed=True) if value.display else value
            for value in super().values(entry, at_least)
        ]


CODEX, CODEX_PAGINATED = Codex(), CodexPaginated()


# --- detection ---

_VERSION = re.compile(r"0\.[0-9]+\.")
_UNKNOWN = "a rollout of unknown"  # how the reasons for unknown forms begin
_MODES = (None, "legacy", "paginated")
_KINDS = frozenset((_HEADER, "response_item", "event_msg", "turn_context", "compacted"))


def _detect(first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
    """Recognise a rollout by its first line; all other first lines must fit too.

    If a line does not fit, the file is read-only; if no line has the known form, it is not read.
    """
    fmt: TranscriptFormat = CODEX
    why, has_header, is_understood = None, False, False
    for entry in first_entries(first_lines):
        problem, kind, payload = None, entry.get("type"), entry.get("payload")
        if not isinstance(kind, str) or not isinstance(payload, dict):
            problem = "not a rollout of Codex, or a rollout of an older form"
            if has_header:
                problem = f"{_UNKNOWN} form: a line without type or payload"
        elif text_of(entry.get("timestamp")) is None:
            problem = f"{_UNKNOWN} form: a line without timestamp"
        else:
            is_understood |= kind in _KINDS
            if kind == _HEADER:
                has_header, problem = True, _unfit(payload)
                fmt = CODEX_PAGINATED if _is_paginated(payload) else fmt
            elif not has_header:
                problem = f"{_UNKNOWN} form: it does not begin with session_meta"
        why = why or problem
    if why is not None:
        is_unknown = why.startswith(_UNKNOWN)
        return NotOurs(why, fmt if is_understood else None, is_unknown_form=is_unknown)
    return fmt if has_header else NotOurs("not a rollout, or an empty rollout")


def _is_paginated(meta: Entry) -> bool:
    return meta.get("history_mode") not in (None, "legacy") or bool(meta.get("history_base"))


def _unfit(meta: Entry) -> str | None:
    """Return why a header has a form that bsd does not know; None if it has not."""
    mode = meta.get("history_mode")
    if mode not in _MODES:
        return f"{_UNKNOWN} form: its history is of mode {mode!r:.40}"
    version = meta.get("cli_version")
    if text_of(meta.get("id")) is None or not isinstance(version, str):
        return f"{_UNKNOWN} form: its header has no id or version"
    return None if _VERSION.match(version) else f"{_UNKNOWN} version {version!r:.40}"


# --- directories: sessions/YYYY/MM/DD/rollout-*.jsonl, and beside sessions/ thread-writer-locks/,
# archived_sessions/rollout-*.jsonl ---

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# If a paginated thread is rolled back to an earlier turn, it continues in a file with a longer
# name.
_ROLLOUT = re.compile(
    r"rollout-(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})T[0-9]{2}-[0-9]{2}-[0-9]{2}-"
    rf"(?P<thread>{_UUID})(?:_{_UUID})?"
)
_QUIET_SECONDS = 10.0
# For versions without locks: only an open file shows that they are at work.
_UNLOCKED_QUIET_SECONDS = 60.0
_OPEN = "Codex has the thread open"
_MOVING = "Codex is opening or closing a thread"


@dataclass(frozen=True, slots=True)
class CodexDay(AgentProgram):
    """The threads of one day, which are the sessions of one agent."""

    sessions: Path
    directory: Path
    keeps_mtime = True  # an edit is not activity in the thread
    undeletable = "only Codex may delete or archive it, since it keeps a database of its threads"
    uncallable = (
        "Codex reads its threads only when they are resumed, so bsd takes no calls out of them;"
        " `bsd agents on codex` gives its agents the tools"
    )

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS if self._locks.is_dir() else _UNLOCKED_QUIET_SECONDS

    @property
    def _locks(self) -> Path:
        return self.sessions.parent / "thread-writer-locks"

    def is_session_file(self, name: str) -> bool:
        return _rollout(name) is not None and not name.endswith(COMPRESSED)

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        if is_sync_copy(name):
            return SYNC_COPY
        return "Codex names its threads rollout-<time>-<id>"

    def compressed_session(self, name: str) -> str | None:
        if not name.endswith(COMPRESSED) or _rollout(name) is None:
            return None
        return name.removesuffix(ENDING + COMPRESSED)

    def files_of(self, session_id: str) -> Iterator[str]:
        return threads_files(self.sessions, session_id)

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return _detect(first_lines)

    def ids_in(self, session: str) -> tuple[str, ...]:
        found = _ROLLOUT.fullmatch(session)
        return (session, found["thread"]) if found else (session,)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        found = _ROLLOUT.fullmatch(session)
        return f"codex resume {found['thread']}" if found else None

    def conversations(self, entry: Entry) -> set[str]:
        if entry.get("type") != _HEADER:
            return set()
        payload = payload_of(entry)
        return {text for key in ("id", "forked_from_id") if (text := text_of(payload.get(key)))}

    def is_named(self, entry: Entry) -> bool:
        return _id(entry, payload_of(entry)) is not None

    def in_use(self, session: str) -> str | None:
        """Return whether the thread's lock is held; only `lock` takes it."""
        path = self._thread_lock(session)
        return _OPEN if path is not None and is_held(path) else None

    @contextmanager
    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,  # a thread stays open for a long time
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[None]:
        """Keep Codex from opening any thread, and check that this thread is not open.

        In Codex, a process that takes or releases the lock of a thread holds the common lock while
        doing so.
        """
        if not self._locks.is_dir():
            yield
            return
        with ExitStack() as holding:
            try:
                holding.enter_context(held(self._locks / ".coordination.lock", _MOVING))
            except OSError as error:
                why = f"Codex's locks are not as expected: {error.strerror}"
                raise Busy(why, hint="check whether this is a newer version of Codex") from error
            thread = self._thread_lock(name.session)
            if thread is not None:
                with suppress(FileNotFoundError), held(thread, _OPEN):
                    pass  # from now on, no process can take it
            yield

    def _thread_lock(self, session: str) -> Path | None:
        found = _ROLLOUT.fullmatch(session)
        return self._locks / f"{found['thread']}.lock" if found else None


def _rollout(name: str) -> re.Match[str] | None:
    """Match the name of a file, if it is the file of a thread, compressed or not."""
    plain = name.removesuffix(COMPRESSED)
    return _ROLLOUT.fullmatch(plain.removesuffix(ENDING)) if plain.endswith(ENDING) else None


def _day(name: str) -> tuple[str, ...] | None:
    """Return the directories of a thread's day, to which Codex moves it back from the archive."""
    found = _rollout(name)
    return tuple(found["day"].split("-")) if found else None


def _at_work(sessions: Path, process: Process) -> Iterator[Path]:
    """Yield the threads whose locks a process holds; without locks, its open session files."""
    threads = locked_by(process.pid, sessions.parent / "thread-writer-locks")
    if threads:
        for path in sorted(sessions.glob(f"*/*/*/rollout-*{ENDING}"), reverse=True):
            rollout = _rollout(path.name)
            if rollout and rollout["thread"] in threads:
                yield path
        return
    top = Path(os.path.realpath(sessions))
    for path in open_files(process.pid):
        if path.is_relative_to(top):
            yield sessions / path.relative_to(top)


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of Codex."""
    directory = expand(environ.get("CODEX_HOME") or "~/.codex", environ)
    program, *arguments = commands.mcp
    server = {"command": program, "args": arguments}
    return [
        TomlTable(SetupPart.MCP, directory / "config.toml", ("mcp_servers", "bsd"), server),
        tools_skill(directory / "skills"),
    ]


KIND = SourceKind(
    routes=((None, None, None),),
    called="sessions",
    program=CodexDay,
    # Codex neither resumes nor forks archived threads, and moves them under its common lock. The
    # lock of threads in their usual place therefore also keeps archived threads in place.
    program_archive=ProgramArchive("archived_sessions", _day, "archived"),
    at_work=_at_work,
    title="Codex",
    compresses=True,
    usual_directory=directory_below("CODEX_HOME", ".codex", "sessions"),
    additions=_additions,
    directory_files=directory_files,
)
