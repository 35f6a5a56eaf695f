"""Forgets a session, or one entry of it, for good: in store, archive, history, trash and index.

First the stored lines to which other sessions refer are copied to those sessions
(`rehome_references`). The answer names every session that still keeps the same content. A file is
deleted only when its replacement is durable.

A crash journal without content (`<root>/.brainsurgeon/forgetting/`) is written first. After a kill,
`finish_forgetting.py` finishes the call, and spares all content that was stored since.
`after_step` is called with the names of the steps: `handed`, `history`, `store`, `packed`,
`archive`, `beside`, `index`, `ended`.

If this host shares its archive, each deleted file of the archive is noted in the journal of uploads
before (`note_deleted`), and a user's call leaves a tombstone for the other hosts there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, NotFound, Unavailable, os_problem
from bsd.core.files import all_below, is_later, remove_empty, sync_dir
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.bring_back import clear_returning
from bsd.maintenance.crash_journal import ForgetJournal, remove_journal
from bsd.maintenance.deleted_sessions import open_or_snapshot
from bsd.maintenance.forget_lines import (
    changed_lines,
    forget_in_snapshot,
    forget_packed,
    only_in_copy,
)
from bsd.maintenance.leftovers import drafts_of, is_there
from bsd.maintenance.references import (
    References,
    belongings_with,
    lines_of,
    sessions_like,
    sessions_with_entries,
    sessions_with_stored,
    texts_of,
)
from bsd.maintenance.rehome_references import Departing, rehome_references
from bsd.maintenance.tell_others import tell_others
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.idle import IdlePolicy, RetryBudget
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive
from bsd.store.contents import contents_of
from bsd.store.entry_notes import FORGOTTEN, note_forgotten
from bsd.store.history import History
from bsd.store.originals import SessionStore, digest
from bsd.store.pack import Pack, PackDamaged
from bsd.store.search import ask
from bsd.store.search_deletion import forget_sessions
from bsd.store.snapshot_parts import rewrite_snapshot, tidy_snapshot
from bsd.store.snapshots import (
    Snapshot,
    delete_snapshot,
    read_snapshot,
    snapshot_directories,
    snapshot_directory,
    snapshots_in,
)
from bsd.store.uploads import note_deleted, note_directory_deleted
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line

_log = structlog.stdlib.get_logger(module="archive")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of forgetting a session or an entry. Sizes are bytes."""

    session: str
    entry: str | None
    files: int
    bytes: int
    kept_by: Annotated[
        list[str],
        Field(description="Sessions that still keep the same content: copies, forks, children"),
    ]
    in_transcript: Annotated[
        bool, Field(description="Whether the transcript exists and may still hold the content")
    ]
    said_in: Annotated[
        list[str],
        Field(description="Files that belong to the session and contain texts of the entry"),
    ] = field(default_factory=list)


class Forget:
    """Forgets sessions and entries, those of excluded sessions included.

    Args:
        layout: the root.
        trash_keep: the setting `trash_retention`.
        everywhere: the user forgets, so that all hosts that share a bucket do; False: this host
            deletes its data as its own settings say.
        actor: the actor named in log and audit.
        budget: how long to wait for another bsd process that works on a session.
        after_step: for tests.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        trash_keep: str = "never",
        everywhere: bool = False,
        actor: str = "cli",
        budget: RetryBudget | None = None,
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout = layout.with_excluded()
        self._trash_keep = trash_keep
        self._everywhere = everywhere
        self._actor = actor
        self._budget = budget or RetryBudget()
        self._after_step = after_step
        self._idle_policy = IdlePolicy(layout, self._budget, InFlight(layout))
        self._files = self._bytes = 0  # deleted in the present call

    def session(self, name: SessionName, snapshot: Snapshot | None = None) -> Forgotten:
        """Forget all stored data of a session. A transcript that exists stays.

        Args:
            name: the session.
            snapshot: forget only this snapshot, if the session exists or has other snapshots.

        Raises:
            NotFound: no data of the session is stored.
            Busy, Unavailable.
        """
        layout = self._layout
        self._begin(name)
        journal = ForgetJournal.new(layout, name, self._budget.clock())
        only = snapshot
        if snapshot is not None:
            copies = set(snapshot_directories(layout.archive_dir(name)))  # damaged ones, too
            others = copies - {snapshot.directory}
            only = snapshot if others or is_there(layout, name) else None
        kept_by: list[str] = []
        with self._journaled(journal):
            with self._locked(name):
                if only is not None:
                    replace(journal, origin=only.origin).write()
                    self._tell(name, origins=[only.origin])
                    kept_by = self._forget_copy(name, only.origin)
                else:
                    self._idle_policy.blank([name])
                    kept_by = sessions_like(layout, name, snapshot)
                    journal = replace(journal, hashes=self._stored_hashes(name))
                    with suppress(Unavailable):  # the disk may be full, and forgetting frees space
                        journal.write()
                    self._tell(name, hashes=journal.hashes)
                    kept_by += self._forget_session(journal)
            if snapshot is None:
                self._empty_trash(name)
        if not self._files:
            raise NotFound(f"bsd stores no data of {name}", hint="`bsd archive list`")
        return self._answer(name, None, list(dict.fromkeys(kept_by)))

    def entry(self, name: SessionName, entry: str) -> Forgotten:
        """Forget all stored data of one entry; raises NotFound, Busy, Unavailable."""
        layout = self._layout
        self._begin(name)
        journal = replace(ForgetJournal.new(layout, name, self._budget.clock()), entry=entry)
        with self._journaled(journal), self._locked(name):
            hashes = self._stored_hashes(name, entry)
            self._refuse_unreadable(name, hashes)
            said_in = belongings_with(layout, name, self._texts(name, entry, hashes))
            self._idle_policy.blank([name])
            journal = replace(journal, hashes=hashes)
            journal.write()
            self._tell(name, entry=entry, hashes=hashes)
            lines = self._forget_entry(journal)
            kept_by = {
                *sessions_with_stored(layout, name, hashes),
                *sessions_with_entries(layout, name, [entry]),
            }
        if not (self._files or lines):
            raise NotFound(
                f"bsd stores no data of entry {entry} of {name}", hint=f"`bsd show {name}`"
            )
        return replace(self._answer(name, entry, sorted(kept_by)), said_in=said_in)

    def lines(
        self,
        name: SessionName,
        hashes: Collection[str],
        entries: Collection[str | None],
        change: Callable[[Line], bytes],
    ) -> int:
        """Forget stored lines of a session and the undo history of entries; change its snapshots.

        Unlike `entry`, this leaves other stored lines of these entries in place and writes no
        journal. After a kill, the caller searches for the lines that are left and calls again.

        Args:
            name: the session.
            hashes: the hashes of the stored lines, `sha256:…`.
            entries: the entries whose former lines the history forgets.
            change: returns the new bytes of a line of a snapshot.

        Returns:
            The number of changed lines in the history and in snapshots.

        Raises:
            Busy, Unavailable.
        """
        self._files = self._bytes = 0
        with self._locked(name):
            self._idle_policy.blank([name])
            if self._everywhere:
                self._tell_lines(name, hashes, change)
            return self._forget_lines(name, hashes, entries, change)

    def finish(self, journal: ForgetJournal) -> None:
        """Finish a killed call; raises Busy, Unavailable, Forbidden."""
        layout, name = self._layout, journal.session
        self._files = self._bytes = 0
        with self._locked(name):
            if not journal.path.exists():
                return  # the call was not killed and has ended
            if journal.origin is not None:
                directory = snapshot_directory(layout, name, journal.origin)
                snapshot = None
                with suppress(Unavailable):
                    snapshot = read_snapshot(directory)
                if snapshot is None or snapshot.kept_at <= journal.at:
                    self._forget_copy(name, journal.origin)
            else:
                self._idle_policy.blank([name])
                finish = self._forget_session if journal.entry is None else self._forget_entry
                finish(journal, journal.at)
        if journal.entry is None and journal.origin is None:
            self._empty_trash(name, journal.at)
        remove_journal(journal.path)
        self._answer(name, journal.entry, [])

    # --- deletion; `before` (epoch seconds): only files no newer than this; None: all files ---

    def _forget_session(self, journal: ForgetJournal, before: float | None = None) -> list[str]:
        """Forget a whole session; return the sessions whose stores still have lines of it."""
        layout, name = self._layout, journal.session
        store, archive = layout.store_dir(name), layout.archive_dir(name)
        # The index forgets the session before the files are deleted, because after a kill the
        # files show that work is left; and again afterwards, because another process may have
        # indexed the session meanwhile.
        forget_sessions(layout.search_db, [name])
        self._hand_down(name)
        self._after_step("handed")
        kept_by = sessions_with_stored(layout, name, journal.hashes)
        history, stays = layout.history_dir(name), is_there(layout, name)
        self._clear(history, before, but=FORGOTTEN if stays else None)
        self._after_step("history")
        self._clear(store, before)
        self._after_step("store")
        self._clear_archive(archive, before)
        self._after_step("archive")
        if stays and journal.hashes:  # the deletion has freed disk space for this note
            note_forgotten(history, name, journal.hashes)
        contents_of(layout).changed()
        for directory in drafts_of(layout, name):
            self._clear(directory, before)
        for orphan in list_orphans(layout):
            is_later = before is not None and orphan.found_at_ns / 1e9 > before
            if orphan.session == str(name) and not is_later:
                self._files, self._bytes = self._files + 1, self._bytes + orphan.size
                forget_orphan(orphan)
        clear_returning(layout, name)
        self._after_step("beside")
        forget_sessions(layout.search_db, [name])
        self._after_step("index")
        return kept_by

    def _forget_copy(self, name: SessionName, origin: str) -> list[str]:
        """Remove one copy, which may be partly removed already, and what is only its own.

        Returns:
            The sessions that still have lines of it: this one if another copy cannot be read.
        """
        layout, kept_by = self._layout, [str(name)]
        own = only_in_copy(layout, name, origin)
        if own is not None:
            gone = self._stored_hashes(name) & own.hashes
            entries = own.entries & History(layout, name).entries()
            self._hand_down(name, gone)
            if gone or entries:
                self._forget_lines(name, gone, entries)
            kept_by = sessions_with_stored(layout, name, gone)
        forget_sessions(layout.search_db, [name])
        directory = snapshot_directory(layout, name, origin)
        self._count(directory)
        note_directory_deleted(layout.root, directory, must=True)
        with suppress(FileNotFoundError):
            delete_snapshot(directory)
        self._after_step("beside")
        forget_sessions(layout.search_db, [name])
        self._after_step("index")
        return kept_by

    def _hand_down(self, name: SessionName, hashes: frozenset[str] | None = None) -> None:
        """Copy stored lines to the other sessions that refer to them; None: all lines."""
        layout = self._layout
        stores = layout.store_dir(name), layout.archive_dir(name)
        departing = Departing(name, stores, layout.transcript(name), hashes)
        rehome_references(
            References(layout), [departing], [name], budget=self._budget, actor=self._actor
        )

    def _forget_lines(
        self,
        name: SessionName,
        hashes: Collection[str],
        entries: Collection[str | None],
        change: Callable[[Line], bytes] | None = None,
    ) -> int:
        """Forget lines as `lines` does, under the session's lock; None leaves the copies."""
        layout = self._layout
        archive, store = layout.archive_dir(name), SessionStore(layout, name)
        if hashes:
            note_forgotten(layout.history_dir(name), name, hashes)
        history = History(layout, name)
        lines = sum(history.forget(entry) for entry in entries)
        refs = {ref for ref in store.refs() if digest(store.read(ref) or b"") in hashes}
        self._remove_stored(store, refs)
        self._forget_packed(archive, _digests(hashes), None)
        # Before the snapshots change, because after a kill they show that work is left.
        forget_sessions(layout.search_db, [name])
        if change is not None:
            lines += self._change_copies(archive, change)
        contents_of(layout).changed()
        clear_returning(layout, name)
        forget_sessions(layout.search_db, [name])  # the session is indexed anew
        return lines

    def _change_copies(self, archive: Path, change: Callable[[Line], bytes]) -> int:
        """Change lines in all copies of a session; return their number."""
        lines = 0
        for snapshot in snapshots_in(archive, strictly=True):
            changed = rewrite_snapshot(snapshot, change, self._budget.clock())
            if not changed:  # a killed process may have left former parts
                tidy_snapshot(snapshot, self._budget.clock(), strictly=True)
            lines += changed
        return lines

    def _empty_trash(self, name: SessionName, before: float | None = None) -> None:
        trash = Trash(self._layout, self._trash_keep, actor=self._actor, budget=self._budget)
        store = self._layout.store_name(name)
        for id_ in ids(self._layout):
            place = TrashPlace(self._layout.trash_dir(), id_)
            if id_.rpartition("_")[0] != store or (before and place.trashed_at > before):
                continue
            with suppress(NotFound):
                item = trash.remove(id_, everywhere=self._everywhere)
                self._files += 1 + item.extracted_files
                self._bytes += item.size + item.extracted_bytes

    def _forget_entry(self, journal: ForgetJournal, before: float | None = None) -> int:
        """Forget one entry; return the number of its lines in the history and in snapshots."""
        layout, name, entry = self._layout, journal.session, str(journal.entry)
        archive = layout.archive_dir(name)
        if journal.hashes:
            note_forgotten(layout.history_dir(name), name, journal.hashes)
        lines = History(layout, name).forget(entry)
        self._after_step("history")
        self._forget_stored(SessionStore(layout, name), entry, before)
        self._after_step("store")
        self._forget_packed(archive, _digests(journal.hashes), before)
        for snapshot in snapshots_in(archive, strictly=True):
            lines += forget_in_snapshot(layout, snapshot, entry, self._budget.clock())
        self._after_step("archive")
        contents_of(layout).changed()
        clear_returning(layout, name)
        forget_sessions(layout.search_db, [name])  # the session is indexed anew
        self._after_step("index")
        return lines

    def _forget_stored(self, store: SessionStore, entry: str, before: float | None) -> None:
        refs = {
            place.ref
            for place in contents_of(self._layout).of_entry(entry)
            if place.directory == store.directory
            and not place.pack
            and not is_later(place.file, before)
        }
        self._remove_stored(store, refs)

    def _remove_stored(self, store: SessionStore, refs: Collection[str]) -> None:
        for ref in sorted(refs):
            self._remove(store.file(ref))
        if refs:
            sync_dir(store.directory)
            records = store.index.records.values()
            store.index.replace([record for record in records if record.ref not in refs])

    def _clear_archive(self, archive: Path, before: float | None) -> None:
        """Remove the packs and snapshots of a session; of a pack, only lines stored `before`."""
        if before is not None and archive.is_dir():
            for directory in snapshot_directories(archive):
                snapshot = None
                with suppress(Unavailable):  # a damaged snapshot may hold anything
                    snapshot = read_snapshot(directory)
                if snapshot is None or snapshot.kept_at <= before:
                    self._count(directory)
                    note_directory_deleted(self._layout.root, directory, must=True)
                    delete_snapshot(directory)
            self._forget_packed(archive, None, before)
            remove_empty(archive)
        else:
            self._clear(archive, None)

    def _forget_packed(
        self, archive: Path, hashes: Collection[bytes] | None, before: float | None
    ) -> None:
        for path in SessionArchive(archive).set_aside():  # a damaged pack may hold the entry
            if not is_later(path, before):
                self._remove(path)
        lines, size = forget_packed(self._layout.root, archive, hashes, before, self._after_step)
        self._files, self._bytes = self._files + lines, self._bytes + size

    # --- other hosts ---

    def _tell(
        self,
        name: SessionName,
        *,
        entry: str | None = None,
        origins: Collection[str] | None = None,
        hashes: Collection[str] = (),
        lines: bool = False,
    ) -> None:
        """Leave a tombstone for the other hosts, before anything is deleted."""
        if self._everywhere:
            layout, at = self._layout, self._budget.clock()
            tell_others(layout, name, at, entry=entry, origins=origins, hashes=hashes, lines=lines)

    def _tell_lines(
        self, name: SessionName, hashes: Collection[str], change: Callable[[Line], bytes]
    ) -> None:
        """Leave a tombstone for stored lines, and for lines of copies that will change."""
        changed = set(hashes)
        for snapshot in snapshots_in(self._layout.archive_dir(name), strictly=True):
            changed |= changed_lines(snapshot, change)
        if changed:
            self._tell(name, hashes=changed, lines=True)

    # --- preparation ---

    def _begin(self, name: SessionName) -> None:
        """Raise NotFound, before any lock is taken, if no data of the session is stored."""
        layout, store = self._layout, self._layout.store_name(name)
        self._files = self._bytes = 0
        history = layout.history_dir(name)
        if not (
            (history.is_dir() and any(each != FORGOTTEN for each in os.listdir(history)))
            or layout.store_dir(name).exists()
            or layout.archive_dir(name).exists()
            or drafts_of(layout, name)
            or any(id_.rpartition("_")[0] == store for id_ in ids(layout))
            or any(orphan.session == str(name) for orphan in list_orphans(layout))
            or ask(layout.search_db, lambda index: index.known_as(name), None)
        ):
            raise NotFound(f"bsd stores no data of {name}", hint="`bsd archive list`")

    def _stored_hashes(self, name: SessionName, entry: str | None = None) -> frozenset[str]:
        """Return the hashes of the stored lines of a session or entry, in store and archive."""
        layout, contents = self._layout, contents_of(self._layout)
        contents.changed()
        own = (layout.store_dir(name), layout.archive_dir(name))
        if entry is None:
            return frozenset(place.hash for each in own for place in contents.of_store(each))
        return frozenset(each.hash for each in contents.of_entry(entry) if each.directory in own)

    def _refuse_unreadable(self, name: SessionName, hashes: Collection[str]) -> None:
        """Raise, before the first deletion, if a file that may hold the entry cannot be read."""
        layout = self._layout
        archive = layout.archive_dir(name)
        for directory in (layout.store_dir(name), archive):
            if problem := contents_of(layout).unread_in(directory):
                raise problem
        for directory in snapshot_directories(archive):
            read_snapshot(directory)
        for path in SessionArchive(archive).packs():
            with Pack(path) as pack:
                if not _digests(hashes).isdisjoint(place.hash for place in pack.places()):
                    pack.check()

    def _texts(self, name: SessionName, entry: str, hashes: Collection[str]) -> set[str]:
        """Return the texts of an entry, inline and stored, that can be read."""
        layout = self._layout
        with suppress(BsdError, OSError), open_or_snapshot(layout, name) as source:
            if (fmt := format_of(source, program_of(layout, name.agent))) is not None:
                lines = list(lines_of(source, fmt, [entry]))
                for hash_ in hashes:
                    stored = (place.line() for place in contents_of(layout).with_hash(hash_))
                    lines += islice(filter(None, stored), 1)
                return texts_of(fmt, lines)
        return set()

    @contextmanager
    def _locked(self, name: SessionName) -> Iterator[None]:
        """Hold bsd's lock of the session; convert errors of the file system and of packs."""
        budget = self._budget
        with own_lock(self._layout, name, budget.wait, sleep=budget.sleep):
            try:
                yield
            except OSError as error:
                raise os_problem(error, f"forgetting {name}") from error
            except PackDamaged as error:
                hint = "`bsd verify --repair`"
                raise Unavailable(str(error), hint=hint) from error

    @contextmanager
    def _journaled(self, journal: ForgetJournal) -> Iterator[None]:
        """Remove the journal at the end, or if the call fails before the first deletion."""
        try:
            yield
        except (BsdError, OSError):
            if not self._files:
                remove_journal(journal.path)
            raise
        remove_journal(journal.path)
        self._after_step("ended")

    # --- removing and counting ---

    def _clear(self, directory: Path, before: float | None, but: str | None = None) -> None:
        """Remove a directory, except a file of the name `but` and files newer than `before`."""
        if not directory.is_dir():
            return
        if before is None and but is None:
            self._count(directory)
            note_directory_deleted(self._layout.root, directory, must=True)
            shutil.rmtree(directory)
        else:
            for path in sorted(all_below(directory), reverse=True):
                if path.is_dir() and not path.is_symlink():
                    remove_empty(path)
                elif path.name != but and not is_later(path, before):
                    self._remove(path)
            remove_empty(directory)
        sync_dir(directory.parent)

    def _remove(self, path: Path) -> None:
        self._count(path)
        note_deleted(self._layout.root, [path], must=True)
        path.unlink(missing_ok=True)

    def _count(self, path: Path) -> None:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    self._files, self._bytes = self._files + 1, self._bytes + file.stat().st_size

    def _answer(self, name: SessionName, entry: str | None, kept_by: list[str]) -> Forgotten:
        _log.info(f"archive_forget: {name}, files {self._files}", actor=self._actor, entry=entry)
        more = {} if entry is None else {"entry": entry}
        AuditLog(self._layout.audit_file, self._budget.clock).record(
            actor=self._actor,
            action="archive_forget",
            agent=name.agent,
            session_id=name.session,
            files_removed=self._files,
            bytes_removed=self._bytes,
            **more,
        )
        stays = is_there(self._layout, name)
        return Forgotten(str(name), entry, self._files, self._bytes, kept_by, stays)


def _digests(hashes: Collection[str]) -> set[bytes]:
    return {bytes.fromhex(hash_.removeprefix("sha256:")) for hash_ in hashes}
