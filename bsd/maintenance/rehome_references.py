"""Copies stored lines to the sessions that refer to them before a store or archive is deleted.

Programs copy entries, markers included, into other sessions, while the original of such an entry
lies in the store of the session from which it was extracted. If that store holds the only copy, the
line is copied to the store of a session that refers to it. The copy keeps its timestamp, from which
retention counts the age. Lines that only an undo history refers to are copied too, so that undo
still works.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import Busy, Unavailable, os_problem
from bsd.core.layout import SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.references import Reference, References, ReferringSession
from bsd.sessions.idle import RetryBudget
from bsd.store.archive import SessionArchive
from bsd.store.contents import StoredPlace, contents_of
from bsd.store.entry_notes import forgotten_in
from bsd.store.index import Record
from bsd.store.originals import SessionStore, StoredOriginal
from bsd.store.pack import Pack, PackDamaged

_log = structlog.stdlib.get_logger(module="trash")

_MOST_BYTES = 16 * 1024 * 1024  # limit of the lines held in memory


@dataclass(frozen=True, slots=True)
class Departing:
    """The store, archive and transcript of a session that are to be deleted for good.

    `hashes`: only the stored lines with these hashes are to be deleted; None: all.
    """

    name: SessionName
    stores: tuple[Path, ...]
    transcript: Path
    hashes: frozenset[str] | None = None


# The reference of another session to a line that is to be deleted, and the line's place.
_NeededLine = tuple[Reference, StoredPlace]


def rehome_references(
    references: References,
    departing: Collection[Departing],
    locked: Collection[SessionName],
    *,
    budget: RetryBudget,
    actor: str,
    at_once: bool = False,
) -> None:
    """Copy lines that are to be deleted to the other sessions that refer to them.

    The copies are durable when this returns. If it raises, the caller must not delete the files.

    Args:
        references: the references of the root. Reusing the object for several calls saves reading.
        departing: the sessions and files to be deleted for good.
        locked: the sessions whose bsd lock the caller holds.
        budget: how long to wait for another bsd process that works on a session.
        actor: the actor named in log and audit.
        at_once: do not wait for locks.

    Raises:
        Busy: a session that needs a line is in use.
        Unavailable: the disk is full.
        BsdError: a session that may need a line cannot be read.
    """
    contents_of(references.layout).changed()
    try:
        move = _Rehoming(references, departing)
        needs = move.needs()
        with ExitStack() as locks:
            for name in sorted({session.name for session in needs} - set(locked)):
                wait = 0.0 if at_once else budget.wait
                lock = own_lock(references.layout, name, wait, sleep=budget.sleep)
                locks.enter_context(lock)
            # Again under the locks, because a session may have changed or moved meanwhile.
            again = move.needs() if needs else {}
            if {session.name for session in again} - {session.name for session in needs}:
                raise Busy("sessions that need these lines have just changed", hint="again later")
            for session, lines in again.items():
                files, size = move.store(session, lines)
                if files == 0:
                    continue  # the lines expired meanwhile
                _log.info(f"hand_down: {session.name}, files {files}", actor=actor, bytes=size)
                AuditLog(references.layout.audit_file, budget.clock).record(
                    actor=actor,
                    action="hand_down",
                    agent=session.name.agent,
                    session_id=session.name.session,
                    files=files,
                    bytes=size,
                )
    except OSError as error:
        where = error.filename or "stored lines that other sessions may need"
        raise os_problem(error, f"reading {where}") from error


class _Rehoming:
    def __init__(self, references: References, departing: Collection[Departing]) -> None:
        self._references = references
        self._layout = references.layout
        self._contents = contents_of(references.layout)
        self._departing = departing
        self._stores = {store for each in departing for store in each.stores}
        self._transcripts = {each.transcript for each in departing}
        self._only_here = self._lines_only_here()
        self._damaged = self._damaged_pack()

    def _lines_only_here(self) -> dict[str, StoredPlace]:
        """Return the lines, by hash, of which no intact copy would remain."""
        here = {
            each.hash: each
            for one in self._departing
            for store in one.stores
            for each in self._contents.of_store(store)
            if one.hashes is None or each.hash in one.hashes
        }
        return {hash_: place for hash_, place in here.items() if not self._stays(hash_)}

    def _stays(self, hash_: str) -> bool:
        return any(
            place.directory not in self._stores and place.line() is not None
            for place in self._contents.with_hash(hash_)
        )

    def _damaged_pack(self) -> PackDamaged | None:
        """Return the damage of a departing pack with a broken index, which may hold any line.

        Raises OSError, BsdError if a store or pack cannot be read now.
        """
        found = None
        for store in self._stores:
            if problem := self._contents.unread_in(store):
                raise problem
            for path in SessionArchive(store).packs():
                try:
                    with Pack(path) as pack:
                        pack.check_index()
                except FileNotFoundError:
                    continue  # merged meanwhile
                except PackDamaged as damaged:
                    found = found or damaged
        return found

    def needs(self) -> dict[ReferringSession, list[_NeededLine]]:
        """Return the sessions that refer to departing lines, with these; each line occurs once."""
        left, damaged = dict(self._only_here), self._damaged
        places: dict[int, list[StoredPlace]] = defaultdict(list)
        for place in left.values():
            places[place.entry].append(place)
        found = {}
        for session in self._references.sessions() if left or damaged else ():
            if not left and damaged is None:
                break
            snapshot = session.snapshot
            goes_too = snapshot and snapshot.directory.parent in self._stores
            if goes_too or session.transcript in self._transcripts:
                continue
            unwanted = forgotten_in(session.history)
            references = [
                reference
                for reference in self._references.of(
                    session, left, places, every=damaged is not None
                )
                if reference.marker.hash not in unwanted
            ]
            if damaged is not None:
                self._refuse_missing(session, references, damaged)
            needed = [
                (reference, left.pop(reference.marker.hash))
                for reference in references
                if reference.marker.hash in left
            ]
            if needed:
                found[session] = needed
        return found

    def _refuse_missing(
        self, session: ReferringSession, references: list[Reference], damaged: PackDamaged
    ) -> None:
        """Raise Unavailable for a line without a readable copy, which the damaged pack may hold."""
        for hash_ in {reference.marker.hash for reference in references} - self._only_here.keys():
            if not any(place.line() is not None for place in self._contents.with_hash(hash_)):
                raise Unavailable(
                    f"the pack {damaged}; {session.name} may need its lines",
                    hint="`bsd verify --repair`; if the pack lies in the trash, restore its "
                    "session first",
                ) from damaged

    def store(self, session: ReferringSession, needed: list[_NeededLine]) -> tuple[int, int]:
        """Store the lines for a session; return the number of files and their bytes."""
        own = SessionStore(self._layout, session.name, session.store)
        files = size = 0
        for portion in _portions(needed):
            used: set[str] = set()
            keeps = []
            for reference, _, line in portion:
                marker, index = reference.marker, reference.index or 0
                ref = own.free_ref(marker.ref, used)
                used.add(ref)
                kind = ref.partition("_")[2].partition("-")[0]
                keys, hash_ = marker.keys, marker.hash
                keeps.append(StoredOriginal(ref, "", index, kind, hash_, len(line), keys, (), line))
            own.add(keeps)
            records = []
            for (reference, place, _), keep in zip(portion, keeps, strict=True):
                _copy_times(place.file, own.file(keep.ref))
                if (record := self._record(place)) is not None:
                    index = record.index if reference.index is None else reference.index
                    records.append(replace(record, file=f"{keep.ref}.json", index=index))
            with suppress(Unavailable):  # the index is only a cache
                own.index.add(records)
            files, size = files + len(keeps), size + sum(keep.size for keep in keeps)
        return files, size

    def _record(self, place: StoredPlace) -> Record | None:
        """Return the record of a line from the index or pack that is to be deleted."""
        if place.pack:
            return place.record()
        store = SessionStore(self._layout, SessionName("store", "any"), place.directory)
        return store.index.records.get(f"{place.ref}.json")


def _portions(
    needed: list[_NeededLine],
) -> Iterator[list[tuple[Reference, StoredPlace, bytes]]]:
    """Read the lines and yield them in portions of about `_MOST_BYTES`."""
    portion, size = [], 0
    for reference, place in needed:
        line = place.readable_line()
        if line is None:
            continue  # expired meanwhile
        portion.append((reference, place, line))
        size += len(line)
        if size >= _MOST_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _copy_times(source: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        was = source.stat()
        os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))
