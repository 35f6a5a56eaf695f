"""Finds agent programs that have sessions on this machine, for users without a configuration.

Code that changes sessions does not use this module: bsd serves a directory only if `[[sources]]`
names it, and `bsd init` writes that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import ConfigError
from bsd.core.locations import settings_file, usual_roots
from bsd.core.sources import Source
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import KINDS, kind_of


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """A program, and the directory of its sessions."""

    kind: str  # its name in [[sources]]
    title: str
    directory: Path
    problem: str | None = None  # why the directory cannot be read


def agents_with_sessions(
    environ: Mapping[str, str], kinds: Iterable[str] = tuple(KINDS)
) -> list[InstalledAgent]:
    """Return the programs with sessions in their usual directories, or with unreadable directories.

    OpenClaw is not included, since its directory is a root.

    Args:
        environ: the environment variables.
        kinds: the names of the programs to look for.
    """
    found = []
    for word in kinds:
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


def named_agents(environ: Mapping[str, str]) -> str:
    """Return a line that names the programs with sessions on this machine, and the directories."""
    agents = agents_with_sessions(environ)
    if not agents:
        titles = ", ".join(kind_of(word).title for word in KINDS)
        return f"no other agent ({titles}) has sessions in its usual directory"
    seen = ", ".join(
        f"{each.title} in {each.directory}{f' ({each.problem})' if each.problem else ''}"
        for each in agents
    )
    return f"agents with sessions here: {seen}"


def nothing_configured(
    root: Path, why: str, environ: Mapping[str, str], file: Path | None = None
) -> ConfigError:
    """Return the error for a machine without configured sessions.

    Args:
        root: the usual root.
        why: the reason why the root has no sessions.
        environ: the environment variables.
        file: the value of `--config`.
    """
    openclaw, _ = usual_roots(environ)
    other = "its directory" if root == openclaw else f"its directory, if it is not {openclaw},"
    return ConfigError(
        f"bsd has no sessions to work on: {why}; {named_agents(environ)}",
        hint="bsd init\n"
        f"For another directory of sessions, add [[sources]] to"
        f" {file or settings_file(environ)}.\n"
        f"For OpenClaw, name {other} with --root DIR or OPENCLAW_ROOT.",
    )


def _has_sessions(source: Source) -> bool:
    """Return whether the source has a session; raises OSError if its directory is closed."""
    for _, directory in source.directories():
        if kind_of(source.kind).program(source.path, directory).database() is not None:
            return True
        with suppress(OSError), os.scandir(directory) as found:
            if any(each.name.endswith(ENDING) for each in found):
                return True
    return False
