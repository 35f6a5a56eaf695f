"""The steps of a delete, a restore and a removal; a process may be killed between any two of them.

Parts move by renames, so each is whole in one place. Into the trash go the transcript, its entries
in its program's list, the store, archive and history, and last the meta file is written. Until the
transcript is gone nothing has happened; from then on `Trash.recover` finishes. Out of the trash
come the directories, the transcript and the entries. A permanent delete does not use the trash: the
transcript gets a hidden name beside its own, and goes last.

Steps, as `after_step` hears of them, for each session: transcript, excerpt, entries, store, meta,
audited; for good: store_gone, gone. `ended` when the journal is gone.
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
from bsd.maintenance.trashed import BROKEN, Trashed, TrashPlace, read_meta, refuse_another, weigh
from bsd.sessions.commit.exchange import Step, no_step
from bsd.store.entry_notes import FORGOTTEN, RESTORED, UNDONE, EntryNotes, join_forgotten
from bsd.store.index import INDEX_FILE
from bsd.transcripts.agents.program import PutBack
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="trash")

# Notes that bsd may have made of a session while it lay in the trash: joined, or made anew.
_JOINED = {INDEX_FILE, UNDONE, RESTORED, FORGOTTEN}
_REGISTRY_WAIT_SECONDS = 10.0  # as long as the gateway itself waits for that lock


class Aim(StrEnum):
    """Where the sessions of a journal are on their way to."""

    TRASH = "trash"
    BACK = "back"
    AWAY = "away"  # for good, from the trash


class TrashMoves:
    """Sessions on their way. The caller holds bsd's own lock of each.

    Attributes:
        permanent: with aim TRASH: the sessions are deleted for good, not into the trash.
        refused: why a session stayed where it was, by id.
        put_back: the conversations that came back into the program's list, by id.
    """

    def __init__(
        self,
        layout: Layout,
        journal: Journal,
        items: Iterable[Trashed],
        *,
        permanent: bool = False,
        clock: Callable[[], float] = time.time,
        after_step: Step = no_step,
    ) -> None:
        self.journal = journal
        self.aim = Aim(journal.aim)
        self.items = list(items)
        self.permanent = permanent
        self.refused: dict[str, Conflict] = {}
        self.put_back: dict[str, PutBack] = {}
        self._layout = layout
        self._after_step = after_step
        self._audit = AuditLog(layout.audit_file, clock)

    @classmethod
    def begin(
        cls, layout: Layout, aim: Aim, actor: str, at: float, items: list[Trashed], **more: Any
    ) -> TrashMoves:
        """Return moves of which nothing is written or done yet; `more`: see the class."""
        return cls(layout, Journal.begin(layout, items[0].id, aim, actor, at), items, **more)

    @classmethod
    def read(cls, layout: Layout, path: Path, **more: Any) -> TrashMoves:
        """Return the moves that a journal is about; raises as `read_journal`."""
        journal = read_journal(layout, path)
        try:
            items = [Trashed.of(item) for item in journal.details["items"]]
            for item in items:
                refuse_another(layout, layout.trash_dir(), item)
            permanent = journal.details["permanent"] is True
            return cls(layout, journal, items, permanent=permanent, **more)
        except BROKEN as error:
            raise cannot_be_read(path, error) from error

    def save(self) -> None:
        """Make the journal durable as it is; raises OSError."""
        items = [item.document() for item in self.items]
        self.journal.details = {"permanent": self.permanent, "items": items}
        self.journal.write()

    def run(self) -> None:
        """Take every session all the way, or note why it is `refused`; then `end` must follow.

        Raises BsdError, OSError.
        """
        move = {Aim.TRASH: self._delete, Aim.BACK: self._restore, Aim.AWAY: self._remove}[self.aim]
        if self.aim is Aim.TRASH and self.permanent:
            move = self._delete_for_good
        # The last deleted comes back first: so each finds its place in the program's list again.
        for item in self.items[::-1] if self.aim is Aim.BACK else self.items[:]:
            if (problem := move(item)) is not None:
                self.refused[item.id] = problem
                self.items = [each for each in self.items if each.id != item.id]
                self.save()

    def end(self) -> None:
        """Remove the journal: all is done, and the program's locks are given back."""
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
        if place.meta.exists():  # a killed process has done all but the audit
            self._report_deleted(read_meta(self._layout, place.meta))
            return None
        make_private_dir(place.trash)
        path = self._layout.transcript(item.name)
        if problem := self._take_transcript(item, place, path, place.transcript):
            return problem
        set_mode(place.transcript, 0o600)
        self._after_step("transcript")
        if is_there(path):
            # A session of that name has begun since a crash, and may refer to lines in the store.
            # The lines of the one in the trash are found there by their hashes.
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
        if not is_there(path):  # else a session of that name has begun since a crash
            item = self._take_entries(item)
            self._after_step("entries")
            for there, _ in place.directories(self._layout, item.name):
                remove_tree(there)
        self._remove_parts(item)
        self._report_deleted(item)
        return None

    def _take_transcript(
        self, item: Trashed, place: TrashPlace, path: Path, target: Path
    ) -> Conflict | None:
        """Rename the transcript, unless that was done; return why it has to stay."""
        if item.transcript is None or not os.path.lexists(path) or place.has_taken(path):
            return None
        if path.lstat().st_ino != item.transcript[0]:
            return Busy(f"session {item.name} was written anew meanwhile", hint="try again")
        rename(path, target)
        return None

    def _take_entries(self, item: Trashed) -> Trashed:
        """Take a session out of its program's list; the journal has its entries before."""

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
                "Entries of a deleted session stay in its owner's list",
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
            # The originals come first: the session never stands there without its values.
            self._return_directories(item, place)
            self._after_step("store")
            if item.transcript is not None:
                try:
                    set_mode(place.transcript, item.transcript[3])
                    link_back(place.transcript, path, place.beside(path, "restored"))
                except FileExistsError:
                    set_mode(place.transcript, 0o600)
                    for there, here in place.directories(self._layout, item.name):
                        # After a crash, the session that is there again may have used it.
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
        """Move store, archive and history back; notes that are there again are joined before."""
        name, history = item.name, self._layout.history_dir(item.name)
        if history.is_dir() and place.history.is_dir():
            EntryNotes(place.history, name).join(EntryNotes(history, name))
            join_forgotten(place.history, history, name)
        for there, here in place.directories(self._layout, name):
            if here.is_dir():
                # Time in the trash does not count as time kept, or retention would take it all.
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
            _log.warning("The owner's list was left as it is", problem=problem.message)
        self.put_back[item.id] = done
        if done.taken:
            _log.warning(
                "Keys in the owner's list are taken",
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
        """Remove the session from the trash, the meta file last, and the hidden transcript."""
        place = self._place(item)
        for directory in (place.store, place.archive, place.history):
            remove_tree(directory)
        self._after_step("store_gone")
        remove_file(place.transcript)
        remove_file(place.meta)
        if place.trash.is_dir():
            sync_dir(place.trash)
        try:
            hidden = place.beside(self._layout.transcript(item.name), "deleted")
        except BsdError:  # the agent's directory may be a link by now, and hold nothing
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
    """Return True if a session's directory holds something that cannot be joined."""
    return directory.is_dir() and not _JOINED.issuperset(os.listdir(directory))


def _is_used_since(directory: Path, moment: float) -> bool:
    """Return True if a session has got a stored line, a pack or an operation since (epoch s)."""
    files = (directory / name for name in os.listdir(directory) if name not in _JOINED)
    return any(file.lstat().st_mtime > moment for file in files)


def there_again(item: Trashed) -> Conflict:
    """Return the problem of a session that cannot come back as there is one of its name."""
    return Conflict(
        f"there is a session {item.name} again",
        hint=f"`bsd delete {item.name}` puts that one into the trash; then"
        f" `bsd trash restore {item.id}`",
    )


def _make_younger(directory: Path, seconds: float, now: float) -> None:
    with opened(directory) as here:
        for name in os.listdir(here):
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                then = min(found.st_mtime + max(0.0, seconds), max(now, found.st_mtime))
                os.utime(name, (found.st_atime, then), dir_fd=here, follow_symlinks=False)
