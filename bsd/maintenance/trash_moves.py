"""The ways into the trash, out of it, and away for good; each may be cut off between any two steps.

The order: into the trash go the transcript, then its entries in its owner's list, then the store,
then the meta file is written. Until the transcript has gone, nothing has happened; from then on a
recovery finishes. Out of it come the store, the transcript, the entries. Away goes the meta file
last. Steps, as `after_step` hears of them, for each session: (staged, copied across mounts,)
transcript, excerpt, entries, store, meta, audited; transcript_gone, store_gone, gone on the way
away; ended when the journal is gone.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from bsd.core.audit import AuditLog
from bsd.core.directories import make_directories, opened
from bsd.core.errors import BsdError, Busy, Conflict
from bsd.core.files import is_there, make_private_dir, sync_dir, write_private
from bsd.core.layout import Layout
from bsd.maintenance.relocate import (
    copy_file,
    copy_tree,
    give_up_for_copy,
    link_back,
    move_tree,
    remove_file,
    remove_tree,
    rename,
    set_mode,
    sync_names,
)
from bsd.maintenance.trashed import Aim, Journal, Trashed, TrashPlace, read_meta, weigh
from bsd.store.entry_notes import FORGOTTEN, RESTORED, UNDONE, EntryNotes, join_forgotten
from bsd.store.index import INDEX_FILE, Index
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.program import PutBack
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="trash")

# What a session and one in the trash may have both.
JOINED = (INDEX_FILE, UNDONE, RESTORED, FORGOTTEN)
_REGISTRY_WAIT_SECONDS = 10.0  # as long as the gateway itself waits for that lock


class Taken(Conflict):
    """A session of that name is there again."""


class Replaced(Busy):
    """Another file is in the place of the one that was to be moved."""


class Moves:
    """Makes the steps of a journal. The caller holds bsd's own lock of every session in it."""

    def __init__(
        self,
        layout: Layout,
        clock: Callable[[], float],
        after_step: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._clock = clock
        self._after_step = after_step
        self._audit = AuditLog(layout.audit_file, clock)
        self.put_back: dict[str, PutBack] = {}  # by id of what came back
        self.refused: dict[str, Taken | Replaced] = {}  # by id of what stayed where it was

    def run(self, journal: Journal) -> None:
        """Take every session all the way, or note why it is `refused`; then `end` must follow.

        Raises BsdError, OSError.
        """
        if journal.aim is Aim.TRASH:
            make_private_dir(self._layout.trash_dir())
            self._each(journal, self._into_trash)
            if journal.permanent:
                journal.aim = Aim.AWAY
                journal.save()
                self._after_step("condemned")
        elif journal.aim is Aim.BACK:
            self._each(journal, self._back)
        if journal.aim is Aim.AWAY:
            self._each(journal, self._away)

    def end(self, journal: Journal) -> None:
        """All is done, and the gateway's locks are given back."""
        journal.end()
        self._after_step("ended")

    def _each(self, journal: Journal, move: Callable[[Journal, Trashed], None]) -> None:
        # Last out, first in: then each finds its place in that list as it left it.
        for item in journal.items[::-1] if journal.aim is Aim.BACK else journal.items[:]:
            try:
                move(journal, item)
            except (Taken, Replaced) as refusal:
                self.refused[item.id] = refusal
                journal.items = [each for each in journal.items if each.id != item.id]
                journal.save()

    def _place(self, item: Trashed) -> TrashPlace:
        return TrashPlace(self._layout.trash_dir(), item.id)

    # --- into the trash ---

    def _into_trash(self, journal: Journal, item: Trashed) -> None:
        place = self._place(item)
        if place.meta.exists():
            item = read_meta(self._layout, place.meta)
        else:
            if item.transcript is not None:
                self._take_transcript(journal, item, place)
            self._after_step("transcript")
            back = is_there(self._layout.transcript(item.name))  # somebody began it anew
            if not back:
                item = self._take_entries(journal, item)
            self._after_step("entries")
            item = self._take_store(journal, item, place, copy=back)
            self._after_step("store")
            if not journal.permanent:
                write_private(place.meta, json.dumps(item.document(), indent=2).encode() + b"\n")
            self._after_step("meta")
        self._tell_deleted(journal, item)
        self._after_step("audited")

    def _take_transcript(self, journal: Journal, item: Trashed, place: TrashPlace) -> None:
        path = self._layout.transcript(item.name)
        staged = place.beside(path, "deleted")
        if os.path.lexists(path) and not place.has_taken(path):
            if item.transcript is None or path.lstat().st_ino != item.transcript[0]:
                raise Replaced(f"session {item.name} was written anew meanwhile", hint="try again")
            if not rename(path, place.transcript):
                rename(path, staged)
                self._after_step("staged")
        if os.path.lexists(staged) and not journal.permanent:
            copy_file(staged, place.transcript)
            sync_names(place.transcript)
            self._after_step("copied")
            if not give_up_for_copy(staged, place.transcript):
                raise Busy(
                    f"somebody has session {item.name} open; its file waits in {staged}",
                    hint="the next call of bsd finishes it",
                )
        set_mode(place.transcript, 0o600)

    def _take_entries(self, journal: Journal, item: Trashed) -> Trashed:
        def keep(text: str) -> None:
            nonlocal item
            item = journal.update(item, sessions_json=text)
            journal.save()
            self._after_step("excerpt")

        try:
            program = program_of(self._layout, item.name.agent)
            program.unlist(item.name.session, keep, wait=_REGISTRY_WAIT_SECONDS)
        except Conflict as problem:
            if isinstance(problem, Busy):
                raise
            _log.warning(
                "Entries of a deleted session stay in its owner's list",
                session=str(item.name),
                problem=problem.message,
            )
        return item

    def _take_store(
        self, journal: Journal, item: Trashed, place: TrashPlace, *, copy: bool
    ) -> Trashed:
        for there, here in place.directories(self._layout, item.name):
            if not copy:
                move_tree(there, here)
            elif there.is_dir() and not here.is_dir():
                copy_tree(there, here)  # the new session may refer to it, too
        files, amount = weigh(place.store)
        return journal.update(item, extracted_files=files, extracted_bytes=amount)

    def _tell_deleted(self, journal: Journal, item: Trashed) -> None:
        kept = not journal.permanent
        _log.info(
            f"delete: {item.name}, entries {item.entries}",
            actor=journal.actor,
            trash_id=item.id if kept else None,
            bytes=item.size,
        )
        self._record(journal, "delete", item, moved_to_trash=kept, bytes=item.size)
        if item.extracted_files:
            self._record(
                journal,
                "delete_extracted",
                item,
                files_removed=item.extracted_files,
                bytes_removed=item.extracted_bytes,
            )

    # --- back ---

    def _back(self, journal: Journal, item: Trashed) -> None:
        place = self._place(item)
        path = self._layout.transcript(item.name)
        if place.meta.exists():
            make_directories(path.parent)
            self._return_store(journal, item, place)
            self._after_step("store")
            if item.transcript is not None:
                try:
                    self._return_transcript(item, place, path, item.transcript[3])
                except Taken:
                    self._undo_return(item, place)
                    raise
            self._after_step("transcript")
            self._return_entries(item)
            self._after_step("entries")
            remove_file(place.meta)
            sync_names(place.meta)
            self._after_step("meta")
        amount = item.size + item.extracted_bytes
        counts = {"files_restored": item.extracted_files, "bytes_restored": amount}
        self._tell(journal, "restore_from_trash", item, counts)

    def _return_store(self, journal: Journal, item: Trashed, place: TrashPlace) -> None:
        store = SessionStore(self._layout, item.name)
        records = list(Index(place.store / INDEX_FILE, item.name).records.values())
        if store.directory.is_dir():
            remove_file(place.store / INDEX_FILE)  # the two become one
        history = self._layout.history_dir(item.name)
        if history.is_dir():
            EntryNotes(history, item.name).join(EntryNotes(place.history, item.name))
            join_forgotten(history, place.history, item.name)
        for there, here in place.directories(self._layout, item.name):
            if here.is_dir():
                # Time in the trash does not count as time kept, or retention would take it all.
                _make_younger(here, journal.at - item.trashed_at, journal.at)
                make_directories(there.parent)
                move_tree(here, there)
        if records and records[-1].file not in store.index.records:
            store.index.add(records)

    def _return_transcript(self, item: Trashed, place: TrashPlace, path: Path, mode: int) -> None:
        temporary = place.beside(path, "restored")
        try:
            set_mode(place.transcript, mode)
            link_back(place.transcript, path, temporary)
        except FileExistsError:
            set_mode(place.transcript, 0o600)
            remove_file(temporary)
            raise Taken(
                f"there is a session {item.name} again",
                hint="delete or rename that one, then try again",
            ) from None

    def _return_entries(self, item: Trashed) -> None:
        if item.sessions_json is None:
            return
        program = program_of(self._layout, item.name.agent)
        try:
            done = program.list_again(item.sessions_json, wait=_REGISTRY_WAIT_SECONDS)
        except Busy:
            raise
        except Conflict as problem:
            done = PutBack(taken=item.keys)
            _log.warning("The owner's list was left as it is", problem=problem.message)
        self.put_back[item.id] = done
        if done.taken:
            _log.warning(
                "Keys in the owner's list are taken",
                session=str(item.name),
                keys=list(done.taken),
            )

    def _undo_return(self, item: Trashed, place: TrashPlace) -> None:
        """Bring the store back to the trash, as its transcript has to stay there."""
        for there, here in place.directories(self._layout, item.name):
            if there.is_dir() and not here.is_dir():
                copy_tree(there, here)  # a copy: a session of that name is there again

    # --- away ---

    def _away(self, journal: Journal, item: Trashed) -> None:
        self._remove(item, self._place(item))
        if journal.permanent:
            return  # that has been told
        amount = item.size + item.extracted_bytes
        counts = {"files_removed": item.extracted_files, "bytes_removed": amount}
        self._tell(journal, "delete_from_trash", item, counts)

    def _remove(self, item: Trashed, place: TrashPlace) -> None:
        """Remove all parts, the meta file last."""
        with suppress(BsdError):  # the agent's directory may be a link by now, and hold nothing
            remove_file(place.beside(self._layout.transcript(item.name), "deleted"))
        remove_file(place.transcript)
        self._after_step("transcript_gone")
        remove_tree(place.store)
        remove_tree(place.archive)
        remove_tree(place.history)
        self._after_step("store_gone")
        remove_file(place.meta)
        with suppress(FileNotFoundError):
            sync_dir(place.trash)
        self._after_step("gone")

    def _tell(
        self, journal: Journal, action: str, item: Trashed, counts: Mapping[str, int]
    ) -> None:
        _log.info(f"{action}: {item.name}", actor=journal.actor, trash_id=item.id)
        self._record(journal, action, item, **counts)
        self._after_step("audited")

    def _record(self, journal: Journal, action: str, item: Trashed, **what: object) -> None:
        self._audit.record(
            actor=journal.actor,
            action=action,
            agent=item.name.agent,
            session_id=item.name.session,
            **what,
        )


def _make_younger(directory: Path, seconds: float, now: float) -> None:
    with opened(directory) as here:
        for name in os.listdir(here):
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                then = min(found.st_mtime + max(0.0, seconds), max(now, found.st_mtime))
                os.utime(name, (found.st_atime, then), dir_fd=here, follow_symlinks=False)
