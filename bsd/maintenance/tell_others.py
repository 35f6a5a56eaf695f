"""Tombstones of what a user forgets or deletes for good, kept in the journal until they are sent.

Without a journal of uploads, this host shares nothing, and there is nothing to do.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from bsd.core.errors import BsdError, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.deleted_sessions import origin_of
from bsd.store.contents import contents_of
from bsd.store.snapshots import snapshots_in
from bsd.store.tombstone import Tombstone
from bsd.store.uploads import UploadJournal
from bsd.transcripts.agents.opening import open_file, open_transcript
from bsd.transcripts.agents.programs import program_of

ROWS = "rows-"  # begins the ids of notes for the catalogue, which are not sent to the bucket


def tell_others(
    layout: Layout,
    name: SessionName,
    at: float,
    *,
    entry: str | None = None,
    origins: Collection[str] | None = None,
    hashes: Collection[str] = (),
    lines: bool = False,
) -> None:
    """Keep a tombstone for the other hosts, before anything is deleted here.

    Args:
        layout: the root.
        name: the session.
        at: epoch seconds.
        entry: only this entry is forgotten.
        origins: of the session and its copies; None: those that this root has.
        hashes: of the forgotten lines. For a whole session, they are only sent if there are no
            origins, which say enough.
        lines: only the lines with these hashes are forgotten.

    Raises:
        Unavailable, TemporaryFailure: the journal cannot be written.
    """
    try:
        journal = UploadJournal(layout)
    except NotFound:
        return
    with journal:
        of_session = origins_of(layout, name) if origins is None else frozenset(origins)
        needed = () if of_session and entry is None and not lines else hashes
        tombstone = Tombstone.new(
            layout, name, at, entry=entry, origins=of_session, hashes=needed, lines=lines
        )
        journal.add_tombstone(tombstone.id, tombstone.document())
        add_rows(journal, None if lines else name, entry, hashes)


def add_rows(
    journal: UploadJournal,
    name: SessionName | None,
    entry: str | None,
    hashes: Collection[str],
    host: tuple[str, str] | None = None,
) -> None:
    """Keep a note of what the catalogue has to forget (`fleet/forgotten_rows.py`).

    Args:
        name: the session; None: only lines.
        entry: only this entry of it; None: the whole session.
        hashes: of stored lines.
        host: name and id of the host that has the session; None: this one.
    """
    document = {
        "session": None if name is None else str(name),
        "entry": entry,
        "hashes": sorted(hashes),
        "host": host,
    }
    journal.add_tombstone(f"{ROWS}{secrets.token_hex(16)}", document)


def tell_of_trashed(
    layout: Layout, name: SessionName, at: float, stores: Collection[Path], transcript: Path
) -> None:
    """Keep a tombstone of a session in the trash that is deleted for good; as `tell_others`.

    Args:
        stores: the directories of its stored lines: in the store, and in the archive.
        transcript: its transcript in the trash.
    """
    if layout.fleet.is_dir():
        origins = origins_in(layout, name, stores, transcript)
        contents = contents_of(layout)
        hashes = {place.hash for each in stores for place in contents.of_store(each)}
        tell_others(layout, name, at, origins=origins, hashes=hashes)


def origins_of(layout: Layout, name: SessionName) -> frozenset[str]:
    """Return the origins of a session: of its transcript, and of its copies."""
    found = {each.origin for each in snapshots_in(layout.archive_dir(name))}
    with suppress(BsdError, OSError), open_transcript(layout, name) as source:
        found.add(origin_of(source, program_of(layout, name.agent)))
    return frozenset(found)


def origins_in(
    layout: Layout, name: SessionName, archives: Collection[Path], transcript: Path
) -> frozenset[str]:
    """Return the origins of a session whose files lie in other places, as in the trash."""
    found = {each.origin for archive in archives for each in snapshots_in(archive)}
    with suppress(BsdError, OSError), open_file(transcript) as source:
        found.add(origin_of(source, program_of(layout, name.agent)))
    return frozenset(found)
