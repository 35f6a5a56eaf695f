"""Sessions that their program has deleted, known by their snapshots.

A program has deleted a session if the transcript's place is empty or holds the transcript of
another session. Sessions deleted with bsd are in the trash and follow the rules of the trash.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path

from bsd.core.errors import BsdError, ConfigError, Conflict, Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.leftovers import is_there
from bsd.maintenance.trashed import transcripts
from bsd.sessions.session import format_of
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import (
    CopiedVersions,
    Snapshot,
    archive_directories,
    read_snapshot,
    snapshot_directories,
    snapshots_in,
    snapshots_of,
)
from bsd.transcripts.agents.opening import database_with, open_transcript, stat_transcript
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Written
from bsd.transcripts.reader import InBlocks, Transcript, parse_entry

_LINES_READ = 50
_HINT = "`bsd archive list` shows the copies"


def is_deleted(layout: Layout, name: SessionName) -> bool:
    """Return True if the session's transcript does not exist; False if that cannot be determined.

    If the source itself does not exist, for example because it is not mounted, return False.
    """
    source = layout.source_of(name.agent)
    try:
        os.stat(
            source.path if source else layout.agents
        )  # an unmounted directory must not make its sessions look deleted
        if database_with(layout, name) is None:
            os.lstat(layout.transcript(name))
    except (FileNotFoundError, NotADirectoryError):
        return source is None or source.path.is_dir()
    except (BsdError, OSError):  # a link out of the root, a directory without access
        return False
    return False


def deleted_sessions(
    layout: Layout, agent: str | None = None, *, strictly: bool = False
) -> list[Snapshot]:
    """Return the snapshots of deleted sessions, the most recently used first.

    Args:
        layout: the root.
        agent: only sessions of this agent.
        strictly: raise BsdError or OSError if a snapshot cannot be read now, and include sessions
            whose program's directory does not exist. Damaged snapshots are left out in any case.
    """
    trashed = {name for name, _ in transcripts(layout)}
    copied = CopiedVersions(layout).versions
    unchanged = copied.items() & (_versions(layout).items() if copied else set())
    in_place = {store for store, _ in unchanged}
    found = []
    for archive in archive_directories(layout):
        if archive.name in in_place and _has_one_snapshot(archive):
            continue
        for snapshot in snapshots_in(archive, strictly=strictly):
            if agent not in (None, snapshot.name.agent):
                continue
            if _is_deleted(layout, snapshot, trashed) or (
                strictly and not is_there(layout, snapshot.name)
            ):
                found.append(snapshot)
    return sorted(found, key=lambda each: each.transcript.was.mtime_ns, reverse=True)


def find_deleted(layout: Layout, text: str) -> Snapshot:
    """Return the snapshot of a deleted session by its name or id.

    Args:
        layout: the root.
        text: AGENT/SESSION, or the id of a snapshot.

    Raises:
        NotFound: no deleted session has this name.
        Conflict: the session still exists.
        Invalid: several deleted sessions have this name.
        Unavailable: the snapshot is damaged.
    """
    found = deleted_sessions(layout)
    chosen = [snapshot for snapshot in found if snapshot.id == text]
    if not chosen:
        name = SessionName.parse(text)
        chosen = [snapshot for snapshot in found if snapshot.name == name]
        if not chosen and snapshots_of(layout, name) and not is_deleted(layout, name):
            raise Conflict(f"session {name} was not deleted: its file is in its place", hint=_HINT)
        if not chosen:  # since the list was made, the program may have deleted the session
            chosen = [each for each in deleted_sessions(layout) if each.name == name]
    if not chosen:
        with suppress(Invalid, FileNotFoundError):
            name = SessionName.parse(text.partition("@")[0])
            for directory in snapshot_directories(layout.archive_dir(name)):
                read_snapshot(directory)
        raise NotFound(f"there is no copy of {text} in the archive", hint=_HINT)
    if len(chosen) > 1:
        which = ", ".join(snapshot.id for snapshot in chosen)
        raise Invalid(f"{len(chosen)} sessions were named {text}", hint=f"one of {which}")
    return chosen[0]


def deleted_parts(layout: Layout, head: SessionName) -> list[Snapshot]:
    """Return the latest snapshot of each deleted session that is a part of `head`."""
    found: dict[SessionName, Snapshot] = {}
    for snapshot in deleted_sessions(layout):
        if snapshot.parent == str(head):
            with suppress(BsdError):  # its agent is not of this program
                program = program_of(layout, snapshot.name.agent)
                if parent_of(layout, program) == snapshot.parent:
                    found.setdefault(snapshot.name, snapshot)
    return [found[name] for name in sorted(found)]


def open_or_snapshot(layout: Layout, name: SessionName) -> InBlocks:
    """Open a session, or its latest snapshot if it is deleted; raises NotFound, Forbidden, Busy."""
    try:
        return open_transcript(layout, name)
    except NotFound:
        if is_deleted(layout, name):
            trashed = {each for each, _ in transcripts(layout)}
            found = [
                each for each in snapshots_of(layout, name) if _is_deleted(layout, each, trashed)
            ]
            if found:
                return SnapshotReader(max(found, key=lambda each: each.transcript.was.mtime_ns))
        raise


def _has_one_snapshot(archive: Path) -> bool:
    with suppress(OSError):  # `snapshots_in` reports the problem
        return len(list(snapshot_directories(archive))) == 1
    return False


def _versions(layout: Layout) -> dict[str, Written]:
    """Return the present state of all existing transcripts, by the names of their stores."""
    with suppress(ConfigError):  # a root without agents
        found = catalog.with_stats(layout)
        return {layout.store_name(name): Written.of(stat) for name, stat in found}
    return {}


def _is_deleted(layout: Layout, snapshot: Snapshot, trashed: set[SessionName]) -> bool:
    """Return True if the session is neither in its place nor in the trash.

    False if that cannot be determined. A transcript of another session in its place does not count.
    """
    if is_deleted(layout, snapshot.name):
        return snapshot.gone_at is not None or snapshot.name not in trashed
    if layout.excluded(snapshot.name):  # excluded sessions are not opened
        return False
    try:
        found = stat_transcript(layout, snapshot.name)
        if Written.of(found) == snapshot.transcript.was.written:
            return False
        with open_transcript(layout, snapshot.name) as source:
            origin = origin_of(source, program_of(layout, snapshot.name.agent))
            return origin != snapshot.origin and not has_grown(snapshot, source)
    except (BsdError, OSError):
        return False


# --- which session a transcript is ---


def origin_of(source: Transcript, program: AgentProgram) -> str:
    """Return 16 hex digits that distinguish a session from another session of the same name.

    They are a hash of the id of the first message, which extraction never changes; if there is no
    message, of the header's id; if there is no header id, of the first line.
    """
    fmt = format_of(source, program)
    first: bytes | None = None
    header: str | None = None
    for line in islice(source.lines(), _LINES_READ):
        first = line.raw if first is None else first
        if fmt is None or (entry := parse_entry(line.raw)) is None:
            continue
        info = fmt.info(entry)
        if info.is_message and not info.is_header and info.id:
            return _short_hash(info.id.encode("utf-8", "replace"))
        header = header or info.id
    return _short_hash(header.encode("utf-8", "replace") if header else first or b"")


def has_grown(snapshot: Snapshot, source: Transcript) -> bool:
    """Return True if this is the copied file, to which messages may have been added since.

    The origin of a file changes if it is copied before its first message.
    """
    was, now = snapshot.transcript.was, source.identity
    if (was.dev, was.ino) != (now.dev, now.ino) or snapshot.gone_at is not None:
        return False
    with suppress(BsdError), closing(SnapshotReader(snapshot)) as copied:
        return _first_line(copied) == _first_line(source)
    return False


def parent_of(layout: Layout, program: AgentProgram) -> str | None:
    """Return the name of the session of which this agent's sessions are parts, if any."""
    path = program.part_of
    if path is None:
        return None
    agents = (source.agent_at(path.parent) for source in layout.sources)
    agent = next(filter(None, agents), None)
    return f"{agent}/{path.stem}" if agent else None


def _first_line(source: Transcript) -> bytes:
    return next((line.raw for line in source.lines()), b"")


def _short_hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def beginnings(layout: Layout, head: Snapshot) -> list[Snapshot]:
    """Return the copies of deleted sessions in whose files a session begins, its own first."""
    found: list[Snapshot] = []
    copy = head
    while copy.begins_in is not None:
        name = SessionName.parse(copy.begins_in)
        copies = snapshots_of(layout, name) if is_deleted(layout, name) else []
        if not copies or name in {head.name, *(each.name for each in found)}:
            break
        copy = max(copies, key=lambda each: each.transcript.was.mtime_ns)
        found.append(copy)
    return found
