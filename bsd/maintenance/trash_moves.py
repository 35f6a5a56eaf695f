"""The steps of a delete, a restore and a removal; a process may be killed between any two steps.

Parts move by renames, so each is complete in exactly one place. A delete moves the transcript, then
its entries in its program's list, then the store, archive and history, and writes the meta file
last. Until the transcript has moved, the delete can be dropped; from then on, `Trash.recover`
finishes it. A restore moves the directories, the transcript and the entries. A permanent delete
does not use the trash: the transcript gets a hidden name beside its own and is removed last.

`after_step` is called with these names for each session: `transcript`, `excerpt`, `entries`,
`store`, `meta`, `audited`; for a permanent delete also `store_gone` and `gone`; and with `ended`
after the journal is removed.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from bsd.core.audit import AuditLog
from bsd.core.directories import make_directories, opened
from bsd.core.errors import BsdError, Busy, Conflict
from bsd.core.files import is_there, make_private_dir, sync_dir, write_private
from bsd.core.layout import Layout
from bsd.maintenance.journal import Journal, cannot_be_read, pending_journals, read_journal
from bsd.maintenance.relocate import (
    link_back,
    remove_file,
    remove_tree,
    rename,
    set_mode,
)
from bsd.maintenance.tell_others import tell_of_trashed, tell_others
from bsd.maintenance.trashed import BROKEN, Trashed, TrashPlace, read_meta, refuse_another, weigh
from bsd.sessions.commit.exchange import Step, no_step
from bsd.store.entry_notes import FORGOTTEN, RESTORED, UNDONE, EntryNotes, join_forgotten
from bsd.store.index import INDEX_FILE
from bsd.store.uploads import note_directory_deleted
from bsd.transcripts.agents.program import PutBack
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="trash")

# Notes that bsd may have written while the session was in the trash. They are merged or remade.
_JOINED = {INDEX_FILE, UNDONE, RESTORED, FORGOTTEN}
_REGISTRY_WAIT_SECONDS = 10.0  # as long as the gateway itself waits for that lock


class Aim(StrEnum):
    """The operation of a journal, by the target of its sessions."""

    TRASH = "trash"
    BACK = "back"
    AWAY = "away"  # removed for good from the trash


class TrashMoves:
    """The moves of some sessions. The caller holds bsd's lock of each session.

    Attributes:
        permanent: with aim TRASH, delete the sessions for good instead of moving them.
        everywhere: all hosts that share a bucket forget the sessions.
        refused: by id, why a session was not moved.
        put_back: by id, the result of putting entries back into the program's list.
    """

    def __init__(
        self,
        layout: Layout,
        journal: Journal,
        items: Iterable[Trashed],
        *,
        permanent: bool = False,
        everywhere: bool = False,
        clock: Callable[[], float] = time.time,
        after_step: Step = no_step,
    ) -> None:
        self.journal = journal
        self.aim = Aim(journal.aim)
        self.items = list(items)
        self.permanent = permanent
        self.everywhere = everywhere
        self.refused: dict[str, Conflict] = {}
        self.put_back: dict[str, PutBack] = {}
        self._layout = layout
        self._after_step = after_step
        self._audit = AuditLog(layout.audit_file, clock)

    @classmethod
    def begin(
        cls, layout: Layout, aim: Aim, actor: str, at: float, items: list[Trashed], **more: Any
    ) -> TrashMoves:
        """Return new moves without writing the journal; `more`: further arguments of the class."""
        return cls(layout, Journal.begin(layout, items[0].id, aim, actor, at), items, **more)

    @classmethod
    def read(cls, layout: Layout, path: Path, **more: Any) -> TrashMoves:
        """Return the moves that a journal describes; raises as `read_journal`."""
        journal = read_journal(layout, path)
        try:
            items = [Trashed.of(item) for item in journal.details["items"]]
            for item in items:
                refuse_another(layout, layout.trash_dir(), item)
            permanent = journal.details["permanent"] is True
            everywhere = journal.details.get("everywhere") is True
            return cls(layout, journal, items, permanent=permanent, everywhere=everywhere, **more)
        except BROKEN as error:
            raise cannot_be_read(path, error) from error

    def save(self) -> None:
        """Write the journal durably in its present state; raises OSError."""
        items = [item.document() for item in self.items]
        self.journal.details = {"permanent": self.permanent, "items": items}
        if self.everywhere:
            self.journal.details["everywhere"] = True
        self.journal.write()

    def tell_others(self) -> None:
        """Leave tombstones for the other hosts; call it after `save` and before `run`.

        After a kill it is called again, and leaves tombstones that change nothing.
        """
        for item in self.items if self.everywhere else ():
            place, at = self._place(item), self.journal.at
            if self.aim is Aim.TRASH:
                tell_others(self._layout, item.name, at)
            else:
                stores = (place.store, place.archive)
                tell_of_trashed(self._layout, item.name, at, stores, place.transcript)

    def run(self) -> None:
        """Move every session completely, or note in `refused` why not.

        The caller must call `end` afterwards. Raises BsdError, OSError.
        """
        move = {Aim.TRASH: self._delete, Aim.BACK: self._restore, Aim.AWAY: self._remove}[self.aim]
        if self.aim is Aim.TRASH and self.permanent:
            move = self._delete_for_good
        # Restored in reverse order of deletion, so that each finds its place in the program's list.
        for item in self.items[::-1] if self.aim is Aim.BACK else self.items[:]:
            if (problem := move(item)) is not None:
                self.refused[item.id] = problem
                self.items = [each for each in self.items if each.id != item.id]
                self.save()

    def end(self) -> None:
        """Remove the journal when all moves are done and the program's locks are released."""
        self.journal.end()
        self._after_step("ended")

    def _update(self, item: Trashed, **changes: Any) -> Trashed:
        now = replace(item, **changes)
        self.items[self.items.index(item)] = now
        return now

    def _place(self, item: Trashed) -> TrashPlace:
        return TrashPlace(self._layout.trash_dir(), item.id)

    # --- delete ---

    def _delete(self, item: Trashed) -> Conflict | None:
        place = self._place(item)
        if place.meta.exists():  # a killed process has done everything except the audit
            self._report_deleted(read_meta(self._layout, place.meta))
            return None
        make_private_dir(place.trash)
        path = self._layout.transcript(item.name)
        if problem := self._take_transcript(item, place, path, place.transcript):
            return problem
        set_mode(place.transcript, 0o600)
        self._after_step("transcript")
        if is_there(path):
            # After a crash, a new session of that name may refer to lines in the store, so the
            # store stays. The trashed session's lines are found there by their hashes.
            item = self._update(item, extracted_files=0, extracted_bytes=0)
        else:
            item = self._take_entries(item)
            self._after_step("entries")
            for there, here in place.directories(self._layout, item.name):
                if there.is_dir() and not here.is_dir():
                    rename(there, here)
            files, amount = weigh(place.store)
            item = self._update(item, extracted_files=files, extracted_bytes=amount)
        self._after_step("store")
        write_private(place.meta, json.dumps(item.document(), indent=2).encode() + b"\n")
        self._after_step("meta")
        self._report_deleted(item)
        return None

    def _delete_for_good(self, item: Trashed) -> Conflict | None:
        place, path = self._place(item), self._layout.transcript(item.name)
        hidden = place.beside(path, "deleted")
        if problem := self._take_transcript(item, place, path, hidden):
            return problem
        self._after_step("transcript")
        if not is_there(path):  # otherwise a new session of that name has begun after a crash
            item = self._take_entries(item)
            self._after_step("entries")
            for there, _ in place.directories(self._layout, item.name):
                note_directory_deleted(self._layout.root, there, must=True)
                remove_tree(there)
        self._remove_parts(item)
        self._report_deleted(item)
        return None

    def _take_transcript(
        self, item: Trashed, place: TrashPlace, path: Path, target: Path
    ) -> Conflict | None:
        """Rename the transcript unless it is already moved; return why it has to stay, or None."""
        if item.transcript is None or not os.path.lexists(path) or place.has_taken(path):
            return None
        if path.lstat().st_ino != item.transcript[0]:
            return Busy(f"session {item.name} was replaced meanwhile", hint="again later")
        rename(path, target)
        return None

    def _take_entries(self, item: Trashed) -> Trashed:
        """Remove a session from its program's list after writing its entries to the journal."""

        def keep(text: str) -> None:
            nonlocal item
            item = self._update(item, sessions_json=text)
            self.save()
            self._after_step("excerpt")

        try:
            program = program_of(self._layout, item.name.agent)
            program.unlist(item.name.session, keep, wait=_REGISTRY_WAIT_SECONDS)
        except Busy:
            raise
        except Conflict as problem:
            _log.warning(
                "Entries of a deleted session stay in its program's list",
                session=str(item.name),
                problem=problem.message,
            )
        return item

    def _report_deleted(self, item: Trashed) -> None:
        kept = not self.permanent
        _log.info(
            f"delete: {item.name}, entries {item.entries}",
            actor=self.journal.actor,
            trash_id=item.id if kept else None,
            bytes=item.size,
        )
        self._record("delete", item, moved_to_trash=kept, bytes=item.size)
        if item.extracted_files:
            counts = {"files_removed": item.extracted_files, "bytes_removed": item.extracted_bytes}
            self._record("delete_extracted", item, **counts)
        self._after_step("audited")

    # --- restore ---

    def _restore(self, item: Trashed) -> Conflict | None:
        place = self._place(item)
        if place.meta.exists():
            path = self._layout.transcript(item.name)
            make_directories(path.parent)
            # The originals first, so that the session never exists without its values.
            self._return_directories(item, place)
            self._after_step("store")
            if item.transcript is not None:
                try:
                    set_mode(place.transcript, item.transcript[3])
                    link_back(place.transcript, path, place.beside(path, "restored"))
                except FileExistsError:
                    set_mode(place.transcript, 0o600)
                    for there, here in place.directories(self._layout, item.name):
                        # After a crash, the new session of that name may have used the directory.
                        if (
                            there.is_dir()
                            and not here.is_dir()
                            and not _is_used_since(there, self.journal.at)
                        ):
                            rename(there, here)
                    return there_again(item)
            self._after_step("transcript")
            self._return_entries(item)
            self._after_step("entries")
            remove_file(place.meta)
            sync_dir(place.trash)
            self._after_step("meta")
        amount = item.size + item.extracted_bytes
        counts = {"files_restored": item.extracted_files, "bytes_restored": amount}
        self._report("restore_from_trash", item, **counts)
        return None

    def _return_directories(self, item: Trashed, place: TrashPlace) -> None:
        """Move store, archive and history back, after merging notes that exist in both places."""
        name, history = item.name, self._layout.history_dir(item.name)
        if history.is_dir() and place.history.is_dir():
            EntryNotes(place.history, name).join(EntryNotes(history, name))
            join_forgotten(place.history, history, name)
        for there, here in place.directories(self._layout, name):
            if here.is_dir():
                # Time in the trash does not count as age, or retention would delete it at once.
                _make_younger(here, self.journal.at - item.trashed_at, self.journal.at)
                make_directories(there.parent)
                if not is_occupied(there):
                    remove_tree(there)
                rename(here, there)

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
            _log.warning("The program's list was left as it is", problem=problem.message)
        self.put_back[item.id] = done
        if done.taken:
            _log.warning(
                "Keys in the program's list are taken",
                session=str(item.name),
                keys=list(done.taken),
            )

    # --- remove ---

    def _remove(self, item: Trashed) -> Conflict | None:
        self._remove_parts(item)
        amount = item.size + item.extracted_bytes
        counts = {"files_removed": item.extracted_files, "bytes_removed": amount}
        self._report("delete_from_trash", item, **counts)
        return None

    def _remove_parts(self, item: Trashed) -> None:
        """Remove the session from the trash (the meta file last), then the hidden transcript."""
        place = self._place(item)
        for directory in (place.store, place.archive, place.history):
            note_directory_deleted(self._layout.root, directory, must=True)
            remove_tree(directory)
        self._after_step("store_gone")
        remove_file(place.transcript)
        remove_file(place.meta)
        if place.trash.is_dir():
            sync_dir(place.trash)
        try:
            hidden = place.beside(self._layout.transcript(item.name), "deleted")
        except BsdError:  # the agent's directory was replaced by a link
            hidden = None
        if hidden is not None and os.path.lexists(hidden):
            remove_file(hidden)
            sync_dir(hidden.parent)
        self._after_step("gone")

    def _report(self, action: str, item: Trashed, **counts: int) -> None:
        _log.info(f"{action}: {item.name}", actor=self.journal.actor, trash_id=item.id)
        self._record(action, item, **counts)
        self._after_step("audited")

    def _record(self, action: str, item: Trashed, **details: object) -> None:
        self._audit.record(
            actor=self.journal.actor,
            action=action,
            agent=item.name.agent,
            session_id=item.name.session,
            **details,
        )


def pending_moves(layout: Layout) -> Iterable[Path]:
    """Return the journals of moves that have not ended; raises BsdError."""
    return pending_journals(layout, *Aim)


def is_occupied(directory: Path) -> bool:
    """Return True if a session's directory holds files that cannot be merged."""
    return directory.is_dir() and not _JOINED.issuperset(os.listdir(directory))


def _is_used_since(directory: Path, moment: float) -> bool:
    """Return True if a stored line, pack or operation was added after `moment` (epoch seconds)."""
    files = (directory / name for name in os.listdir(directory) if name not in _JOINED)
    return any(file.lstat().st_mtime > moment for file in files)


def there_again(item: Trashed) -> Conflict:
    """Return the error for a session that cannot be restored because its name is taken."""
    return Conflict(
        f"there is a session {item.name} again",
        hint=f"`bsd delete {item.name}` moves the new session to the trash; then"
        f" `bsd trash restore {item.id}`",
    )


def _make_younger(directory: Path, seconds: float, now: float) -> None:
    with opened(directory) as here:
        for name in os.listdir(here):
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                then = min(found.st_mtime + max(0.0, seconds), max(now, found.st_mtime))
                os.utime(name, (found.st_atime, then), dir_fd=here, follow_symlinks=False)
