"""The trash (SPEC §7): delete, list, bring back, delete for good; a session with its children.

What is under way is written into a journal first (`trashed.Journal`) and made in small steps
(`trash_moves.Moves`); `recover` finishes or undoes what a crash has left.
"""

from __future__ import annotations

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
from bsd.core.formatting import lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.maintenance.catalog import Member, family
from bsd.maintenance.leftovers import drafts_of, is_there, kept_beside
from bsd.maintenance.references import References
from bsd.maintenance.rehome_references import Departing, rehome_references
from bsd.maintenance.relocate import in_the_way
from bsd.maintenance.trash_moves import JOINED, Moves
from bsd.maintenance.trashed import (
    Aim,
    Deleted,
    Journal,
    Returned,
    Trashed,
    TrashPlace,
    count_lines,
    ids,
    journals,
    known_from_names,
    read_meta,
    weigh,
    why_not_ours,
)
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.idle import IdlePolicy, RetryBudget, Waiting
from bsd.sessions.session import Session
from bsd.store.contents import contents_of
from bsd.store.search import forget_sessions
from bsd.transcripts.agents.programs import program_of

_log: BoundLogger = structlog.get_logger(module="trash")


class Trash:
    """Deletes and brings back, for whoever asks; `actor` is written to audit and log.

    `keep` is the setting `trash_retention`.
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

    # --- looking ---

    def items(self) -> list[Trashed]:
        """All that lies in the trash, the oldest first.

        What has a `problem` cannot be brought back, only deleted for good.
        """
        hidden = self._on_their_way(Aim.AWAY)
        found = []
        for each in ids(self.layout):
            if each in hidden:
                continue
            try:
                found.append(self._read(self._place(each)))
            except NotFound:
                continue
        return found

    def find(self, text: str) -> Trashed:
        """The one with this id, or the only one of this session; raises NotFound, Invalid."""
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

    def _place(self, id_: str) -> TrashPlace:
        return TrashPlace(self.layout.trash_dir(), id_)

    def _read(self, place: TrashPlace) -> Trashed:
        """What is known of one; raises NotFound if it is on its way, or gone."""
        try:
            item = read_meta(self.layout, place.meta)
        except FileNotFoundError:
            if place.id in self._on_their_way(*Aim) or not place.is_there:
                raise NotFound(f"{place.id} is not in the trash now", hint="again later") from None
            problem = f"{place.meta} is gone: of what it said only the files beside it are known"
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

    def doomed(self, name: SessionName) -> list[Trashed]:
        """What deleting a session would take: itself and its children, as they are now."""
        self._refuse_others(name)
        now = self._now()
        return [self._look(m, None, now) for m in self._family(name)]

    # --- into the trash ---

    def delete(self, name: SessionName, *, permanent: bool = False) -> Deleted:
        """Move a session and its children to the trash, or `permanent`ly away.

        All of them or, if one is in use, none. Raises NotFound, Busy, LeftAlone, Forbidden.
        """
        _log.trace("A session is deleted", session=str(name))
        self._refuse_others(name)
        waiting = Waiting(self.budget)
        with self._family_locked(name) as members, _explained(f"deleting {name}"):
            names = [member.name for member in members]
            self._idle_policy.settle(names)
            self._idle_policy.wait_for(names, waiting)
            if permanent:
                self._rehome([self._leaving(each) for each in names], names)
            with ExitStack() as gateway:
                for each in names:
                    gateway.enter_context(self._idle_policy.program_lock(each, waiting.left))
                self._idle_policy.refuse_unless(names)
                self._refuse_others(name)  # it may be back by now
                if permanent:
                    self._idle_policy.blank(names)
                journal = self._journal(members, permanent=permanent)
                self._refuse_closed(journal.items)
                head = journal.items[0].id
                moves = self._run(journal)
            moves.end(journal)
        self._forget(journal)
        if permanent:
            self._forget_beside(journal)
        if head in moves.refused:
            raise moves.refused[head]
        return Deleted.of(journal.items, permanent=permanent)

    def _refuse_others(self, name: SessionName) -> None:
        """Raise LeftAlone for what only its owner can delete: not for what is left of it.

        And for a file that is no session.
        """
        program = program_of(self.layout, name.agent)
        hint = "delete them with the program that owns them"
        if database := program.database():
            raise LeftAlone(f"the sessions of {name.agent} are in {database}", hint=hint)
        stands = is_there(self.layout, name)
        if stands:
            Session(self.layout, name).refuse_no_session()
        if program.undeletable is None:
            return
        if stands:
            raise LeftAlone(f"{name}: {program.undeletable}", hint=hint)
        with _explained(f"looking for what is left of {name}"):
            beside = kept_beside(self.layout, name, strictly=True)
        for kept in beside:
            raise LeftAlone(f"{name} lies in {kept}: {program.undeletable}", hint=hint)

    def _family(self, name: SessionName) -> list[Member]:
        """The session and its children; raises NotFound if nothing at all is left of it."""
        members = []
        for member in family(self.layout, name):
            if is_there(self.layout, member.name):
                self.layout.session_file(member.name)  # a plain file
            elif not self._is_there(member.name):
                if member.name == name:
                    raise self.layout.no_session(name)
                continue
            members.append(member)
        return members

    def _is_there(self, name: SessionName) -> bool:
        """Whether there is a trace of a session without its transcript."""
        listed = program_of(self.layout, name.agent).registry().keys(name.session)
        kept = (self.layout.store_dir(name), self.layout.archive_dir(name))
        return bool(listed) or any(directory.is_dir() for directory in kept)

    @contextmanager
    def _family_locked(self, name: SessionName) -> Iterator[list[Member]]:
        """The family under bsd's own locks; a child that is born meanwhile is locked, too."""
        names: set[SessionName] = set()
        while True:
            with ExitStack() as locks:
                names |= {member.name for member in self._family(name)}
                # In one order everywhere: so two that each want several never wait in a ring.
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
        """The time, as exact as it is written down."""
        return round(self.budget.clock() * 1000) / 1000

    def _journal(self, members: list[Member], *, permanent: bool) -> Journal:
        now = self._now()
        items: dict[SessionName, Trashed] = {}
        for member in members:
            parent = items.get(member.parent) if member.parent else None
            items[member.name] = self._look(member, parent.id if parent else None, now)
        found = list(items.values())
        journal = Journal.begin(self.layout, Aim.TRASH, self._actor, now, found)
        journal.permanent = permanent
        return journal

    def _look(self, member: Member, parent: str | None, now: float) -> Trashed:
        """What is there of a session now."""
        path = self.layout.transcript(member.name)
        files, amount = weigh(self.layout.store_dir(member.name))
        try:
            found = path.lstat()
        except FileNotFoundError:
            known, entries = None, 0
        else:
            mode = stat.S_IMODE(found.st_mode)
            known = (found.st_ino, found.st_size, found.st_mtime_ns, mode)
            entries = count_lines(path)
        return Trashed(
            id=TrashPlace.new(self.layout, member.name, now).id,
            name=member.name,
            trashed_at=now,
            expires_at=self._expiry(now),
            parent=parent,
            original_path=str(path),
            transcript=known,
            entries=entries,
            extracted_files=files,
            extracted_bytes=amount,
        )

    # --- out of the trash ---

    def restore(self, text: str) -> Returned:
        """Bring a session back, and the children that went with it.

        Raises NotFound, Busy, LeftAlone, and Conflict if a session of that name is there again.
        """
        wanted = self._with_children(self.find(text))
        head = wanted[0]
        if head.problem is not None:
            hint = f"its files lie there; `bsd trash delete {head.id}` removes them"
            raise Conflict(head.problem, hint=hint)
        self._refuse_others(head.name)
        with self._locked(wanted) as items, _explained(f"restoring {head.name}"):
            if not items or items[0].id != head.id:
                raise NotFound(f"{head.id} has just left the trash", hint="`bsd trash list`")
            waiting = Waiting(self.budget)
            with ExitStack() as gateway:
                for item in items:  # its program may be about to begin a session of that name
                    lock = self._idle_policy.program_lock(item.name, waiting.left)
                    gateway.enter_context(lock)
                refused = {item.id: why for item in items if (why := self._in_the_way(item))}
                if head.id in refused:
                    raise refused[head.id]
                coming = [item for item in items if item.id not in refused]
                self._refuse_closed(coming, back=True)
                journal = Journal.begin(self.layout, Aim.BACK, self._actor, self._now(), coming)
                moves = self._run(journal)
            moves.end(journal)
        if head.id in moves.refused:
            raise moves.refused[head.id]
        stayed = {**refused, **moves.refused}
        returned = tuple(journal.items)
        return Returned(
            items=returned,
            id=returned[0].id,
            session=returned[0].session,
            sessions=[item.session for item in returned],
            bytes=sum(item.size for item in returned),
            extracted_files=sum(item.extracted_files for item in returned),
            extracted_bytes=sum(item.extracted_bytes for item in returned),
            keys_taken=tuple(key for done in moves.put_back.values() for key in done.taken),
            not_restored={each: problem.message for each, problem in stayed.items()},
        )

    def _refuse_closed(self, items: Iterable[Trashed], *, back: bool = False) -> None:
        """Raise Forbidden, before anything goes, for directories that we cannot move."""
        for item in items:
            for pair in self._place(item.id).directories(self.layout, item.name):
                directory = pair[1 if back else 0]
                if directory.is_dir() and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
                    raise Forbidden(
                        f"{directory} cannot be moved: Permission denied; nothing was changed",
                        hint="run as the owner of these files, or mend their permissions; "
                        "`bsd doctor` names those that belong to somebody else",
                    )

    def _in_the_way(self, item: Trashed) -> Conflict | None:
        """Why a session cannot come back."""
        if is_there(self.layout, item.name):
            return Conflict(
                f"there is a session {item.name} again",
                hint="delete or rename that one, then try again",
            )
        for there, here in self._place(item.id).directories(self.layout, item.name):
            if names := [name for name in in_the_way(here, there) if name not in JOINED]:
                return Conflict(
                    f"{there} has another {names[0]} than the one in the trash",
                    hint="move that directory away, then try again",
                )
        return None

    def remove(self, text: str) -> Trashed:
        """Delete one session in the trash for good; raises NotFound, Busy."""
        item = self.find(text)
        with self._locked([item], to_delete=True), _explained(f"deleting {item.id}"):
            self._refuse_closed([item], back=True)
            self._idle_policy.blank([item.name])  # it may have been deleted a moment ago
            self._rehome([self._gone(item)], [item.name])
            journal = Journal.begin(self.layout, Aim.AWAY, self._actor, self._now(), [item])
            moves = self._run(journal)
            moves.end(journal)
        self._forget_beside(journal)
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

    def _leaving(self, name: SessionName) -> Departing:
        """What goes with a session that is still in its place."""
        stores = (self.layout.store_dir(name), self.layout.archive_dir(name))
        return Departing(name, stores, self.layout.transcript(name))

    def _gone(self, item: Trashed) -> Departing:
        """What goes with a session that lies in the trash."""
        place = self._place(item.id)
        return Departing(item.name, (place.store, place.archive), place.transcript)

    def _with_children(self, item: Trashed) -> list[Trashed]:
        by_parent: dict[str | None, list[Trashed]] = {}
        for each in self.items():
            by_parent.setdefault(each.parent, []).append(each)
        found = [item]
        for each in found:  # it grows while it is walked
            found += [child for child in by_parent.get(each.id, ()) if child not in found]
        return found

    @contextmanager
    def _locked(self, items: list[Trashed], *, to_delete: bool = False) -> Iterator[list[Trashed]]:
        """Those of the items that still lie in the trash, under bsd's own locks."""
        with ExitStack() as locks:
            for name in sorted({item.name for item in items}):
                locks.enter_context(self._own_lock(name))
            there = [item for item in items if self._place(item.id).is_there]
            if to_delete and not there:
                raise NotFound(f"{items[0].id} has just left the trash", hint="`bsd trash list`")
            yield there

    # --- after a crash ---

    def recover(self) -> None:
        """Finish or undo what an earlier process left half done; what is busy waits for later."""
        for path in journals(self.layout):
            try:
                self._recover(path)
            except FileNotFoundError:
                continue  # its process has just finished
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
        names = sorted({item.name for item in Journal.read(self.layout, path).items})
        with ExitStack() as locks:
            for name in names:
                locks.enter_context(own_lock(self.layout, name, 0.0))
            # Its process may have ended it until just now.
            journal = Journal.read(self.layout, path)
            _log.info("Finishing what was interrupted", aim=str(journal.aim), journal=str(path))
            if journal.aim is Aim.AWAY or journal.permanent:  # copies may have been made since
                leaving = [self._gone(item) for item in journal.items]
                if journal.aim is Aim.TRASH:
                    leaving += [self._leaving(item.name) for item in journal.items]
                self._rehome(leaving, names, at_once=True)
            if journal.aim is Aim.TRASH:
                for item in [each for each in journal.items if self._goes_on(each)]:
                    journal.items.remove(item)
                    with suppress(Busy), self._idle_policy.program_lock(item.name, 0.0):
                        pass  # the lock that the killed process held is buried
                journal.save()
            with ExitStack() as gateway:
                for item in journal.items if journal.deletes else ():
                    lock = self._idle_policy.program_lock(item.name, 0.0)
                    gateway.enter_context(lock)
                moves = self._moves()
                moves.run(journal)
            moves.end(journal)
        if journal.deletes:
            self._forget(journal)
        if journal.aim is Aim.AWAY:
            self._forget_beside(journal)

    def _forget(self, journal: Journal) -> None:
        """Take what is gone out of the search index; restoring reads it again."""
        forget_sessions(self.layout.search_db, [item.name for item in journal.items])

    def _forget_beside(self, journal: Journal) -> None:
        """Take late bytes and drafts of what is gone for good, unless a session of that name is."""
        for item in journal.items:
            if is_there(self.layout, item.name):
                continue
            for orphan in list_orphans(self.layout):
                if orphan.session == str(item.name):
                    forget_orphan(orphan)
            for draft in drafts_of(self.layout, item.name):
                shutil.rmtree(draft, ignore_errors=True)

    def _goes_on(self, item: Trashed) -> bool:
        """Whether a session that was to be deleted is still in its place, and was used since."""
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

    def _on_their_way(self, *aims: Aim) -> set[str]:
        """The ids of what somebody is moving, or was when it was killed."""
        found = set()
        for path in journals(self.layout):
            with suppress(OSError, Conflict):
                journal = Journal.read(self.layout, path)
                if journal.aim in aims:
                    found |= {item.id for item in journal.items}
        return found

    def _run(self, journal: Journal) -> Moves:
        """Do what a new journal says; `end` of what is returned must follow."""
        journal.save()
        self._after_step("journal")
        moves = self._moves()
        try:
            moves.run(journal)
        finally:
            contents_of(self.layout).changed()  # a slow look just before holds no longer
        return moves

    def _moves(self) -> Moves:
        return Moves(self.layout, self.budget.clock, self._after_step)


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise os_problem(error, doing) from error
