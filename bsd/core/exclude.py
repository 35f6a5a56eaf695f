"""The setting `exclude`: agents, sessions and projects that bsd ignores completely.

The setting is a list of patterns in config.json and in bsd.toml; both lists apply. In a pattern,
`*` stands for any text and `?` for any character. The meaning of a pattern:

- `AGENT`: an agent, or a source with all its agents; and their parts, such as sub-agents.
- `AGENT/SESSION`: a session and its parts.
- `/DIRECTORY` or `~/DIRECTORY`: the sessions of the projects in this directory and below, for
  programs that store sessions by project. Such a program encodes the path of a project in its own
  way; paths with the same encoding cannot be distinguished here.

Lists, scans and `Session` call `Layout.exclusions`. This module reads the setting in config.json
itself and checks the file's stat each time, so that a change takes effect at once in all processes.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bsd.core.errors import ConfigError, LeftAlone
from bsd.core.files import LARGEST_NOTE, FileStamp, read_plain, stamp_of
from bsd.core.locations import expand
from bsd.core.sources import Source, names_above

_LONGEST = 500  # characters
_NAME = re.compile(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._@:+*?-]+(?:/[A-Za-z0-9._@:+*?-]+)?")


def check_pattern(text: str) -> str:
    """Return a pattern of `exclude`; raises ValueError if it is not valid."""
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"a pattern has at most {_LONGEST} characters, on one line")
    if is_directory_pattern(text) or _NAME.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is not an AGENT, AGENT/SESSION, /DIRECTORY or ~/DIRECTORY")


def is_directory_pattern(text: str) -> bool:
    """Return True for a pattern that names a directory."""
    return text == "~" or text.startswith(("/", "~/"))


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A pattern. `fixed`: it is set in bsd.toml, so a command cannot remove it."""

    pattern: str
    fixed: bool

    def refusal(self, what: object) -> LeftAlone:
        """Return the error for an agent or a session that this pattern excludes."""
        hint = f"`bsd exclude --remove '{self.pattern}'`"
        if self.fixed:
            hint = f"remove {self.pattern!r} from `exclude` in bsd.toml, and restart bsd"
        return LeftAlone(f"{what} is excluded by {self.pattern!r}: bsd ignores it", hint=hint)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled pattern. `projects`: (source name, expression for directories) pairs."""

    exclusion: Exclusion
    agent: re.Pattern[str] | None = None
    session: re.Pattern[str] | None = None
    projects: tuple[tuple[str, re.Pattern[str]], ...] = ()


class Exclusions:
    """All patterns in force; false in a boolean context if empty."""

    def __init__(self, exclusions: tuple[Exclusion, ...], sources: tuple[Source, ...]) -> None:
        self.all = exclusions
        self._sources = {source.name: source for source in sources}
        self._compiled = [_compiled(each, sources) for each in exclusions]

    def __bool__(self) -> bool:
        return bool(self._compiled)

    def agent(self, agent: str) -> Exclusion | None:
        """Return the pattern that excludes an agent with all its sessions; None if none does."""
        if not self._compiled:
            return None
        project = self._project(agent)
        for each in self._compiled:
            if project is not None and _any_of(each.projects, *project):
                return each.exclusion
            for above, part in names_above(agent):
                if each.agent is None or not each.agent.fullmatch(above):
                    continue
                if each.session is None or (part and each.session.fullmatch(part)):
                    return each.exclusion
        return None

    def session(self, agent: str, session: str) -> Exclusion | None:
        """Return the pattern that excludes a session or its agent; None if none does."""
        for each in self._compiled:
            if each.agent is None or each.session is None:
                continue
            if each.agent.fullmatch(agent) and each.session.fullmatch(session):
                return each.exclusion
        return self.agent(agent)

    def _project(self, agent: str) -> tuple[str, str] | None:
        """Return the source of an agent and the name of its project's directory in the source."""
        source = self._sources.get(agent.partition(":")[0])
        if source is None or source.project_directory is None:
            return None
        directory = source.first_directory(agent)
        return None if directory is None else (source.name, directory)


def _any_of(projects: tuple[tuple[str, re.Pattern[str]], ...], source: str, name: str) -> bool:
    return any(source == of and known.fullmatch(name) for of, known in projects)


def _compiled(exclusion: Exclusion, sources: tuple[Source, ...]) -> _Compiled:
    text = exclusion.pattern
    if not is_directory_pattern(text):
        agent, slash, session = text.partition("/")
        return _Compiled(exclusion, _expression(agent), _expression(session) if slash else None)
    path = str(expand(text, os.environ))
    projects = []
    for source in sources:
        if (written := source.project_directory) is not None:
            # A program may use the real path of the project, or the path that the user gave.
            for each in dict.fromkeys((path, os.path.realpath(path))):
                below = f"{each.rstrip('/')}/*"
                projects += [
                    (source.name, _expression(written(each))),
                    (source.name, _expression(written(below))),
                ]
    return _Compiled(exclusion, projects=tuple(projects))


def _expression(pattern: str) -> re.Pattern[str]:
    # Expressions from fnmatch do not backtrack, however many `*` a pattern has.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


@lru_cache(maxsize=16)
def exclusions(
    named: tuple[str, ...], fixed: tuple[str, ...], sources: tuple[Source, ...]
) -> Exclusions:
    """Return the compiled patterns of config.json (`named`) and of bsd.toml (`fixed`)."""
    known = [Exclusion(pattern, fixed=True) for pattern in fixed]
    known += [Exclusion(pattern, fixed=False) for pattern in named if pattern not in fixed]
    return Exclusions(tuple(known), sources)


_lock = threading.Lock()
_read: dict[Path, tuple[FileStamp | None, tuple[str, ...]]] = {}


def named_in(path: Path) -> tuple[str, ...]:
    """Return the current setting `exclude` of config.json; one stat if the file is unchanged.

    If the file is broken, the last valid setting that this process has read stays in force.

    Raises:
        ConfigError: The file cannot be read, and this process has no valid setting from before.
            Callers must then ignore all sessions.
    """
    stamp = _stamp(path)
    with _lock:
        known = _read.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            patterns = () if stamp is None else _patterns(path)
        except (OSError, ValueError, RecursionError) as error:
            if known is not None:
                return known[1]
            reason = getattr(error, "strerror", None) or error
            why = f"{path}, which may exclude sessions, cannot be read: {reason}"
            raise ConfigError(
                why, hint="correct the file; `bsd config path` shows where it is"
            ) from None
        if stamp is None and known is not None and known[1]:
            return known[1]  # the file was removed: the settings in force stay
        _read[path] = stamp, patterns
        return patterns


def adopt(path: Path, stamp: FileStamp | None, patterns: tuple[str, ...]) -> None:
    """Use the patterns that another process has read, with the stamp of the file at that time."""
    with _lock:
        _read[path] = stamp, patterns


def _patterns(path: Path) -> tuple[str, ...]:
    document = json.loads(read_plain(path, LARGEST_NOTE).decode("utf-8-sig"))
    patterns = document.get("exclude", []) if isinstance(document, dict) else None
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise ValueError("`exclude` is not a list of strings")
    return tuple(map(check_pattern, patterns))


def _stamp(path: Path) -> FileStamp | None:
    try:
        return stamp_of(os.lstat(path))
    except OSError:  # missing; or not accessible, and then the rest of the root is not either
        return None
