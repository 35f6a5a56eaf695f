"""Opens a session to be read: whose it is, and in which dialect it is written."""

from __future__ import annotations

from bsd.formats.base import Format, NotOurs
from bsd.formats.owners import owner_of
from bsd.foundation.errors import LeftAlone
from bsd.foundation.layout import Layout, SessionName
from bsd.transcript.reader import TranscriptFile


def open_session(layout: Layout, name: SessionName) -> tuple[TranscriptFile, Format]:
    """Open a session and tell its dialect; raises LeftAlone, NotFound, Forbidden."""
    owner = owner_of(layout, name.agent)
    if database := owner.database():
        raise LeftAlone(f"the sessions of {name.agent} are in {database}")
    source = TranscriptFile(layout.session_file(name))
    fmt = owner.detect(line.raw for line in source.lines())
    if isinstance(fmt, NotOurs):
        source.close()
        raise LeftAlone(fmt.reason)
    return source, fmt
