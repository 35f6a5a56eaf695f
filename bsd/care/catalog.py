"""The list of sessions: by stat and the store's indexes, never by reading transcripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from bsd.agents.owner import ENDING, Owner, Registered
from bsd.agents.owners import owner_of
from bsd.care.titles import Titles, when
from bsd.foundation.answers import Answer
from bsd.foundation.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName, check_name
from bsd.foundation.plain import is_directory
from bsd.store.extracted import SessionStore


@immutable
class SessionInfo:
    """One session as the list shows it. Sizes are bytes, times epoch seconds."""

    name: SessionName
    size: int
    updated: float  # when something was last said in it, as far as it tells
    mtime: float  # of its file
    title: str | None  # how people call it, else what was first asked; on one line
    label: str | None  # its key in its owner's list
    status: str | None  # by that list, or where its program has put it
    parent: str | None  # session id of its parent
    extracted_entries: int
    extracted_bytes: int  # of the store files


# What programs have put away, by agent.
_Files = Mapping[str, list[os.DirEntry[str]]]
_File = tuple[str, os.stat_result]


@immutable
class AgentInfo(Answer):
    """One agent; `note` says why its sessions are not listed or not edited, if so."""

    name: str
    sessions: int
    note: str | None
    sqlite: bool = False  # its sessions moved to SQLite: nothing of it is edited


@immutable
class Agents(Answer):
    """All agents."""

    agents: tuple[AgentInfo, ...]


def agents(layout: Layout) -> list[AgentInfo]:
    """All agents, SQLite-era and unreadable ones included; raises ConfigError, Forbidden."""
    away = layout.put_away()
    return [_agent(layout, name, away) for name in _agent_names(layout, away)]


def sessions(layout: Layout, agent: str | None = None) -> Iterator[SessionInfo]:
    """All sessions, newest first within an agent; things that are no sessions are left out."""
    titles = Titles(layout, agent)
    for _, found in groupby(with_stats(layout, agent), lambda one: one[0].agent):
        newest_first = sorted(found, key=lambda one: titles.updated(*one), reverse=True)
        yield from (describe(layout, *one, titles) for one in newest_first)


def names(layout: Layout, agent: str | None = None) -> Iterator[SessionName]:
    """The names of all sessions, those first whose files are newest; costs a stat each."""
    return (name for name, _ in with_stats(layout, agent))


def with_stats(
    layout: Layout, agent: str | None = None
) -> Iterator[tuple[SessionName, os.stat_result]]:
    """As `names`, with what stat says of each."""
    away = layout.put_away()
    for name in [check_name(agent, "agent")] if agent else _agent_names(layout, away):
        try:
            files = _session_files(layout, name, away)
        except BsdError:
            if agent:
                raise
            continue  # `agents` says what is wrong with it
        for session, stat in sorted(files, key=lambda one: one[1].st_mtime_ns, reverse=True):
            yield SessionName(name, session), stat


def put_aside(layout: Layout, agent: str) -> Iterator[tuple[SessionName, Path]]:
    """The transcripts of an agent that its program put aside, and the sessions that they were."""
    owner = owner_of(layout, agent)
    with suppress(FileNotFoundError, NotADirectoryError):
        directory = layout.sessions_dir(agent)
        for name in sorted(os.listdir(directory)):
            if session := owner.put_aside(name):
                yield SessionName(agent, session), directory / name


def _agent_names(layout: Layout, away: _Files) -> list[str]:
    in_sources = sorted({agent for agent, _ in layout.session_dirs()} | away.keys())
    try:
        with os.scandir(layout.agents) as found:
            names = [item.name for item in found if is_directory(item)]
    except (FileNotFoundError, NotADirectoryError):
        if layout.sources:
            return in_sources
        raise ConfigError(
            f"there is no OpenClaw directory at {layout.root} (it has no agents/)",
            hint="name yours with --root DIR, or set OPENCLAW_ROOT",
        ) from None
    except OSError as error:
        raise os_problem(error, f"reading {layout.agents}") from error
    # A directory called like an agent of a source could not be told from that.
    return sorted(name for name in names if layout.source_of(name) is None) + in_sources


def _agent(layout: Layout, name: str, away: _Files) -> AgentInfo:
    try:
        found = len(_session_files(layout, name, away))
    except BsdError as error:
        return AgentInfo(name, 0, error.message)
    owner = owner_of(layout, name)
    if database := owner.database():
        return AgentInfo(name, found, f"its sessions are in {database}: left alone", sqlite=True)
    told = [owner.registry().problem, _passed_over(layout, name), _twice(layout, name, away)]
    return AgentInfo(name, found, "; ".join(filter(None, told)) or None)


def _passed_over(layout: Layout, agent: str) -> str | None:
    """Which transcripts nobody will ever look at, for their names or as links."""
    odd = []
    with suppress(OSError), os.scandir(layout.sessions_dir(agent)) as found:
        odd = sorted(item.name for item in found if _is_odd(item))
    if not odd:
        return None
    shown = ", ".join(repr(name) for name in odd[:3]) + (", …" if len(odd) > 3 else "")
    files = "1 file is" if len(odd) == 1 else f"{len(odd)} files are"
    return f"{files} left alone: {shown} (links, or not only letters, digits and . _ @ : + -)"


def _twice(layout: Layout, agent: str, away: _Files) -> str | None:
    """Which sessions were put away and lie in the agent's directory, too: those are theirs."""
    directory = layout.sessions_dir(agent)
    paths = [file.path for file in away.get(agent, ()) if os.path.lexists(directory / file.name)]
    if not paths:
        return None
    shown = ", ".join(sorted(paths)[:3]) + (", …" if len(paths) > 3 else "")
    return f"left alone, since there is a file of the same name in {directory}: {shown}"


def _is_odd(item: os.DirEntry[str]) -> bool:
    stem = item.name.removesuffix(ENDING)
    if stem == item.name or stem.startswith("."):
        return False
    if item.is_symlink():
        return True
    try:
        check_name(stem, "session")
    except BsdError:
        return item.is_file()
    return False


def _session_files(layout: Layout, agent: str, away: _Files) -> list[_File]:
    """Those in the agent's directory, and those that its program has put away."""
    directory, owner = layout.sessions_dir(agent), owner_of(layout, agent)
    files: list[_File] = []
    try:
        with os.scandir(directory) as found:
            files = _sessions_among(found, owner)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    if others := away.get(agent):
        there = {session for session, _ in files}
        files += [one for one in _sessions_among(others, owner) if one[0] not in there]
    return files


def _sessions_among(items: Iterable[os.DirEntry[str]], owner: Owner) -> list[_File]:
    return [
        (item.name.removesuffix(ENDING), stat)
        for item in items
        if owner.is_session_file(item.name) and (stat := _stat_of_file(item)) is not None
    ]


def _stat_of_file(item: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return item.stat(follow_symlinks=False) if item.is_file(follow_symlinks=False) else None
    except FileNotFoundError:  # deleted since the directory was read
        return None


def status_of(layout: Layout, name: SessionName, entry: Registered | None) -> str | None:
    """What its program says of a session: in its list, or by where it has put it."""
    return entry.status if entry else layout.put_away_as(name)


def describe(
    layout: Layout, name: SessionName, stat: os.stat_result, titles: Titles | None = None
) -> SessionInfo:
    """One session as the list shows it; reads its store's index."""
    ends = (titles or Titles(layout, only=name)).of(name, stat)
    registry = owner_of(layout, name.agent).registry()
    entry = next(registry.find(name.session), None)
    records = SessionStore(layout, name).index.records.values()
    return SessionInfo(
        name=name,
        size=stat.st_size,
        updated=when(ends, stat),
        mtime=stat.st_mtime,
        title=registry.title(name.session) or ends.title,
        label=entry.key if entry else None,
        status=status_of(layout, name, entry),
        parent=entry.parent if entry else None,
        extracted_entries=len({record.entry_id for record in records}),
        extracted_bytes=sum(record.size for record in records),
    )


def find_session(layout: Layout, text: str) -> SessionName:
    """Read `agent/session`, or a session id that only one agent has (seeds 000, 001)."""
    if "/" in text:
        return SessionName.parse(text)
    check_name(text, "session")
    found = [name for name in names(layout) if name.session == text]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(map(str, found))
        raise Invalid(f"several agents have a session {text}", hint=f"one of {listed}")
    raise NotFound(f"there is no session {text}", hint="`bsd sessions` lists them")
