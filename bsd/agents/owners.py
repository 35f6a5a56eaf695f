"""Whose sessions an agent's are: OpenClaw's in the root, another program's in a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from bsd.agents.base import Format, NotOurs
from bsd.agents.detect import detect
from bsd.agents.openclaw import (
    is_session_file,
    put_aside,
    read_registry,
    running,
    sqlite_database,
)
from bsd.agents.owner import ENDING, Kind, Owner, Process, Registry
from bsd.foundation.errors import ConfigError
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.sources import Source

if TYPE_CHECKING:  # start-up stays light: most calls load no settings
    from bsd.foundation.source_settings import SourceSettings


# Start-up stays light: most calls have no sources, and none has all kinds of them.


def _claude_code() -> Kind:
    from bsd.agents.claude_code import KIND  # noqa: PLC0415 - see above

    return KIND


def _codex() -> Kind:
    from bsd.agents.codex import KIND  # noqa: PLC0415 - see above

    return KIND


def _pi() -> Kind:
    from bsd.agents.pi import KIND  # noqa: PLC0415 - see above

    return KIND


# By the word for it in the settings.
KINDS: Mapping[str, Callable[[], Kind]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "pi": _pi,
}


def owner_of(layout: Layout, agent: str) -> Owner:
    """Say whose the sessions of an agent are; raises NotFound if it is no name of a source."""
    if source := layout.source_of(agent):
        # By its name alone, as this is asked for every session of a list; opening one looks closer.
        directory = source.directory(agent) or layout.sessions_dir(agent)
        return KINDS[source.kind]().owner(source.path, directory)
    return _RootAgent(layout.agents / agent)


def in_use(layout: Layout, name: SessionName) -> str | None:
    """Why a session counts as in use by its owner; None if it does not."""
    return owner_of(layout, name.agent).in_use(name.session)


def at_work(layout: Layout, process: Process) -> list[SessionName]:
    """The sessions in sources that a process has at work, as far as its program lets that be told.

    Of OpenClaw's, nothing tells which of them a process is about.
    """
    found: list[SessionName] = []
    for source in layout.sources:
        for path in KINDS[source.kind]().at_work(source.path, process):
            agent = source.agent_at(path.parent)
            if agent is not None and owner_of(layout, agent).is_session_file(path.name):
                found.append(SessionName(agent, path.name.removesuffix(ENDING)))
    return found


def layout_of(root: Path, sources: Iterable[SourceSettings]) -> Layout:
    """Where things lie, by the settings; raises ConfigError for a source of unknown kind."""
    return Layout(root, tuple(map(_source, sources)))


def _source(given: SourceSettings) -> Source:
    if given.kind not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(
            f"the source {given.path} is of no known kind: {given.kind!r}",
            hint=f"write one of {known} as its kind under [[sources]] in bsd.toml",
        )
    kind = KINDS[given.kind]()
    if kind.called is not None and given.path.name != kind.called:
        raise ConfigError(
            f"the source {given.path} is not {given.kind}'s directory of sessions",
            hint=f"name the directory that is called {kind.called}",
        )
    return Source(given.called, given.kind, given.path, kind.routes, kind.put_away)


@immutable
class _RootAgent:
    """An agent of the root: OpenClaw's, or one that writes the seeds' flat entries there."""

    directory: Path
    quiet_seconds = 0.0
    keeps_mtime = False  # the gateway takes up what is newer than what it knows
    undeletable = None
    uncallable = None

    def is_session_file(self, name: str) -> bool:
        return is_session_file(name)

    def put_aside(self, name: str) -> str | None:
        return put_aside(name)

    def detect(self, first_lines: Iterable[bytes]) -> Format | NotOurs:
        return detect(first_lines)

    def in_use(self, session: str) -> str | None:
        return running(self.directory, session)

    def registry(self) -> Registry:
        return read_registry(self.directory)

    def database(self) -> Path | None:
        return sqlite_database(self.directory)

    def lock(self, session: str) -> AbstractContextManager[object] | None:  # noqa: ARG002
        return None
