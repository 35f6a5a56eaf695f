"""Lines of packs and copies of sessions from which an entry or some lines are forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from bsd.core.errors import BsdError
from bsd.core.files import sync_dir
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.leftovers import is_there
from bsd.maintenance.references import References, ReferringSession, may_be_entry
from bsd.sessions.commit.exchange import Step
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive
from bsd.store.contents import StoredPlace, contents_of
from bsd.store.originals import digest
from bsd.store.pack import Pack, PackWriter
from bsd.store.snapshot_parts import SnapshotReader, rewrite_snapshot
from bsd.store.snapshots import Snapshot, read_snapshot, snapshot_directories
from bsd.store.uploads import note_deleted
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import database_with
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line, parse_entry
from bsd.transcripts.splice import SpliceError, edit, encode_string

_CONTENT_FORGOTTEN = encode_string("[content forgotten]")


def forget_packed(
    root: Path,
    archive: Path,
    hashes: Collection[bytes] | None,
    before: float | None,
    after_step: Step,
) -> tuple[int, int]:
    """Rewrite packs without some lines; an old pack is deleted once the new one is durable.

    Args:
        root: bsd's root.
        archive: the session's directory in the archive.
        hashes: the hashes of the lines; None: all lines.
        before: only lines that were extracted before this time, epoch seconds; None: always.
        after_step: called with `packed` after each new pack.

    Returns:
        The number of the lines and their bytes.
    """
    lines = size = 0
    for path in SessionArchive(archive).packs():
        with Pack(path) as pack:
            if not (gone := _lines_to_forget(pack, hashes, before)):
                continue
            new = None
            if len(gone) < pack.summary.lines:
                with PackWriter(archive) as writer:
                    for packed in pack:
                        if packed.hash not in gone:
                            writer.add(packed.line, packed.record)
                    new = writer.finish(pack.summary.oldest, pack.summary.newest)
                after_step("packed")
            lines, size = lines + len(gone), size + sum(gone.values())
        if new != path:
            note_deleted(root, [path], must=True)
            path.unlink()
        sync_dir(archive)
    return lines, size


def _lines_to_forget(
    pack: Pack, hashes: Collection[bytes] | None, before: float | None
) -> dict[bytes, int]:
    """Return the sizes of the lines to remove from a pack, by hash."""
    if hashes is not None and not any(place.hash in hashes for place in pack.places()):
        return {}
    spares = before is not None and pack.summary.newest > before
    return {
        place.hash: place.size
        for place, record in zip(pack.in_order(), pack.records(), strict=True)
        if (hashes is None or place.hash in hashes)
        and not (spares and _extracted_after(record, before))
    }


def _extracted_after(record: Mapping[str, Any], moment: float | None) -> bool:
    """Return True if the record of a line says that it was extracted after `moment`."""
    with suppress(ValueError):
        at = datetime.fromisoformat(str(record.get("extracted_at", "")))
        return moment is not None and at.timestamp() > moment
    return False


class CopyContent(NamedTuple):
    """The hashes of the stored lines of a copy, and the ids of its entries."""

    hashes: set[str]
    entries: set[str | None]


def only_in_copy(layout: Layout, name: SessionName, origin: str) -> CopyContent | None:
    """Return the stored lines that only the copy with this origin has or needs, and its entries.

    Another session can have the same name: the present one, or one of another copy. None: one of
    them cannot be read, and may need these lines.
    """
    gone, kept = CopyContent(set(), set()), CopyContent(set(), set())
    try:
        content = _StoredContent(layout, name)
        for directory in snapshot_directories(layout.archive_dir(name)):
            if (copy := read_snapshot(directory)) is None:
                continue
            is_gone = copy.origin == origin
            history = layout.history_dir(name)
            session = ReferringSession(name, directory, history, snapshot=copy)
            content.add(gone if is_gone else kept, session, inline=is_gone)
        database = database_with(layout, name)
        if database is not None or is_there(layout, name):
            path, history = layout.transcript(name), layout.history_dir(name)
            content.add(kept, ReferringSession(name, path, history, database=database))
    except (BsdError, OSError):
        return None
    return CopyContent(gone.hashes - kept.hashes, gone.entries - kept.entries)


class _StoredContent:
    """The stored lines of a session's store and archive."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self._references = References(layout)
        self._program = program_of(layout, name.agent)
        self._hashes: set[str] = set()
        self._places: dict[int, list[StoredPlace]] = defaultdict(list)
        contents = contents_of(layout)
        contents.changed()
        for directory in (layout.store_dir(name), layout.archive_dir(name)):
            for place in contents.of_store(directory):
                self._hashes.add(place.hash)
                self._places[place.entry].append(place)

    def add(self, content: CopyContent, session: ReferringSession, *, inline: bool = False) -> None:
        """Add the stored lines to which a session refers, and its entries.

        Args:
            content: is changed.
            session: the session, or a copy.
            inline: also add stored lines that it has inline.
        """
        found = self._references.of(session, self._hashes, self._places)
        content.hashes.update(each.marker.hash for each in found if each.index is not None)
        with session.open() as source:
            fmt = format_of(source, self._program)
            for line in source.lines():
                if inline and (hash_ := digest(line.raw)) in self._hashes:
                    content.hashes.add(hash_)
                if fmt is not None and (entry := parse_entry(line.raw)) is not None:
                    content.entries.add(fmt.info(entry).id)


def changed_lines(snapshot: Snapshot, change: Callable[[Line], bytes]) -> set[str]:
    """Return the hashes of the lines of a snapshot that `change` changes."""
    with closing(SnapshotReader(snapshot)) as source:
        return {digest(line.raw) for line in source.lines() if change(line) != line.raw}


def forget_in_snapshot(layout: Layout, snapshot: Snapshot, entry: str, now: float) -> int:
    """Rewrite a snapshot without the values of an entry; return the number of changed lines."""
    fmt = format_of_snapshot(layout, snapshot)
    if fmt is None:
        return 0
    return rewrite_snapshot(snapshot, lambda line: _without_entry(line, fmt, entry), now)


def format_of_snapshot(layout: Layout, snapshot: Snapshot) -> TranscriptFormat | None:
    """Return the format of a snapshot's lines; None if bsd does not know it."""
    with closing(SnapshotReader(snapshot)) as source:
        return format_of(source, program_of(layout, snapshot.name.agent))


def entries_of_lines(
    snapshot: Snapshot, fmt: TranscriptFormat, hashes: Collection[str]
) -> set[str | None]:
    """Return the entries of the lines of a snapshot that have one of these hashes."""
    with closing(SnapshotReader(snapshot)) as source:
        found = (parse_entry(line.raw) for line in source.lines() if digest(line.raw) in hashes)
        return {fmt.info(entry).id for entry in found if entry is not None}


def without_lines(fmt: TranscriptFormat, hashes: Collection[str]) -> Callable[[Line], bytes]:
    """Return a change of lines: those with these hashes lose their values."""

    def change(line: Line) -> bytes:
        if digest(line.raw) not in hashes:
            return line.raw
        return _without_values(line, fmt)

    return change


def _without_entry(line: Line, fmt: TranscriptFormat, entry_id: str) -> bytes:
    """Return a line; if it is of the entry, with a note in place of each value."""
    if not may_be_entry(fmt, [entry_id])(line.raw) or (entry := parse_entry(line.raw)) is None:
        return line.raw
    info = fmt.info(entry)
    return line.raw if info.id != entry_id or info.is_header else _without_values(line, fmt)


def _without_values(line: Line, fmt: TranscriptFormat) -> bytes:
    """Return a line with a note in place of each value."""
    new = line.raw
    if (entry := parse_entry(line.raw)) is not None:
        for value in fmt.values(entry):
            with suppress(SpliceError):
                replaced = {value.path: value.shape.holding(_CONTENT_FORGOTTEN)}
                new = edit(new, replace=replaced, remove=value.removes)
    return new
