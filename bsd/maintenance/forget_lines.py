"""Lines of packs and copies of sessions from which an entry or some lines are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from bsd.core.errors import BsdError, NotFound
from bsd.core.files import sync_dir
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.references import may_be_entry
from bsd.sessions.commit.exchange import Step
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive
from bsd.store.history import NAMED_FILE
from bsd.store.originals import digest
from bsd.store.pack import Pack, PackWriter
from bsd.store.snapshot_parts import SnapshotReader, rewrite_snapshot
from bsd.store.snapshots import Snapshot, read_snapshot, snapshot_directories
from bsd.store.uploads import note_deleted
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import open_transcript
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line, Transcript, parse_entry
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


class Named(NamedTuple):
    """Hashes of stored lines, and ids of entries."""

    hashes: set[str]
    entries: set[str | None]


def only_in_copy(layout: Layout, name: SessionName, origin: str) -> Named | None:
    """Return the stored lines that only the copy with this origin has or names, and its entries.

    Another session can have the same name: the present one, or one of another copy. None: one of
    them cannot be read, and may need these lines.
    """
    gone, kept = Named(set(), set()), Named(set(), set())
    try:
        program = program_of(layout, name.agent)
        for directory in snapshot_directories(layout.archive_dir(name)):
            if (snapshot := read_snapshot(directory)) is None:
                continue
            with closing(SnapshotReader(snapshot)) as source:
                if snapshot.origin == origin:
                    gone.hashes.update(digest(line.raw) for line in source.lines())
                _add_named(gone if snapshot.origin == origin else kept, source, program)
        with suppress(NotFound), open_transcript(layout, name) as source:
            _add_named(kept, source, program)
    except (BsdError, OSError):
        return None
    return Named(gone.hashes - kept.hashes, gone.entries - kept.entries)


def _add_named(named: Named, source: Transcript, program: AgentProgram) -> None:
    fmt = format_of(source, program)
    for line in source.lines():
        named.hashes.update(match[2].decode() for match in NAMED_FILE.finditer(line.raw))
        if fmt is not None and (entry := parse_entry(line.raw)) is not None:
            named.entries.add(fmt.info(entry).id)


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
