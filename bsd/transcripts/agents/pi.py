"""pi's own directory: `~/.pi/agent/sessions/--<cwd>--/<time>_<id>.jsonl`.

An imported file keeps its name: for pi, every `.jsonl` file there is a session. With
`--session-dir DIR` (or PI_CODING_AGENT_SESSION_DIR), sessions lie in that directory itself, and a
source names it. Extensions keep the runs of their sub-agents below the name of a session:
`<session>/<id>/run-0/session.jsonl`, `<session>/tasks/<time>_<id>.jsonl`.

OpenClaw's entries come from pi; newer versions of pi write a few more. While pi runs, it holds a
session in memory and appends lines to the file, so it sees edits only when it opens the session
again. It has no lock, and no file shows whether it is at work. A last turn therefore counts as
over only if its last answer states an end, an error or an abort.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

from bsd.core.locations import expand
from bsd.transcripts.agents.entry import Entry, first_entries, message_of, text_of
from bsd.transcripts.agents.format import EntryInfo, NotOurs, TranscriptFormat, Turn, Value
from bsd.transcripts.agents.openclaw.format import OPENCLAW, OpenClaw, detect, header_ids
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

_STOPS = ("stop", "length")  # values of `stopReason` in an answer that ends its turn
_SESSION = re.compile(r"[A-Za-z0-9_@:+-][A-Za-z0-9._@:+-]*")  # any valid session name
_QUIET_SECONDS = 60.0


class Pi(OpenClaw):
    """Entries after a header of version 2 or 3, as pi writes them."""

    name = "pi"

    def info(self, entry: Entry) -> EntryInfo:
        info = super().info(entry)
        if info.turn is Turn.CLOSES and message_of(entry).get("stopReason") not in _STOPS:
            # pi waits (`pending`, `deferred`), and the next prompt ends the turn.
            return replace(info, turn=Turn.NONE)
        return info

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        values = super().values(entry, at_least)
        if message_of(entry).get("role") == "system":  # it is the beginning of pi's context
            return [replace(value, fixed=True) for value in values]
        return values


PI = Pi()


@dataclass(frozen=True, slots=True)
class PiProject(AgentProgram):
    """The sessions of pi in one working directory, which are the sessions of one agent."""

    sessions: Path
    directory: Path
    called: ClassVar[str] = "pi"
    form: ClassVar[Pi] = PI
    quiet_seconds = _QUIET_SECONDS
    keeps_mtime = True  # pi continues the latest session
    undeletable = "only pi may delete it"
    uncallable = (
        "pi holds its sessions in memory while it runs, so bsd takes no calls out of them;"
        " `bsd agents on pi` gives its agents the tools"
    )

    def is_session_file(self, name: str) -> bool:
        if is_sync_copy(name):
            return False
        return name.endswith(ENDING) and bool(_SESSION.fullmatch(name.removesuffix(ENDING)))

    def why_no_session(self, name: str) -> str | None:
        if is_sync_copy(name):
            return SYNC_COPY
        return None if self.is_session_file(name) else "its name begins with a dot or is not valid"

    def ids_in(self, session: str) -> tuple[str, ...]:
        return session, session.rpartition("_")[2]

    def resume_command(self, session: str, directory: str | None) -> str | None:
        """Return a command with the path: pi then works in the directory that the session names."""
        return f"pi --session {shlex.quote(str(self.directory / f'{session}{ENDING}'))}"

    def conversations(self, entry: Entry) -> set[str]:
        return header_ids(entry)

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        others = iter(first_lines)
        lines = list(_until_header(others))
        found = detect(lines)
        if found is OPENCLAW:
            header = next(first_entries(lines))
            if text_of(header.get("id")) is None:
                why = f"a session of {self.called} of unknown form: its header has no id"
                return NotOurs(why, self.form, is_unknown_form=True)
            return self.form
        if isinstance(found, NotOurs) and found.reads is None:  # its header may come later
            further = detect(chain(lines, others))
            if further is OPENCLAW:
                return NotOurs("its first line is damaged, and is not a session header", self.form)
            found = found if isinstance(further, NotOurs) and further.reads is None else further
        if not isinstance(found, NotOurs):
            return NotOurs(f"not a session of {self.called}")
        return replace(found, reads=None if found.reads is None else self.form)


class PiRuns(PiProject):
    """The runs that an extension keeps below one session, which are the sessions of one agent."""

    __slots__ = ()

    @property
    def part_of(self) -> Path | None:
        project, session, *_ = self.directory.relative_to(self.sessions).parts
        return self.sessions / project / f"{session}{ENDING}"


def _owner(sessions: Path, directory: Path) -> AgentProgram:
    is_run = len(directory.relative_to(sessions).parts) > 1
    return (PiRuns if is_run else PiProject)(sessions, directory)


def _until_header(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the lines up to the first entry, which must be the header."""
    for line in lines:
        yield line
        if line.strip():
            return


# The name of its process, and of programs that run it under another name.
_PROGRAM = re.compile(r"(?:.*/)?pi(?:-coding-agent)?(?:\.[cm]?js)?|.*/pi-coding-agent/.*")
_SEPARATORS = re.compile(r"[/\\:]")
# Other directories are not searched for runs, since a source may be any directory.
_PROJECT = re.compile(r"--.*--", re.DOTALL)
STEM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9TZ.-]+_[A-Za-z0-9-]+")
_RUN = re.compile(r"run-[0-9]+")
_CLOCKS_DIFFER_SECONDS = 5.0


def _directory_of_project(path: str) -> str:
    """Return the name of the directory of a project's sessions."""
    return f"--{_SEPARATORS.sub('-', path.removeprefix('/'))}--"


def _at_work(sessions: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions that were written in the process's directory since it began.

    pi itself does not say which session it has open.
    """
    if process.cwd is not None and any(map(_PROGRAM.fullmatch, process.argv[:2])):
        yield from written_by(sessions / _directory_of_project(str(process.cwd)), process)


def written_by(directory: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions in a directory that were written since a process began, latest first."""
    if process.begun is None:
        return
    with suppress(OSError), os.scandir(directory) as found:
        sessions_there = (each for each in found if each.name.endswith(ENDING))
        files = [(each.stat(follow_symlinks=False).st_mtime, each.path) for each in sessions_there]
        since = process.begun - _CLOCKS_DIFFER_SECONDS
        yield from (Path(path) for at, path in sorted(files, reverse=True) if at >= since)


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of pi.

    Versions before 1.0 have no MCP client and ignore its file; their agents use a shell.
    """
    directory = expand(environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent", environ)
    return server_and_skill(directory, "mcp.json", commands)


KIND = SourceKind(
    routes=((None,), (), (_PROJECT, STEM, "tasks"), (_PROJECT, STEM, None, _RUN)),
    called=None,
    program=_owner,
    project_directory=_directory_of_project,
    at_work=_at_work,
    title="pi",
    usual_directory=directory_below("PI_CODING_AGENT_DIR", ".pi/agent", "sessions"),
    additions=_additions,
)
