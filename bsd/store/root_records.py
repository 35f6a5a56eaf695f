"""All records under a root about the entries of one session, as they were before bsd's changes.

A copied session (a fork, a renamed session, a session that was begun anew with its old lines) has
no notes of its own. The records of the session that it was copied from apply to it: original lines
in all stores, notes of all sessions.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from bsd.core.errors import BsdError
from bsd.core.layout import Layout
from bsd.store.entry_notes import RESTORED, EntryNotes, Stamps
from bsd.store.index import INDEX_FILE, Index, Record
from bsd.store.originals import Missing, SessionStore

_log = structlog.stdlib.get_logger(module="history")


@dataclass(frozen=True, slots=True)
class EntryOriginal:
    """The stored original line of an entry."""

    entry_id: str
    line: bytes
    keys: tuple[str, ...]  # paths of the extracted values
    own: bool  # the line lies in the session's own store or archive


class RootRecords:
    """Notes and originals under a root, for one session."""

    def __init__(self, layout: Layout, store: SessionStore, notes: EntryNotes) -> None:
        self._layout = layout
        self._store = store
        self._notes = notes

    def stamps(self) -> Stamps:
        """Return the stamps in the notes of this session."""
        return _stamps(self._notes)

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        """Yield the stamps in the notes of other sessions, session by session."""
        for directory in (*_in(self._layout.history), *_in(self._layout.trash, "_history_")):
            if directory != self._notes.directory and os.path.lexists(directory / RESTORED):
                yield _stamps(EntryNotes(directory, self._store.name))

    def originals(self, entry_ids: Collection[str]) -> Iterator[EntryOriginal]:
        """Yield the stored lines of these entries in all stores, the oldest first."""
        indexes: dict[Path, Mapping[str, Record]] = {}
        for entry_id in entry_ids:
            for place in reversed(self._store.of_entry(entry_id)):
                line = self._store.load(place.ref, place.hash)
                if isinstance(line, Missing):
                    continue
                record = place.record()
                if not place.pack:
                    if place.directory not in indexes:
                        index = Index(place.directory / INDEX_FILE, self._store.name)
                        indexes[place.directory] = index.records
                    record = indexes[place.directory].get(place.file.name)
                keys = record.keys if record else ()
                yield EntryOriginal(entry_id, line, keys, own=self._store.is_own(place))


def _stamps(notes: EntryNotes) -> Stamps:
    try:
        return notes.stamps()
    except BsdError as problem:  # originals and other notes may be enough
        _log.warning(f"{RESTORED} cannot be read", problem=problem.message)
        return {}


def _in(directory: Path, word: str = "") -> list[Path]:
    """Return the paths in a directory whose names contain `word`; empty if it is unreadable."""
    try:
        return [directory / name for name in sorted(os.listdir(directory)) if word in name]
    except OSError:
        return []
