"""The program Claude Code: its directories, its processes, and the files that it deletes."""

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
# Default of its setting cleanupPeriodDays; the administrator's settings take precedence.
_CLEANUP_DAYS, _MOST_DAYS = 30, 1_000_000
_MANAGED_SETTINGS = Path("/etc/claude-code/managed-settings.json")
_QUIET_SECONDS = 10.0
# Without the files that name running processes, no file shows that a process is at work.
_UNTOLD_QUIET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClaudeCodeProject(AgentProgram):
    """The sessions of one project, which are the sessions of one agent."""

    projects: Path
    directory: Path
    keeps_mtime = True  # it continues the latest session, and deletes sessions of last month
    undeletable = "only Claude Code may delete it, since it keeps lists of its sessions"
    uncallable = (
        "Claude Code reads its sessions only when they are resumed, so bsd takes no calls out"
        " of them; `bsd agents on claude-code` gives its agents the tools"
    )

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS if self._running.is_dir() else _UNTOLD_QUIET_SECONDS

    @property
    def _running(self) -> Path:
        """The directory in which each process records its session, and whether it is busy."""
        return self.projects.parent / "sessions"

    def is_session_file(self, name: str) -> bool:
        """Return False for renamed sessions, copies made while compacting, and old sub-agents.

        Old versions kept sub-agents here (`agent-<id>.jsonl`); their lines do not state that a turn
        has ended.
        """
        return name.endswith(ENDING) and bool(_SESSION_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        if is_sync_copy(name):
            return SYNC_COPY
        if _SUBAGENT_NAME.fullmatch(name.removesuffix(ENDING)):
            return "it is a sub-agent's of an old version, which does not state when a turn ends"
        return "Claude Code names its sessions by a UUID"

    def belongings(self, session: str) -> Iterator[Path]:
        """Yield long results of tools, notes of sub-agents, and journals of workflows.

        Unreadable directories, and links to directories, are included; their files are not.
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
        """Return whether a file below a session's directory is a session of an agent of its own."""
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
        """The shortest time in the program's own settings; a project's settings may differ."""
        own = self.projects.parent
        files = (own / "settings.json", own / "settings.local.json", _MANAGED_SETTINGS)
        named = [days for days in map(_cleanup_days, files) if days is not None]
        return min(named, default=_CLEANUP_DAYS) * 86_400.0

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return detect(first_lines, CLAUDE_CODE)

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Change to the session's directory: its tools work there, and every version finds it."""
        place = f"cd {shlex.quote(directory)} && " if directory else ""
        return f"{place}claude --resume {shlex.quote(session)}"

    def conversations(self, entry: Entry) -> set[str]:
        session = text_of(entry.get("sessionId"))
        return {session} if session else set()

    def is_named(self, entry: Entry) -> bool:
        return "uuid" in entry

    def in_use(self, session: str) -> str | None:
        """An idle process does not count: it has all in memory, and reopens the file to write."""
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
    """The sub-agents of one session, or of a workflow, which are the sessions of one agent."""

    __slots__ = ()

    @property
    def part_of(self) -> Path | None:
        project, session, *_ = self.directory.relative_to(self.projects).parts
        return self.projects / project / f"{session}{ENDING}"

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return the command of the session that started these sub-agents.

        A sub-agent may work elsewhere, in a worktree that is gone by now, where no session is
        found.
        """
        project, session, *_ = self.directory.relative_to(self.projects).parts
        if directory is not None and project_name(directory) != project:
            directory = None
        return ClaudeCodeProject.resume_command(self, session, directory)

    def belongings(self, session: str) -> Iterator[Path]:  # the session has them
        yield from ()

    @property
    def memory(self) -> str | None:  # the project has it
        return None

    def is_session_file(self, name: str) -> bool:
        return name.endswith(ENDING) and bool(_SUBAGENT_NAME.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if self.is_session_file(name):
            return None
        return "Claude Code names the files of its sub-agents agent-<id>"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        return detect(first_lines, SUBAGENT)

    def in_use(self, session: str) -> str | None:
        """Idle processes count: their sub-agents may be at work, or continue at any time."""
        return self._in_use(self.directory.relative_to(self.projects).parts[1], by_idle=True)


def _cleanup_days(settings: Path) -> float | None:
    """Return cleanupPeriodDays from a settings file; None if missing or unreadable."""
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
    """Return the name of the directory of a project's sessions; `*` and `?` stay in a pattern."""
    return project_name(path, kept="*?")


def _at_work(projects: Path, process: Process) -> Iterator[Path]:
    """Yield the session that a process names, unless an earlier process of this number wrote it."""
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
    # It accepts 500,000 characters from a tool that asks for them; the model needs room to work.
    page_size=PageSize(most=60_000, texts=57_000, whole=60_000, as_json=False),
    title="Claude Code",
    usual_directory=directory_below("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    remembered=remembered_prompts,
    read_hook=read_hook,
    additions=additions,
)


def _has(path: Path, session: str, *, by_idle: bool) -> str | None:
    """Return why a session counts as in use by a process, from the process's own record."""
    if not alive(int(path.stem)):
        return None
    try:
        said = json.loads(read_plain(path, LARGEST_NOTE))
    except FileNotFoundError:  # the process has just ended
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
    return f"process {path.stem} may continue it" if by_idle else None
