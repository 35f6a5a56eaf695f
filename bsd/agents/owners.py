"""Whose sessions an agent's are: OpenClaw's in the root, another program's in a source."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from bsd.agents.openclaw.home import RootAgent
from bsd.agents.owner import ENDING, Owner, Process, SourceKind
from bsd.foundation.errors import ConfigError
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.sources import Source

if TYPE_CHECKING:  # start-up stays light: most calls load no settings
    from bsd.foundation.settings import SourceSettings


# By the word for it in the settings: the module whose `KIND` says what it is. A program is loaded
# when there is a source of its kind: most calls have none, and none has all of them.
KINDS: dict[str, str] = {
    "claude-code": "bsd.agents.claude_code",
    "codex": "bsd.agents.codex",
    "pi": "bsd.agents.pi",
}


def kind_of(word: str) -> SourceKind:
    """The program that the settings call by a word; raises KeyError."""
    kind: SourceKind = import_module(KINDS[word]).KIND
    return kind


def owner_of(layout: Layout, agent: str) -> Owner:
    """Say whose the sessions of an agent are; raises NotFound if it is no name of a source."""
    if source := layout.source_of(agent):
        # By its name alone, as this is asked for every session of a list; opening one looks closer.
        directory = source.directory(agent) or layout.sessions_dir(agent)
        return kind_of(source.kind).owner(source.path, directory)
    return RootAgent(layout, agent)


def in_use(layout: Layout, name: SessionName) -> str | None:
    """Why a session counts as in use by its owner; None if it does not."""
    return owner_of(layout, name.agent).in_use(name.session)


def at_work(layout: Layout, process: Process) -> list[SessionName]:
    """The sessions in sources that a process has at work, as far as its program lets that be told.

    Of OpenClaw's, nothing tells which of them a process is about.
    """
    found: list[SessionName] = []
    for source in layout.sources:
        for path in kind_of(source.kind).at_work(source.path, process):
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
    kind = kind_of(given.kind)
    if kind.called is not None and given.path.name != kind.called:
        raise ConfigError(
            f"the source {given.path} is not {given.kind}'s directory of sessions",
            hint=f"name the directory that is called {kind.called}",
        )
    return Source(given.called, given.kind, given.path, kind.routes, kind.put_away)
