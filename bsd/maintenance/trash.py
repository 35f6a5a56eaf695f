"""The trash (SPEC §7): delete, list, restore and remove sessions together with their children.

A session moves into the trash by renames within a single file system. Each operation writes a
journal first. `trash_moves.py` contains the steps; `recover` finishes or undoes interrupted
operations.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import (
    BsdError,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    LeftAlone,
    NotFound,
    os_problem,
)
from bsd.core.files import make_private_dir
from bsd.core.filesystem import refuse_unless_reached
from bsd.core.formatting import lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.maintenance.catalog import Member, family
from bsd.maintenance.leftovers import drafts_of, is_there, kept_beside
from bsd.maintenance.references import References
from bsd.maintenance.rehome_references import Departing, rehome_references
from bsd.maintenance.trash_moves import (
    Aim,
    TrashMoves,
    is_occupied,
    pending_moves,
    there_again,
)
from bsd.maintenance.trashed import (
    Deleted,
    Returned,
    Trashed,
    TrashPlace,
    count_lines,
    ids,
    known_from_names,
    read_meta,
    weigh,
    why_not_ours,
)
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.idle import IdlePolicy, RetryBudget, TimeLeft
from bsd.sessions.session import Session
from bsd.store.contents import contents_of
from bsd.store.search_deletion import forget_sessions
from bsd.transcripts.agents.programs import program_of

_log: BoundLogger = structlog.get_logger(module="trash")


class Trash:
    """The trash of a root.

    Args:
        keep: the setting `trash_retention`.
        actor: the actor named in log and audit.
        budget: how long to wait for busy sessions.
        after_step: for tests.
    """

    def __init__(
        self,
        layout: Layout,
        keep: str,
        *,
        actor: str = "cli",
        budget: RetryBudget | None = None,
        after_step: Step = no_step,
    ) -> None:
        self.layout = layout
        self._keep = keep
        self._actor = actor
        self.budget = budget = budget or RetryBudget()
        self._after_step = after_step
        self._references = References(layout)
        self._idle_policy = IdlePolicy(layout, budget, InFlight(layout))

    # --- listing ---

    def items(self) -> list[Trashed]:
        """Return all sessions in the trash, oldest first.

        A session with a `problem` cannot be restored, only deleted for good.
        """
        hidden = self._moving(Aim.AWAY)
        found = []
        for id_ in ids(self.layout):
            if id_ not in hidden:
                with suppress(NotFound):
                    found.append(self._read(self._place(id_)))
        return found

    def find(self, text: str) -> Trashed:
        """Return a trashed session by its id, or by its name if that is unique in the trash.

        Raises:
            NotFound: the trash has no such session.
            Invalid: the session is in the trash several times, or `text` is neither an id nor a
                name.
        """
        if "/" not in text:
            place = self._place(text)
            if place.is_there:
                return self._read(place)
        else:
            name = SessionName.parse(text)
            found = [item for item in self.items() if item.name == name]
            if len(found) > 1:
                choice = ", ".join(item.id for item in found)
                raise Invalid(f"{text} is in the trash {len(found)} times", hint=f"one of {choice}")
            if found:
                return found[0]
        raise NotFound(f"there is no {text} in the trash", hint="`bsd trash list`")

    def doomed(self, name: SessionName) -> list[Trashed]:
        """Return the sessions that a delete would move: the session and its children."""
        self._refuse_others(name)
        return self._as_items(self._family(name))

    def _place(self, id_: str) -> TrashPlace:
        return TrashPlace(self.layout.trash_dir(), id_)

    def _read(self, place: TrashPlace) -> Trashed:
        """Return one session in the trash; raises NotFound if it is gone or being moved."""
        try:
            item = read_meta(self.layout, place.meta)
        except FileNotFoundError:
            if place.id in self._moving(*Aim) or not place.is_there:
                raise NotFound(f"{place.id} is not in the trash now", hint="again later") from None
            problem = f"{place.meta} is gone: only the names of the files beside it are known"
            item = known_from_names(self.layout, place, problem)
        except Conflict as damaged:
            item = known_from_names(self.layout, place, damaged.message)
        except OSError as error:
            problem = os_problem(error, f"reading {place.meta}").message
            item = known_from_names(self.layout, place, problem)
        return replace(item, expires_at=self._expiry(item.trashed_at))

    def _expiry(self, trashed_at: float) -> float | None:
        lifetime = lifetime_seconds(self._keep)
        return None if lifetime is None else trashed_at + lifetime

    def _moving(self, *aims: Aim) -> set[str]:
        """Return the ids of sessions in journals with these aims: moves under way or killed."""
        found = set()
        for path in pending_moves(self.layout):
            with suppress(OSError, Conflict):
                moves = TrashMoves.read(self.layout, path)
                if moves.aim in aims:
                    found |= {item.id for item in moves.items}
        return found

    # --- into the trash ---

    def delete(self, name: SessionName, *, permanent: bool = False) -> Deleted:
        """Move a session and its children to the trash, or delete them for good.

        If any of them is in use, none is deleted.

        Args:
            permanent: delete for good, without the trash.

        Raises:
            NotFound, Busy, Forbidden.
            LeftAlone: only its program can delete the session, or the trash is on another file
                system.
        """
        _log.trace("A session is deleted", session=str(name))
        self._refuse_others(name)
        waiting = TimeLeft(self.budget)
        with self._family_locked(name) as members, _explained(f"deleting {name}"):
            names = [member.name for member in members]
            self._idle_policy.settle(names)
            self._idle_policy.wait_for(names, waiting)
            if permanent:
                self._rehome([self._departing(each) for each in names], names)
            with ExitStack() as gateway:
                for each in names:
                    gateway.enter_context(self._idle_policy.program_lock(each, waiting.left))
                self._idle_policy.refuse_unless(names)
                self._refuse_others(name)  # its transcript may have come back meanwhile
                if permanent:
                    self._idle_policy.blank(names)
                items = self._as_items(members)
                self._refuse_closed(items)
                if not permanent:
                    self._refuse_other_mounts(items)
                moves = self._begin(Aim.TRASH, items, permanent=permanent, everywhere=permanent)
                self._run(moves)
            moves.end()
        self._forget_beside(moves, for_good=permanent)
        if items[0].id in moves.refused:
            raise moves.refused[items[0].id]
        return Deleted.of(moves.items, permanent=permanent)

    def _refuse_others(self, name: SessionName) -> None:
        """Raise LeftAlone if only its program can delete the session, or if it is not a session.

        The remaining data of a session without a transcript may be deleted.
        """
        program = program_of(self.layout, name.agent)
        hint = "delete them with the program that owns them"
        if database := program.database():
            raise LeftAlone(f"the sessions of {name.agent} are in {database.path}", hint=hint)
        stands = is_there(self.layout, name)
        if stands:
            Session(self.layout, name).refuse_no_session()
        if program.undeletable is None:
            return
        if stands:
            raise LeftAlone(f"{name}: {program.undeletable}", hint=hint)
        with _explained(f"looking for files of {name}"):
            beside = kept_beside(self.layout, name, strictly=True)
        for kept in beside:
            raise LeftAlone(f"{name} lies in {kept}: {program.undeletable}", hint=hint)

    def _family(self, name: SessionName) -> list[Member]:
        """Return the session and its children; raises NotFound if the session has no data left."""
        layout = self.layout
        members = []
        for member in family(layout, name):
            layout.refuse_excluded(member.name)
            if is_there(layout, member.name):
                layout.session_file(member.name)  # raises unless it is a regular file
            else:
                program = program_of(layout, member.name.agent)
                kept = (layout.store_dir(member.name), layout.archive_dir(member.name))
                listed = program.registry().keys(member.name.session)
                if not listed and not any(directory.is_dir() for directory in kept):
                    if member.name == name:
                        raise layout.no_session(name)
                    continue
            members.append(member)
        return members

    @contextmanager
    def _family_locked(self, name: SessionName) -> Iterator[list[Member]]:
        """Yield the family under bsd's locks, including children that appear meanwhile."""
        names: set[SessionName] = set()
        while True:
            with ExitStack() as locks:
                names |= {member.name for member in self._family(name)}
                # Always in the same order, so that processes cannot deadlock.
                for each in sorted(names):
                    locks.enter_context(self._own_lock(each))
                members = self._family(name)
                if {member.name for member in members} <= names:
                    yield members
                    return

    def _own_lock(self, name: SessionName) -> AbstractContextManager[object]:
        budget = self.budget
        return own_lock(self.layout, name, budget.wait, sleep=budget.sleep)

    def _now(self) -> float:
        """Return the time in epoch seconds, rounded to the milliseconds that ids can hold."""
        return round(self.budget.clock() * 1000) / 1000

    def _as_items(self, members: Iterable[Member]) -> list[Trashed]:
        """Return an item for each session in its present state; children name their parent's id."""
        now = self._now()
        items: dict[SessionName, Trashed] = {}
        for member in members:
            name, parent = member.name, items.get(member.parent) if member.parent else None
            path = self.layout.transcript(name)
            files, amount = weigh(self.layout.store_dir(name))
            try:
                found = path.lstat()
            except FileNotFoundError:
                transcript, entries = None, 0
            else:
                mode = stat.S_IMODE(found.st_mode)
                transcript = (found.st_ino, found.st_size, found.st_mtime_ns, mode)
                entries = count_lines(path)
            items[name] = Trashed(
                id=TrashPlace.new(self.layout, name, now).id,
                name=name,
                trashed_at=now,
                expires_at=self._expiry(now),
                parent=parent.id if parent else None,
                original_path=str(path),
                transcript=transcript,
                entries=entries,
                extracted_files=files,
                extracted_bytes=amount,
            )
        return list(items.values())

    def _refuse_other_mounts(self, items: Iterable[Trashed]) -> None:
        """Raise LeftAlone, before the first move, if a part cannot be renamed into the trash."""
        trash = make_private_dir(self.layout.trash_dir())
        for item in items:
            directories = self._place(item.id).directories(self.layout, item.name)
            for path in (self.layout.transcript(item.name), *(pair[0] for pair in directories)):
                if os.path.lexists(path) and not _reaches(path, trash):
                    raise LeftAlone(
                        f"{path} lies on another file system than the trash {trash}, and bsd does "
                        "not move files between file systems; no file was changed",
                        hint=f"`bsd delete {item.name} --permanent` deletes it for good; copy "
                        "the file elsewhere first if you need it",
                    )

    # --- out of the trash ---

    def restore(self, text: str) -> Returned:
        """Restore a session together with the children that were deleted with it.

        Raises:
            NotFound, Busy, LeftAlone.
            Conflict: a session of that name exists again, or the meta file is unusable.
        """
        wanted = self._with_children(self.find(text))
        head = wanted[0]
        if head.problem is not None:
            hint = f"its files are in the trash; `bsd trash delete {head.id}` removes them"
            raise Conflict(head.problem, hint=hint)
        self._refuse_others(head.name)
        with self._locked(wanted) as items, _explained(f"restoring {head.name}"):
            if not items or items[0].id != head.id:
                raise NotFound(f"{head.id} has just left the trash", hint="`bsd trash list`")
            waiting = TimeLeft(self.budget)
            with ExitStack() as gateway:
                for item in items:  # the program may be about to create a session of that name
                    lock = self._idle_policy.program_lock(item.name, waiting.left)
                    gateway.enter_context(lock)
                refused = {item.id: why for item in items if (why := self._in_the_way(item))}
                if head.id in refused:
                    raise refused[head.id]
                coming = [item for item in items if item.id not in refused]
                self._refuse_closed(coming, back=True)
                moves = self._begin(Aim.BACK, coming)
                self._run(moves)
            moves.end()
        if head.id in moves.refused:
            raise moves.refused[head.id]
        return Returned.of(
            moves.items,
            keys_taken=[key for done in moves.put_back.values() for key in done.taken],
            not_restored={**refused, **moves.refused},
        )

    def _with_children(self, item: Trashed) -> list[Trashed]:
        by_parent: dict[str | None, list[Trashed]] = {}
        for each in self.items():
            by_parent.setdefault(each.parent, []).append(each)
        found = [item]
        for each in found:  # the loop appends to this list
            found += [child for child in by_parent.get(each.id, ()) if child not in found]
        return found

    @contextmanager
    def _locked(self, items: list[Trashed]) -> Iterator[list[Trashed]]:
        """Yield the items that are still in the trash, under bsd's locks."""
        with ExitStack() as locks:
            for name in sorted({item.name for item in items}):
                locks.enter_context(self._own_lock(name))
            yield [item for item in items if self._place(item.id).is_there]

    def _in_the_way(self, item: Trashed) -> Conflict | None:
        """Return why a session cannot be restored; None if it can."""
        if is_there(self.layout, item.name):
            return there_again(item)
        for there, here in self._place(item.id).directories(self.layout, item.name):
            if here.is_dir() and is_occupied(there):
                return Conflict(
                    f"{there} exists, and {here} would have to replace it",
                    hint=f"`mv {there} {there}.aside`, then `bsd trash restore {item.id}`",
                )
            if here.is_dir() and there.parent.is_dir() and not _reaches(here, there.parent):
                return LeftAlone(
                    f"{here} lies on another file system than {there.parent}",
                    hint=f"`mv {here} {there}`, then `bsd trash restore {item.id}`",
                )
        return None

    def _refuse_closed(self, items: Iterable[Trashed], *, back: bool = False) -> None:
        """Raise Forbidden, before the first move, for directories that bsd may not move."""
        for item in items:
            for pair in self._place(item.id).directories(self.layout, item.name):
                directory = pair[1 if back else 0]
                if directory.is_dir() and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
                    raise Forbidden(
                        f"{directory} cannot be moved: Permission denied; no file was changed",
                        hint="run as the owner of these files, or correct their permissions; "
                        "`bsd doctor` names files that belong to other users",
                    )

    def remove(self, text: str, *, everywhere: bool = False) -> Trashed:
        """Delete one session in the trash for good.

        Args:
            text: its id, or its name.
            everywhere: a user deletes it, so that all hosts that share a bucket forget it.

        Raises:
            NotFound, Busy.
        """
        item = self.find(text)
        with self._locked([item]) as there, _explained(f"deleting {item.id}"):
            if not there:
                raise NotFound(f"{item.id} has just left the trash", hint="`bsd trash list`")
            self._refuse_closed([item], back=True)
            self._idle_policy.blank([item.name])  # it may have been deleted just now
            self._rehome([self._trashed(item)], [item.name])
            moves = self._begin(Aim.AWAY, [item], everywhere=everywhere)
            self._run(moves)
            moves.end()
        self._forget_beside(moves, for_good=True)
        return item

    def _rehome(
        self, departing: list[Departing], locked: Sequence[SessionName], *, at_once: bool = False
    ) -> None:
        rehome_references(
            self._references,
            departing,
            locked,
            budget=self.budget,
            actor=self._actor,
            at_once=at_once,
        )

    def _departing(self, name: SessionName) -> Departing:
        """Return the files to delete with a session that is still in its place."""
        stores = (self.layout.store_dir(name), self.layout.archive_dir(name))
        return Departing(name, stores, self.layout.transcript(name))

    def _trashed(self, item: Trashed) -> Departing:
        """Return the files to delete with a session that is in the trash."""
        place = self._place(item.id)
        return Departing(item.name, (place.store, place.archive), place.transcript)

    # --- moving, and after a crash ---

    def _begin(
        self,
        aim: Aim,
        items: list[Trashed],
        *,
        permanent: bool = False,
        everywhere: bool = False,
    ) -> TrashMoves:
        return TrashMoves.begin(
            self.layout,
            aim,
            self._actor,
            self._now(),
            items,
            permanent=permanent,
            everywhere=everywhere,
            clock=self.budget.clock,
            after_step=self._after_step,
        )

    def _run(self, moves: TrashMoves) -> None:
        """Write the journal and make the moves; the caller must call `moves.end` afterwards."""
        moves.save()
        self._after_step("journal")
        try:
            moves.tell_others()
            moves.run()
        finally:
            contents_of(self.layout).changed()  # the cached places of stored lines are invalid

    def _forget_beside(self, moves: TrashMoves, *, for_good: bool) -> None:
        """Remove the deleted sessions from the search index; a restored session is read again.

        `for_good`: also remove late bytes and drafts, unless a session of that name exists.
        """
        if moves.aim is Aim.TRASH:
            forget_sessions(self.layout.search_db, [item.name for item in moves.items])
        for item in moves.items if for_good else ():
            if not is_there(self.layout, item.name):
                for orphan in list_orphans(self.layout):
                    if orphan.session == str(item.name):
                        forget_orphan(orphan)
                for draft in drafts_of(self.layout, item.name):
                    shutil.rmtree(draft, ignore_errors=True)

    def recover(self) -> None:
        """Finish or undo interrupted operations; if a session is busy, a later call does it."""
        for path in pending_moves(self.layout):
            try:
                self._recover(path)
            except FileNotFoundError:
                continue  # the operation has just ended
            except Busy as busy:
                _log.debug("A delete or restore is under way", why=busy.message)
            except (BsdError, OSError) as error:
                problem = os_problem(error, str(path))
                _log.error("A delete or restore cannot be finished", problem=problem.message)
                with suppress(OSError):
                    if why := why_not_ours(self.layout, path):
                        audit = AuditLog(self.layout.audit_file)
                        audit.refused(path, why, self._actor)

    def _recover(self, path: Path) -> None:
        names = sorted({item.name for item in TrashMoves.read(self.layout, path).items})
        with ExitStack() as locks:
            for name in names:
                locks.enter_context(own_lock(self.layout, name, 0.0))
            # Read again under the locks: the operation may have ended meanwhile.
            moves = TrashMoves.read(
                self.layout, path, clock=self.budget.clock, after_step=self._after_step
            )
            for_good = moves.permanent or moves.aim is Aim.AWAY
            _log.info("Finishing an interrupted move", aim=str(moves.aim), journal=str(path))
            if for_good:  # other sessions may refer to its lines by now
                departing = [self._trashed(item) for item in moves.items]
                if moves.aim is Aim.TRASH:
                    departing += [self._departing(item.name) for item in moves.items]
                self._rehome(departing, names, at_once=True)
            if moves.aim is Aim.TRASH:
                for item in [each for each in moves.items if self._goes_on(each)]:
                    moves.items.remove(item)
                    with suppress(Busy), self._idle_policy.program_lock(item.name, 0.0):
                        pass  # taking the lock removes the stale lock of the killed process
                moves.save()
            with ExitStack() as gateway:
                for item in moves.items if moves.aim is Aim.TRASH else ():
                    lock = self._idle_policy.program_lock(item.name, 0.0)
                    gateway.enter_context(lock)
                moves.tell_others()
                moves.run()
            moves.end()
        for problem in moves.refused.values():
            _log.warning("A delete or restore was undone", problem=problem.message)
        self._forget_beside(moves, for_good=for_good)

    def _goes_on(self, item: Trashed) -> bool:
        """Return True if a session to be deleted is still in its place and in use."""
        path, place = self.layout.transcript(item.name), self._place(item.id)
        if item.transcript is None or place.has_taken(path) or place.meta.exists():
            return False
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        if (found.st_ino, found.st_size, found.st_mtime_ns) != item.transcript[:3]:
            return True
        return self._idle_policy.why_not(item.name) is not None


def _reaches(path: Path, directory: Path) -> bool:
    """Return True if a rename can bring `path` into `directory`; raises OSError."""
    try:
        refuse_unless_reached(path, directory)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise os_problem(error, doing) from error
