"""From which sessions one was branched off: its copied lines name what lies in their stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


def _parent(layout: Layout, name: SessionName) -> SessionName | None:
    try:
        transcript = layout.session_file(name)
    except BsdError:  # gone, or only put aside
        aside = [path for other, path in archives(layout, name.agent) if other == name]
        return parent_of(name.agent, aside[0]) if aside else None
    return parent_of(name.agent, transcript)


def archives(layout: Layout, agent: str) -> Iterator[tuple[SessionName, Path]]:
    """The transcripts of an agent that the gateway put aside, and the sessions that they were."""
    try:
        directory = layout.sessions_dir(agent)
        names = sorted(os.listdir(directory))
    except (BsdError, OSError):  # it is gone, or leads elsewhere
        return
    for name in names:
        if session := put_aside(name):
            yield SessionName(agent, session), directory / name


def parent_of(agent: str, transcript: Path) -> SessionName | None:
    """The session that a transcript of this agent was branched off from, by its first line."""
    try:
        with TranscriptFile(transcript) as source:
            head = next(iter(source.lines()), None)
        stem = branched_from(parse_entry(head.raw) or {}) if head else None
        return SessionName(agent, stem) if stem else None
    except BsdError:  # gone, or a name that no session may have
        return None
