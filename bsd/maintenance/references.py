"""Finds the sessions that refer to stored lines, and the sessions that contain the same entries.

A session refers to a stored line by the hash in the marker of an entry, by a placeholder if its
program has dropped the marker, or by its undo history. `store/contents.py` finds the place of a
stored line by its hash. A session that holds the text inline has no reference, so such sessions are
found by reading them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bsd.core.errors import BsdError, Busy, ConfigError, LeftAlone, NotFound
from bsd.core.files import LARGEST_LINE, read_plain
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, parent_of
from bsd.maintenance.trashed import transcripts
from bsd.sessions.session import format_of
from bsd.store.contents import StoredPlace, contents_of
from bsd.store.history import NAMED_FILE, named_files
from bsd.store.markers import NEEDLES, Markers, stored_line
from bsd.store.originals import Missing, SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import Snapshot, snapshots_of
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.entry import MARKER, Entry, Marker, entry_key, mentioned_ids
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import (
    database_with,
    has_transcript,
    open_file,
    open_transcript,
)
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import (
    InBlocks,
    Transcript,
    parse_entry,
    parse_kept,
)
from bsd.transcripts.splice import SpliceError, encode_string, find

_LINES_READ, _IDS_COMPARED = 200, 8
_MOST_TEXTS, _SHORTEST_TEXT = 32, 12  # characters


@dataclass(frozen=True, slots=True)
class ReferringSession:
    """An existing session, or one that was renamed by its program, deleted, or trashed."""

    name: SessionName
    transcript: Path  # for a deleted session, the directory of its snapshot
    history: Path
    store: Path | None = None  # the store in the trash; None: the session's usual store
    snapshot: Snapshot | None = None  # only for a deleted session
    database: SessionDatabase | None = None  # which holds the session instead of the transcript

    def open(self) -> InBlocks:
        """Open the transcript or the snapshot."""
        if self.database is not None:
            return self.database.open(self.name.session)
        return SnapshotReader(self.snapshot) if self.snapshot else open_file(self.transcript)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a session to a stored line.

    `index`: 0-based number of the referring line; None: only the history refers to it.
    """

    marker: Marker
    index: int | None


class References:
    """Finds references under a root.

    Excluded sessions are read, too, or they would lose the lines that they refer to. Transcripts
    without references are remembered, so that each object reads them only once.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout.with_excluded()
        self._without: dict[Path, Identity] = {}

    def sessions(self) -> Iterator[ReferringSession]:
        """Yield all sessions: existing and renamed ones first, then deleted ones, then the trash.

        Raises BsdError, OSError if a directory or a snapshot cannot be read.
        """
        layout = self.layout
        for _, problem in catalog.unreadable(layout):
            raise problem
        for agent in self._agents():
            for name in catalog.names(layout, agent):
                path, history = layout.transcript(name), layout.history_dir(name)
                yield ReferringSession(name, path, history, database=database_with(layout, name))
            for name, path in catalog.renamed_by_program(layout, agent):
                yield ReferringSession(name, path, layout.history_dir(name))
        for snapshot in deleted_sessions(layout, strictly=True):
            name, directory = snapshot.name, snapshot.directory
            yield ReferringSession(name, directory, layout.history_dir(name), snapshot=snapshot)
        for name, place in transcripts(layout):
            yield ReferringSession(name, place.transcript, place.history, place.store)

    def _agents(self) -> Iterator[str]:
        """Yield all agents except those whose directory leads out of the root."""
        with suppress(ConfigError):  # a root without agents
            for agent in catalog.agents(self.layout):
                with suppress(BsdError):
                    self.layout.sessions_dir(agent.name)
                    yield agent.name

    def of(
        self,
        session: ReferringSession,
        hashes: Container[str],
        places: Mapping[int, Collection[StoredPlace]],
        *,
        every: bool = False,
    ) -> list[Reference]:
        """Return the references in a session's lines, then those in its undo history.

        Args:
            session: a session from `sessions`.
            hashes: the hashes of the wanted stored lines. Lines that name no such hash are not
                parsed.
            places: the same stored lines, by the key of their entry.
            every: all stored lines are wanted.

        Raises:
            Busy: the session was moved meanwhile.
            BsdError, OSError: the session or a stored line cannot be read.
        """
        in_history = (
            Marker(*each, size=0, keys=(), at="") for each in named_files(session.history)
        )
        return [
            *self._in_lines(session, hashes, places, every=every),
            *(Reference(marker, None) for marker in in_history),
        ]

    def _in_lines(
        self,
        session: ReferringSession,
        hashes: Container[str],
        places: Mapping[int, Collection[StoredPlace]],
        *,
        every: bool,
    ) -> list[Reference]:
        found: list[Reference] = []
        try:
            with session.open() as source:
                if self._without.get(session.transcript) == source.identity:
                    return []
                lines = [line for line in source.lines() if _may_refer(line.raw)]
                if not lines:
                    self._without[session.transcript] = source.identity
                lines = [line for line in lines if every or _names(line.raw, hashes, places)]
                if not lines:
                    return []
                fmt = format_of(source, program_of(self.layout, session.name.agent))
                store = SessionStore(self.layout, session.name, session.store)
                for line in lines:
                    entry = parse_entry(line.raw) or _marker_alone(line.raw)
                    if entry is not None:
                        markers = _markers(source, fmt, store, entry, line.raw, line.index)
                        found += [Reference(marker, line.index) for marker in markers]
        except NotFound as error:
            problem = f"{session.transcript} has just been moved"
            raise Busy(problem, hint="again in a moment") from error
        except LeftAlone as error:
            problem = f"{session.transcript}: {error.message}, and may need lines to be deleted"
            raise LeftAlone(problem, hint="repair that file, or move it away") from error
        return found


def _may_refer(raw: bytes) -> bool:
    return any(needle in raw for needle in NEEDLES)


def _names(
    raw: bytes, hashes: Container[str], places: Mapping[int, Collection[StoredPlace]]
) -> bool:
    """Return True if a line may refer to a stored line in `hashes` or `places`.

    Raises BsdError, OSError if the stored line that a bare placeholder may mean cannot be read.
    """
    if any(match[2].decode() in hashes for match in NAMED_FILE.finditer(raw)):
        return True
    if NEEDLES[0] in raw:
        return False  # the line has a marker, and the marker names another stored line
    keys = {entry_key(id_) for id_ in mentioned_ids(raw.decode("utf-8", "replace"))}
    named = [place for key in keys & places.keys() for place in places[key]]
    for place in named:
        place.readable_line()  # raises if unreadable: only this line tells the missing value
    return bool(named)


def _markers(
    source: InBlocks,
    fmt: TranscriptFormat | None,
    store: SessionStore,
    entry: Entry,
    raw: bytes,
    index: int,
) -> list[Marker]:
    """Return the markers of an entry, except markers copied from another entry."""
    if fmt is None:
        return [marker] if (marker := Marker.of(entry)) else []
    return [
        marker
        for marker in Markers(source, fmt, store).of(entry, fmt.info(entry), index)
        if stored_line(raw, entry, marker, fmt, store) is not Missing.FOREIGN
    ]


def _marker_alone(raw: bytes) -> Entry | None:
    """Return an entry that has only the marker, for a line that is too large to be parsed."""
    with suppress(SpliceError):
        span = find(raw, [(MARKER,)])[(MARKER,)]
        return parse_entry(b'{"%b":%b}' % (MARKER.encode(), raw[slice(*span)]))
    return None


# --- other sessions that keep the same lines ---


def sessions_with_stored(layout: Layout, name: SessionName, hashes: Collection[str]) -> list[str]:
    """Return the other sessions whose store or archive holds any of these lines."""
    contents = contents_of(layout)
    found = set()
    for hash_ in hashes:
        for place in contents.with_hash(hash_):
            if place.directory.parent.name != layout.trash.name:
                found.add(layout.session_of_store(place.directory.name))
    return sorted(str(other) for other in found if other not in (None, name))


def sessions_with_entries(layout: Layout, name: SessionName, entries: Sequence[str]) -> list[str]:
    """Return the other sessions of the same program that contain any of these entries.

    Existing sessions are read and returned by name. Deleted sessions are read from their snapshots
    and returned by the ids of these.
    """
    mine, found = layout.source_of(name.agent), []
    if not entries:
        return []
    for other in catalog.names(layout):
        if other != name and layout.source_of(other.agent) == mine:
            with suppress(BsdError, OSError), open_transcript(layout, other) as source:
                if _holds(layout, other, source, entries):
                    found.append(str(other))
    for snapshot in deleted_sessions(layout):
        other = snapshot.name
        if other != name and layout.source_of(other.agent) == mine:
            with suppress(BsdError, OSError), SnapshotReader(snapshot) as copied:
                if _holds(layout, other, copied, entries):
                    found.append(snapshot.id)
    return found


def sessions_like(layout: Layout, name: SessionName, snapshot: Snapshot | None) -> list[str]:
    """Return the other sessions that contain any of a session's first messages: forks and copies.

    `snapshot`: read the messages from this snapshot; None: from the transcript, or from the latest
    snapshot if there is no transcript.
    """
    with suppress(BsdError, OSError):
        if snapshot is None and not has_transcript(layout, name):
            snapshot = next(iter(snapshots_of(layout, name)), None)
            if snapshot is None:
                return []
        with SnapshotReader(snapshot) if snapshot else open_transcript(layout, name) as source:
            fmt = format_of(source, program_of(layout, name.agent))
            parsed = (parse_entry(line.raw) for line in islice(source.lines(), _LINES_READ))
            infos = (fmt.info(entry) for entry in parsed if fmt and entry is not None)
            ids = (info.id for info in infos if info.id and info.is_message and not info.is_header)
            return sessions_with_entries(layout, name, list(islice(ids, _IDS_COMPARED)))
    return []


def _holds(layout: Layout, name: SessionName, source: Transcript, entries: Sequence[str]) -> bool:
    """Return True if the session has any of these entries, rather than only mentioning its id."""
    fmt = format_of(source, program_of(layout, name.agent))
    return fmt is not None and any(lines_of(source, fmt, entries))


def lines_of(
    source: Transcript, fmt: TranscriptFormat, entries: Collection[str]
) -> Iterator[bytes]:
    """Yield the lines of these entries."""
    may_be = may_be_entry(fmt, entries)
    for line in source.lines():
        entry = parse_entry(line.raw) if may_be(line.raw) else None
        if entry is not None and fmt.info(entry).id in entries:
            yield line.raw


def may_be_entry(fmt: TranscriptFormat, entries: Collection[str]) -> Callable[[bytes], bool]:
    """Return a predicate for lines that works without parsing.

    It is true for all lines of these entries and false for most other lines.
    """
    made_of = {entry: fmt.made_of(entry) for entry in entries}
    patterns = {pattern for pattern in made_of.values() if pattern is not None}
    needles = [encode_string(entry) for entry, pattern in made_of.items() if pattern is None]
    return lambda raw: (
        any(needle in raw for needle in needles) or any(one.search(raw) for one in patterns)
    )


# --- files that belong to a session ---


def texts_of(fmt: TranscriptFormat, lines: Sequence[bytes]) -> set[str]:
    """Return the texts of all values in these lines, short values included."""
    entries = [entry for line in lines if (entry := parse_kept(line)) is not None]
    values = (value for entry in entries for value in fmt.values(entry, 1))
    return {value.text for value in values if value.text is not None}


def belongings_with(layout: Layout, name: SessionName, texts: Collection[str]) -> list[str]:
    """Return the files of a session that contain any of these texts: results, subagents, copies."""
    needles = set(_needles(texts))
    if not needles:
        return []

    def has_one(pieces: Iterator[bytes]) -> bool:
        return any(needle in piece for piece in pieces for needle in needles)

    found = set()
    for snapshot in snapshots_of(layout, name):
        for file in snapshot.files[1:]:
            with suppress(BsdError, OSError), SnapshotReader(snapshot, file) as copied:
                if has_one(copied.whole()):
                    found.add(f"{file.path} (in the copy in the archive)")
    for path in program_of(layout, name.agent).belongings(name.session):
        with suppress(OSError):
            if has_one(iter([read_plain(path, LARGEST_LINE)])):
                found.add(str(path))
    for part, source in _parts(layout, name):
        with suppress(BsdError, OSError), source:
            if has_one(line.raw for line in source.lines()):
                found.add(part)
    return sorted(found)


def _parts(layout: Layout, name: SessionName) -> Iterator[tuple[str, InBlocks]]:
    """Yield the parts of a session, opened: existing sessions, and snapshots of deleted ones."""
    for agent in catalog.agents(layout):
        if parent_of(layout, program_of(layout, agent.name)) == str(name):
            for part in catalog.names(layout, agent.name):
                with suppress(BsdError, OSError):
                    yield str(part), open_transcript(layout, part)
    for snapshot in deleted_sessions(layout):
        if snapshot.parent == str(name):
            yield snapshot.id, SnapshotReader(snapshot)


def _needles(texts: Collection[str]) -> Iterator[bytes]:
    """Yield the longest line of each text, unescaped and in the forms that JSON may have."""
    for text in islice(texts, _MOST_TEXTS):
        row = max(text.splitlines(), key=len, default="").strip()
        if len(row) >= _SHORTEST_TEXT:
            yield row.encode("utf-8", "surrogatepass")
            yield encode_string(row)[1:-1]
            yield json.dumps(row)[1:-1].encode()
