"""From which sessions one was branched off: its copied lines name what lies in their stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from bsd.formats.openclaw import branched_from, put_aside
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.transcript.reader import TranscriptFile, parse_entry

_MOST = 32  # generations: a header is read for each


def ancestors(layout: Layout, name: SessionName) -> Iterator[SessionName]:
    """The nearest first; a chain ends at a session whose transcript is gone.

    One that the gateway put aside is not: its store is where it was, until its time is up.
    """
    seen = {name}
    while len(seen) <= _MOST:
        parent = _parent(layout, name)
        if parent is None or parent in seen:
            return
        seen.add(parent)
        yield parent
        name = parent


def kept_elsewhere(layout: Layout, name: SessionName) -> Iterator[SessionName]:
    """Whose stores may hold lines that this session names, the likeliest first.

    After those that it was branched off from: all of these under other agents, since people give
    an agent's directory, or a project's, another name. A line's hash tells whether it is the one.
    """
    near = list(ancestors(layout, name))
    yield from near
    known = {name, *near}
    try:
        now = os.stat(layout.extracted)
        stores = _stores_of_sessions(layout, now.st_mtime_ns, now.st_nlink)
    except OSError:  # there are none, or nobody may look: what is missing is missing
        return
    for session in sorted({one.session for one in known}):
        for store in stores.get(session, ()):
            with suppress(BsdError):  # of a name that was cut, or a link that leads elsewhere
                other = layout.session_of_store(store)
                layout.store_dir(other)
                if other not in known:
                    yield other


@lru_cache(maxsize=2)
def _stores_of_sessions(layout: Layout, _mtime_ns: int, _links: int) -> dict[str, list[str]]:
    """The names of all stores by those of their sessions, for as long as none comes or goes.

    A look through all sessions asks for each that misses something.
    """
    found: dict[str, list[str]] = {}
    for store in sorted(os.listdir(layout.extracted)):
        found.setdefault(store.partition("_")[2], []).append(store)
    return found


def _parent(layout: Layout, name: SessionName) -> SessionName | None:
    try:
        transcript = layout.session_file(name)
    except BsdError:  # gone, or only put aside
        aside = (path for other, path in archives(layout, name.agent, name.session))
        return next((parent_of(name.agent, path) for path in aside), None)
    return parent_of(name.agent, transcript)


def archives(
    layout: Layout, agent: str, session: str | None = None
) -> Iterator[tuple[SessionName, Path]]:
    """The transcripts of an agent that the gateway put aside, and the sessions that they were."""
    try:
        directory = layout.sessions_dir(agent)
        found = _put_aside(directory, os.stat(directory).st_mtime_ns)
    except (BsdError, OSError):  # it is gone, or leads elsewhere
        return
    for one in found if session is None else (session,):
        for name in found.get(one, ()):
            yield SessionName(agent, one), directory / name


@lru_cache(maxsize=2)
def _put_aside(directory: Path, _mtime_ns: int) -> dict[str, list[str]]:
    """Their names by those of their sessions, for as long as the directory stays as it is."""
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(directory)):
        if session := put_aside(name):
            found.setdefault(session, []).append(name)
    return found


def parent_of(agent: str, transcript: Path) -> SessionName | None:
    """The session that a transcript of this agent was branched off from, by its first line."""
    try:
        with TranscriptFile(transcript) as source:
            head = next(iter(source.lines()), None)
        stem = branched_from(parse_entry(head.raw) or {}) if head else None
        return SessionName(agent, stem) if stem else None
    except BsdError:  # gone, or a name that no session may have
        return None
