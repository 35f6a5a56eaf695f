"""Claude Code at work: its directories, its processes, and the files that it deletes."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.processes import alive
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE, SUBAGENT, detect
from bsd.transcripts.agents.claude_code.history import (
    project_name,
    remembered_prompts,
)
from bsd.transcripts.agents.claude_code.hooks import read_hook
from bsd.transcripts.agents.claude_code.setup import additions
from bsd.transcripts.agents.entry import Entry, text_of
from bsd.transcripts.agents.format import (
    NotOurs,
    TranscriptFormat,
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

_SESSION_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUBAGENT_NAME = re.compile(r"agent-[A-Za-z0-9_@-]+")
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
        " of them; `bsd agents on claude-code` gives its agents the tools"
    )

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS if self._running.is_dir() else _UNTOLD_QUIET_SECONDS

    @property
    def _running(self) -> Path:
        """The directory in which each process notes its session, and whether it is busy."""
        return self.projects.parent / "sessions"

    def is_session_file(self, name: str) -> bool:
        """False for renamed sessions, copies made while compacting, subagents of old versions.

        Old subagents lay here (`agent-<id>.jsonl`); none of them says that a turn of it has ended.
        """
        return name.endswith(ENDING) and bool(_SESSION_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        if is_sync_copy(name):
            return SYNC_COPY
        if _SUBAGENT_NAME.fullmatch(name.removesuffix(ENDING)):
            return "it is a subagent's of an old version, and does not say when its turn ends"
        return "Claude Code names its sessions by a UUID"

    def belongings(self, session: str) -> Iterator[Path]:
        """Yield long results of tools, notes of subagents, journals of workflows.

        A directory that cannot be read, and a link to one, is among them: no file of it is.
        """
        top = self.directory / session
        if top.is_symlink():
            yield top
            return
        unread: list[OSError] = []
        for directory, names, files in os.walk(top, onerror=unread.append):
            names.sort()
            paths = [Path(directory, name) for name in sorted(files)]
            yield from (path for path in paths if not self._is_subagent(path.relative_to(top)))
            yield from (path for name in names if (path := Path(directory, name)).is_symlink())
        for error in unread:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                yield Path(error.filename)

    def _is_subagent(self, path: Path) -> bool:
        """Whether a file below a session's directory is a session of an agent of its own."""
        *steps, name = path.parts
        stem = name.removesuffix(ENDING)
        has_sessions = steps == ["subagents"] or (
            len(steps) == 3 and steps[:2] == ["subagents", "workflows"]
        )
        return has_sessions and stem != name and _SUBAGENT_NAME.fullmatch(stem) is not None

    @property
    def memory(self) -> str | None:
        return "memory"

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
        return detect(first_lines, CLAUDE_CODE)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """In the directory of the session: its tools work there, and every version finds it."""
        place = f"cd {shlex.quote(directory)} && " if directory else ""
        return f"{place}claude --resume {shlex.quote(session)}"

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

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """The command of the session whose subagents these are.

        A subagent may work elsewhere, in a worktree that is gone by now: no session is found there.
        """
        project, session, *_ = self.directory.relative_to(self.projects).parts
        if directory is not None and project_name(directory) != project:
            directory = None
        return ClaudeCodeProject.resume_command(self, session, directory)

    def belongings(self, session: str) -> Iterator[Path]:  # the session's own
        yield from ()

    @property
    def memory(self) -> str | None:  # the project's
        return None

    def is_session_file(self, name: str) -> bool:
        return name.endswith(ENDING) and bool(_SUBAGENT_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return "Claude Code names the files of its subagents agent-<id>"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return detect(first_lines, SUBAGENT)

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
    """Return the name of the directory of a project's sessions; in a pattern, `*` and `?` stay."""
    return project_name(path, kept="*?")


def _at_work(projects: Path, process: Process) -> Iterator[Path]:
    """Yield the session that a process names; a file of an earlier process of its number is old."""
    try:
        path = projects.parent / "sessions" / f"{process.pid}.json"
        said = json.loads(read_plain(path, LARGEST_NOTE))
    except (OSError, ValueError, RecursionError):
        return
    session = said.get("sessionId") if isinstance(said, dict) else None
    if not isinstance(session, str) or not _SESSION_NAME.fullmatch(session):
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
    remembered=remembered_prompts,
    read_hook=read_hook,
    additions=additions,
)


def _has(path: Path, session: str, *, by_idle: bool) -> str | None:
    """Why a session counts as in use by a process, by the process's own notes."""
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
