"""Detects sessions whose extracted values lie in another root's store, such as another machine's.

Several machines, each with its own bsd and root, may synchronize a directory of sessions. A root
leaves a session alone if another root has extracted from it, and still serves the other sessions of
the source. A root cannot know what another one extracts, so a session belongs to the root that
extracts its first value.

Only sources have such sessions: files in the root move together with the root's own store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, LeftAlone, os_problem
from bsd.core.layout import COPY, Layout, SessionName
from bsd.sessions.notes import expired_before
from bsd.sessions.session import Session
from bsd.store.contents import contents_of
from bsd.transcripts.agents.entry import MARKER, Marker
from bsd.transcripts.agents.opening import open_transcript
from bsd.transcripts.reader import Transcript, parse_entry

_NEEDLE = f'"{MARKER}"'.encode()


def why_foreign(session: Session, source: Transcript | None = None) -> LeftAlone | None:
    """Return why bsd leaves a session alone whose values are in another root's store.

    None if it has no such values. Values are not foreign if this root has a store, packs or a
    history of the session, if one of them is in any store of this root (the session is a copy), or
    if this root extracted them once and they expired.

    Args:
        source: the session, if the caller has it open.

    Raises:
        BsdError: the session cannot be read.
    """
    layout, name = session.layout, session.name
    if layout.source_of(name.agent) is None or _has_originals(session):
        return None
    if source is None:
        with open_transcript(layout, name) as opened:
            markers = list(_markers(opened))
    else:
        markers = list(_markers(source))
    if not markers:
        return None
    contents = contents_of(layout)
    contents.changed()
    if any(contents.with_hash(marker.hash) for marker in markers):
        return None
    expired = expired_before(layout)
    if all(marker.at < expired for marker in markers) or _is_in_audit(layout, name):
        return None
    return LeftAlone(
        f"{len(markers)} of the entries of {name} were extracted by a bsd with another root, and"
        " their values lie there (on another machine, if this directory is synchronized)",
        hint="work on it there: `bsd restore-all` there puts the values back into the session",
    )


def _has_originals(session: Session) -> bool:
    """Return whether this root stores lines of the session. A snapshot does not count."""
    archive = session.layout.archive_dir(session.name)
    if any(map(os.path.lexists, (session.store.directory, session.history.directory))):
        return True
    try:
        return not all(each.startswith(COPY) for each in os.listdir(archive))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise os_problem(error, f"reading {archive}") from error


def _is_in_audit(layout: Layout, name: SessionName) -> bool:
    """Return whether this root has ever extracted from the session; its store may be lost since."""
    found = AuditLog(layout.audit_file).search(name.session.encode())
    return any(
        record.get("action") == "extract" and record.get("agent") == name.agent for record in found
    )


def foreign_reason(layout: Layout, name: SessionName) -> str | None:
    """Return the reason as text; None if there is none or the session cannot be read."""
    with suppress(BsdError, OSError):
        found = why_foreign(Session(layout, name))
        return None if found is None else found.message
    return None


def _markers(source: Transcript) -> Iterator[Marker]:
    for line in source.lines_holding(_NEEDLE):
        entry = parse_entry(line.raw)
        if entry is not None and (marker := Marker.of(entry)) is not None:
            yield marker
