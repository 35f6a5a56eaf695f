"""Opens a session to be read: whose it is, and in which dialect it is written."""

from __future__ import annotations

from bsd.agents.dialect import Format, NotOurs
from bsd.agents.owners import owner_of
from bsd.foundation.errors import LeftAlone
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.trace import traced
from bsd.text.reader import TranscriptFile

_log = get_logger("session")


@traced(_log)
def open_session(layout: Layout, name: SessionName) -> tuple[TranscriptFile, Format]:
    """Open a session that may be edited, and tell its dialect.

    Raises LeftAlone, NotFound, Forbidden.
    """
    source, fmt, why_not = _open(layout, name)
    if why_not is None and fmt is not None:
        return source, fmt
    source.close()
    raise LeftAlone(why_not or "foreign")


def open_to_read(layout: Layout, name: SessionName) -> tuple[TranscriptFile, Format]:
    """The same of a session that need not be ours to edit, as long as its lines are understood."""
    source, fmt, why_not = _open(layout, name)
    if fmt is not None:
        return source, fmt
    source.close()
    raise LeftAlone(why_not or "foreign")


def _open(layout: Layout, name: SessionName) -> tuple[TranscriptFile, Format | None, str | None]:
    """The session, its dialect if it can be read, and why it is left alone if it may not be."""
    owner = owner_of(layout, name.agent)
    if database := owner.database():
        raise LeftAlone(f"the sessions of {name.agent} are in {database}")
    source = TranscriptFile(layout.session_file(name))
    found = owner.detect(line.raw for line in source.lines())
    if _log.is_enabled("debug"):
        found_as = found.reason if isinstance(found, NotOurs) else found.name
        known = source.identity
        told = {"bytes": known.size, "mtime_ns": known.mtime_ns, "dialect": found_as}
        _log.debug(f"Session {name} is read", session=str(name), **told)
    if isinstance(found, NotOurs):
        return source, found.reads, found.reason
    return source, found, None
