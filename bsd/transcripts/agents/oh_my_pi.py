"""oh-my-pi's own directory: `~/.omp/agent/sessions/<project>/<time>_<id>.jsonl`; pi's entries.

The first line is the current title, in a fixed number of bytes, which oh-my-pi rewrites in place.
The header follows. Sub-agents lie below the name of their session: `<session>/<id>.jsonl`, and
their own ones below `<session>/<id>/`.

A running oh-my-pi holds a session in memory, with the size of its file. If another program has
changed that size, oh-my-pi refuses to rewrite the file from then on, and keeps later entries in
memory only. bsd therefore leaves all sessions of a project alone while oh-my-pi runs there.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

from bsd.core import processes
from bsd.core.locations import expand, home
from bsd.transcripts.agents.entry import Entry, message_of, text_of
from bsd.transcripts.agents.format import (
    PROGRAM_NOTES,
    SETUP,
    EntryInfo,
    Filling,
    NotOurs,
    Rank,
    Title,
    TranscriptFormat,
    Value,
    named,
)
from bsd.transcripts.agents.pi import STEM, Pi, PiProject, PiRuns, written_by
from bsd.transcripts.agents.program import ENDING, AgentProgram, Process, SourceKind
from bsd.transcripts.agents.setup_files import (
    Addition,
    SetupCommands,
    server_and_skill,
)
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import value_at

_TITLE = "title"
_TITLES = frozenset((_TITLE, "title_change"))
# Everything before this line is not sent again.
_RESET = "reset_boundary"
# Blocks with one of these members may only be sent as they are.
_SIGNATURES = ("textSignature", "thoughtSignature")
_LINES = {
    "session_init": SETUP,
    **dict.fromkeys(
        (*_TITLES, _RESET, "model_usage", "service_tier_change", "credential_pin", "mode_change"),
        PROGRAM_NOTES,
    ),
}


class OhMyPi(Pi):
    """pi's entries after a line with the title."""

    name = "oh-my-pi"

    def info(self, entry: Entry) -> EntryInfo:
        info, kind = super().info(entry), entry.get("type")
        if kind == _TITLE:
            return replace(info, is_header=True)
        return replace(info, is_compaction=True) if kind == _RESET else info

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        """Thinking stays: without its signature, oh-my-pi would send it with an empty one."""
        values = super().values(entry, at_least)
        blocks = message_of(entry).get("content")
        if not isinstance(blocks, list) or not any(map(_must_stay, blocks)):
            return values
        return [
            replace(value, fixed=True) if _must_stay(value_at(entry, value.path[:3])) else value
            for value in values
        ]

    def title(self, entry: Entry) -> Title | None:
        if entry.get("type") not in _TITLES:
            return super().title(entry)
        is_given = entry.get("source") == "user"
        return named(entry.get("title"), Rank.GIVEN if is_given else Rank.MADE)

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        if what := _LINES.get(text_of(entry.get("type")) or ""):
            yield Filling((), what)
        else:
            yield from super().fillings(entry)


def _must_stay(block: object) -> bool:
    """Return whether a block is thinking, or is bound by a signature."""
    if not isinstance(block, dict):
        return False
    return block.get("type") == "thinking" or any(text_of(block.get(key)) for key in _SIGNATURES)


OH_MY_PI = OhMyPi()


@dataclass(frozen=True, slots=True)
class OhMyPiProject(PiProject):
    """The sessions of oh-my-pi in one working directory, which are the sessions of one agent."""

    called: ClassVar[str] = "oh-my-pi"
    form: ClassVar[OhMyPi] = OH_MY_PI
    undeletable = "only oh-my-pi may delete it"
    uncallable = (
        "oh-my-pi holds its sessions in memory while it runs, so bsd takes no calls out of them;"
        " `bsd agents on oh-my-pi` gives its agents the tools"
    )

    def resume_command(self, session: str, directory: str | None) -> str | None:
        place = f"cd {shlex.quote(directory)} && " if directory else ""
        return f"{place}omp --resume {shlex.quote(str(self.directory / f'{session}{ENDING}'))}"

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        lines = iter(first_lines)
        first = next(lines, b"")
        has_title = (parse_entry(first) or {}).get("type") == _TITLE
        return super(OhMyPiProject, self).detect(lines if has_title else chain((first,), lines))

    def in_use(self, session: str) -> str | None:
        """Return whether oh-my-pi runs in the session's project."""
        project = self.directory.relative_to(self.sessions).parts[:1]
        for pid in filter(_runs_oh_my_pi, processes.running()):
            cwd = processes.directory(pid)  # None for a process of another user
            if cwd is not None and project in ((), (_directory_of_project(cwd),)):
                return f"process {pid} may have it open"
        return None


class OhMyPiSubagents(OhMyPiProject):
    """The sub-agents of one session, or of a sub-agent, which are the sessions of one agent."""

    __slots__ = ()

    part_of = PiRuns.part_of


def _owner(sessions: Path, directory: Path) -> AgentProgram:
    is_part = len(directory.relative_to(sessions).parts) > 1
    return (OhMyPiSubagents if is_part else OhMyPiProject)(sessions, directory)


_PROGRAM = re.compile(r"(?:.*/)?omp(?:\.js)?|.*/@oh-my-pi/pi-coding-agent/.*")
_SEPARATORS = re.compile(r"[/\\:]")


def _runs_oh_my_pi(pid: int) -> bool:
    return any(map(_PROGRAM.fullmatch, processes.argv(pid)[:2]))


def _directory_of_project(path: str) -> str:
    """Return the name of the directory of a project's sessions.

    Projects in the home directory and in the directory for temporary files are named by the path
    below it.
    """
    for start, top in (("-", home(os.environ)), ("-tmp-", Path(tempfile.gettempdir()))):
        if path == str(top):
            return start if start == "-" else "-tmp"
        if path.startswith(f"{top}/"):
            return f"{start}{_SEPARATORS.sub('-', path.removeprefix(f'{top}/'))}"
    return f"--{_SEPARATORS.sub('-', path.removeprefix('/'))}--"


def _at_work(sessions: Path, process: Process) -> Iterator[Path]:
    """Yield the sessions that were written in the process's directory since it began."""
    if process.cwd is not None and any(map(_PROGRAM.fullmatch, process.argv[:2])):
        yield from written_by(sessions / _directory_of_project(str(process.cwd)), process)


def _usual_directory(environ: Mapping[str, str]) -> Path:
    """Return the usual directory. The variable of its agent directory is the same as pi's."""
    data = environ.get("XDG_DATA_HOME", "")
    if data.startswith("/") and Path(data, "omp").is_dir():
        return Path(data, "omp", "sessions")
    return expand("~/.omp/agent/sessions", environ)


def _additions(commands: SetupCommands, environ: Mapping[str, str]) -> list[Addition]:
    """Return bsd's additions to the files of a user of oh-my-pi."""
    directory = expand("~/.omp/agent", environ)
    return server_and_skill(directory, "mcp.json", commands)


KIND = SourceKind(
    routes=((None,), (), (None, STEM), (None, STEM, None)),
    called=None,
    program=_owner,
    project_directory=_directory_of_project,
    at_work=_at_work,
    title="oh-my-pi",
    usual_directory=_usual_directory,
    additions=_additions,
)
