"""Which other programs have sessions on this machine, and how bsd.toml names them.

For users who have configured nothing yet. Nothing here is read by what changes sessions: bsd looks
after a directory only if `[[sources]]` names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import ConfigError
from bsd.core.locations import home, settings_file, usual_roots
from bsd.core.sources import Source
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import KINDS, kind_of


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """A program, and the directory of its sessions."""

    kind: str  # as [[sources]] calls it
    title: str
    directory: Path
    problem: str | None = None  # why it cannot be looked into


def agents_with_sessions(environ: Mapping[str, str]) -> list[InstalledAgent]:
    """Return the programs that have sessions in their usual directories, or whose cannot be read.

    OpenClaw is not among them: its directory is a root.
    """
    found = []
    for word in KINDS:
        kind = kind_of(word)
        if kind.usual_directory is None:
            continue
        directory, problem = kind.usual_directory(environ), None
        try:
            if not _has_sessions(Source(word, word, directory, kind.routes)):
                continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = error.strerror or str(error)
        found.append(InstalledAgent(word, kind.title, directory, problem))
    return found


def source_lines(agents: list[InstalledAgent], environ: Mapping[str, str]) -> str:
    """Return the lines of bsd.toml that name these directories as sources."""
    return "\n\n".join(
        f"[[sources]]\nkind = {json.dumps(each.kind)}\n"
        f"path = {json.dumps(_as_written(each.directory, environ), ensure_ascii=False)}"
        for each in agents
    )


def how_to_name_sources(file: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Say which agents are on this machine, and what to write into the settings file for them."""
    agents = agents_with_sessions(environ)
    if not agents:
        titles = ", ".join(kind_of(word).title for word in KINDS)
        example = InstalledAgent("claude-code", "", home(environ) / ".claude" / "projects")
        lines = source_lines([example], environ)
        return (
            f"no other agent ({titles}) has sessions in its usual directory",
            f"name the directory of an agent's sessions in {file}, as in:\n\n{lines}\n",
        )
    seen = ", ".join(
        f"{each.title} in {each.directory}{f' ({each.problem})' if each.problem else ''}"
        for each in agents
    )
    which = "these lines" if len(agents) == 1 else "these lines, or those of one agent,"
    lines = source_lines(agents, environ)
    return f"agents with sessions here: {seen}", f"write {which} into {file}:\n\n{lines}\n"


def nothing_configured(
    root: Path, why: str, environ: Mapping[str, str], file: Path | None = None
) -> ConfigError:
    """Return the error for a machine on which bsd has been given nothing to look after.

    `root` is the usual root, `why` says in what it lacks sessions; `file` is `--config`.
    """
    openclaw, _ = usual_roots(environ)
    seen, lines = how_to_name_sources(file or settings_file(environ), environ)
    other = "its directory" if root == openclaw else f"its directory, if it is not {openclaw},"
    return ConfigError(
        f"bsd has no sessions to look after: {why}; {seen}",
        hint=f"{lines}\nFor OpenClaw, name {other} with --root DIR or OPENCLAW_ROOT.",
    )


def _as_written(directory: Path, environ: Mapping[str, str]) -> str:
    with suppress(ValueError):
        return f"~/{directory.relative_to(home(environ))}"
    return str(directory)


def _has_sessions(source: Source) -> bool:
    """Whether a session is in any of its directories; raises OSError if the topmost is closed."""
    for _, directory in source.directories():
        with suppress(OSError), os.scandir(directory) as found:
            if any(each.name.endswith(ENDING) for each in found):
                return True
    return False
