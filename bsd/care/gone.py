"""Sessions that their program has deleted, told by the copies that the archive keeps of them.

A session that was deleted through bsd is in the trash, whose rules hold for it.
"""

from __future__ import annotations

from contextlib import suppress

from bsd.agents.owners import owner_of
from bsd.care import catalog
from bsd.care.keeping import archived, as_copied, has_grown, is_gone, origin_of
from bsd.care.trashed import transcripts
from bsd.foundation.errors import BsdError, ConfigError, Conflict, Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.store.copies import CopiedTranscript, SessionCopy, copies_in, copies_of
from bsd.text.change import Written
from bsd.text.reader import InBlocks, TranscriptFile

_HINT = "`bsd archive list` shows what there is"


def gone_sessions(layout: Layout, agent: str | None = None) -> list[SessionCopy]:
    """The copies of all sessions that are gone, or of an agent's; those used last come first."""
    trashed = {each for each, _ in transcripts(layout)}
    known, live = as_copied(layout), _live(layout)
    gone = [
        copy
        for archive in archived(layout)
        for copy in copies_in(archive, but_one=_is_as_copied(archive.name, live, known))
        if agent in (None, copy.name.agent) and _is_gone(layout, copy, trashed)
    ]
    return sorted(gone, key=lambda copy: copy.transcript.was.mtime_ns, reverse=True)


def _is_as_copied(store: str, live: dict[str, Written], known: dict[str, Written]) -> bool:
    return store in live and live[store] == known.get(store)


def _live(layout: Layout) -> dict[str, Written]:
    """The sessions in their places, by the names of their stores."""
    with suppress(ConfigError):  # a root without agents
        found = catalog.with_stats(layout)
        return {layout.store_name(name): Written.of(stat) for name, stat in found}
    return {}


def _is_gone(layout: Layout, copy: SessionCopy, trashed: set[SessionName]) -> bool:
    if is_gone(layout, copy.name):
        return copy.gone_at is not None or copy.name not in trashed
    try:
        path = layout.session_file(copy.name)
        if Written.of(path.lstat()) == copy.transcript.was.written:
            return False
        with TranscriptFile(path) as source:
            same = origin_of(source, owner_of(layout, copy.name.agent)) == copy.origin
            return not same and not has_grown(copy, source)
    except (BsdError, OSError):  # something is there, and nobody can tell what
        return False


def find_gone(layout: Layout, text: str) -> SessionCopy:
    """The one that is meant: by its id, or the session's name; raises NotFound, Invalid."""
    found = gone_sessions(layout)
    chosen = [copy for copy in found if copy.id == text]
    if not chosen:
        name = SessionName.parse(text)
        chosen = [copy for copy in found if copy.name == name]
        if not chosen and copies_of(layout, name) and not is_gone(layout, name):
            raise Conflict(f"session {name} is not gone: it lies where it lay", hint=_HINT)
        if not chosen:  # its program may have put something there, and have taken it away again
            chosen = [copy for copy in gone_sessions(layout) if copy.name == name]
    if not chosen:
        raise NotFound(f"there is no copy of {text} in the archive", hint=_HINT)
    if len(chosen) > 1:
        which = ", ".join(copy.id for copy in chosen)
        raise Invalid(f"{len(chosen)} sessions were called {text}", hint=f"one of {which}")
    return chosen[0]


def parts_of_session(layout: Layout, head: SessionCopy) -> list[SessionCopy]:
    """The copies of sessions that are parts of this one, and gone with it: of each the latest."""
    found: dict[SessionName, SessionCopy] = {}
    for copy in gone_sessions(layout):
        if copy.parent == str(head.name):
            found.setdefault(copy.name, copy)
    return [found[name] for name in sorted(found)]


def gone_copy(layout: Layout, name: SessionName) -> SessionCopy | None:
    """The latest copy of a session, if there is none of that name in its place."""
    if not is_gone(layout, name):
        return None
    trashed = {each for each, _ in transcripts(layout)}
    found = (copy for copy in copies_of(layout, name) if _is_gone(layout, copy, trashed))
    return max(found, key=lambda copy: copy.transcript.was.mtime_ns, default=None)


def open_or_copy(layout: Layout, name: SessionName) -> InBlocks:
    """A session, or its copy if it is gone; raises NotFound, Forbidden, Busy."""
    try:
        return TranscriptFile(layout.session_file(name))
    except NotFound:
        if (copy := gone_copy(layout, name)) is not None:
            return CopiedTranscript(copy)
        raise
