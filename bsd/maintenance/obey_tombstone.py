"""Forgets here what another host has forgotten (`store/tombstone.py`).

The same steps as of `forget` are done, but only for data that was stored before the other host
forgot. A session of the same name that is another session stays: its origins tell. Nothing is
noted in a crash journal, since the tombstone is obeyed again until all of it is done.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from bsd.core.errors import NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.crash_journal import ForgetJournal
from bsd.maintenance.forget import Forget, Forgotten
from bsd.maintenance.forget_lines import entries_of_lines, format_of_snapshot, without_lines
from bsd.maintenance.references import sessions_with_entries, sessions_with_stored
from bsd.maintenance.tell_others import origins_in, origins_of
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.store.contents import contents_of
from bsd.store.snapshots import archive_directories, snapshot_directory, snapshots_in, snapshots_of
from bsd.store.tombstone import Tombstone, store_hash
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.reader import Line, parse_kept


class ObedientForget(Forget):
    """Forgets what tombstones name; takes the arguments of `Forget`, but never tells others."""

    def obey(self, name: SessionName, tombstone: Tombstone, before: float) -> Forgotten | None:
        """Forget what a tombstone names, if this root has it.

        Args:
            name: the session with this store name.
            tombstone: the tombstone.
            before: epoch seconds. Data that was stored later stays, except for copies with one of
                the origins.

        Returns:
            The result; None if this root has nothing of it.

        Raises:
            Busy: the session is in use; nothing was deleted, or a part of it.
            Unavailable, Forbidden: some file cannot be read or deleted.
        """
        layout = self._layout
        self._files = self._bytes = 0
        present = origins_of(layout, name)
        if not present & tombstone.origins and (
            (present and tombstone.origins)
            or self._stored_hashes(name).isdisjoint(tombstone.hashes)
        ):
            self._forget_trashed(name, tombstone)
            return self._answer(name, None, []) if self._files else None
        is_alone = present <= tombstone.origins
        try:
            if tombstone.lines:
                found = self._obey_lines(name, tombstone.hashes)
                return self._answer(name, None, []) if found else None
            if tombstone.entry is not None:
                return self._obey_entry(name, tombstone, before)
            return self._obey_session(name, tombstone, before, is_alone=is_alone)
        except NotFound:
            return None

    def _obey_session(
        self, name: SessionName, tombstone: Tombstone, before: float, *, is_alone: bool
    ) -> Forgotten | None:
        layout, kept_by = self._layout, list[str]()
        with self._locked(name):
            if is_alone:
                self._idle_policy.blank([name])
                journal = ForgetJournal.new(layout, name, before)
                journal = replace(journal, hashes=self._stored_hashes(name))
                kept_by = self._forget_session(journal, before)
            for origin in tombstone.origins:  # also copies that were renewed since
                directory = snapshot_directory(layout, name, origin)
                if directory.is_dir():
                    kept_by += self._forget_copy(name, origin)
        self._forget_trashed(name, tombstone)
        return self._answer(name, None, kept_by) if self._files else None

    def _obey_entry(
        self, name: SessionName, tombstone: Tombstone, before: float
    ) -> Forgotten | None:
        layout, entry = self._layout, str(tombstone.entry)
        with self._locked(name):
            hashes = self._stored_hashes(name, entry)
            self._refuse_unreadable(name, hashes)
            self._idle_policy.blank([name])
            journal = ForgetJournal.new(layout, name, before)
            journal = replace(journal, entry=entry, hashes=hashes | tombstone.hashes)
            lines = self._forget_entry(journal, before)
        if not (self._files or lines):
            return None
        kept_by = {
            *sessions_with_stored(layout, name, journal.hashes),
            *sessions_with_entries(layout, name, [entry]),
        }
        return self._answer(name, entry, sorted(kept_by))

    def _obey_lines(self, name: SessionName, hashes: frozenset[str]) -> bool:
        """Forget lines in store, packs, copies and history; return whether there were any."""
        layout = self._layout
        stored = self._stored_hashes(name) & hashes
        entries: set[str | None] = set()
        for each in stored:
            kept = (place.line() for place in contents_of(layout).with_hash(each))
            entries.update(entry_id(parse_kept(line) or {}) for line in filter(None, kept))
        fmt, found = None, set[str | None]()
        for snapshot in snapshots_of(layout, name):
            if (fmt := format_of_snapshot(layout, snapshot)) is not None:
                found |= entries_of_lines(snapshot, fmt, hashes)
        if not (stored or found):
            return False
        change = without_lines(fmt, hashes) if fmt else _unchanged
        self.lines(name, stored, entries | found, change)
        return True

    def _forget_trashed(self, name: SessionName, tombstone: Tombstone) -> None:
        """Delete the session from the trash for good, unless it is another session there."""
        if not tombstone.is_of_session:
            return
        layout = self._layout
        trash = Trash(layout, self._trash_keep, actor=self._actor, budget=self._budget)
        for id_ in ids(layout):
            place = TrashPlace(layout.trash_dir(), id_)
            if place.base != layout.store_name(name):
                continue
            origins = origins_in(layout, name, [place.archive], place.transcript)
            if origins & tombstone.origins:
                with suppress(NotFound):
                    item = trash.remove(id_)
                    self._files += 1 + item.extracted_files
                    self._bytes += item.size + item.extracted_bytes


def _unchanged(line: Line) -> bytes:
    return line.raw


def stores_by_hash(layout: Layout) -> dict[str, list[SessionName]]:
    """Return the sessions of which this root has stored data, by the hash of their store name."""
    names: set[SessionName] = set()
    for directory in (layout.extracted, layout.archive, layout.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            names.update(filter(None, map(layout.session_of_store, os.listdir(directory))))
    for id_ in ids(layout):
        if (name := layout.session_of_store(id_.rpartition("_")[0])) is not None:
            names.add(name)
    for archive in archive_directories(layout):
        if layout.session_of_store(archive.name) is None:  # a name that was truncated
            names.update(each.name for each in snapshots_in(archive))
    found: dict[str, list[SessionName]] = {}
    for name in names:
        found.setdefault(store_hash(layout.store_name(name)), []).append(name)
    return found
