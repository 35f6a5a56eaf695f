"""Brings sessions back that their program has deleted, from their copies in the archive.

All files are made beside their places first, as restore-all would leave them; then each gets its
name unless that is taken, the transcript last: until that is there, no program finds any session.
Whoever is killed in between is gone on from by the next call. Steps, as `after_step` hears of them:
staged, then for each file placed, at last listed.

The path of a file is made from the session's name, and the file belongs to the owner of the
directory in which it lies, whatever its copy says. No link is followed on the way (`relocate`).
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.audit import AuditLog
from bsd.core.directories import give_to_owner_of, make_directories, opened
from bsd.core.errors import (
    BsdError,
    Busy,
    Conflict,
    Invalid,
    LeftAlone,
    os_problem,
)
from bsd.core.files import (
    LARGEST_RECORD,
    read_ours,
    write_all,
    write_private,
)
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName, inside
from bsd.core.locks import OwnLock, own_lock
from bsd.maintenance.deleted_sessions import deleted_parts
from bsd.maintenance.relocate import link_back, open_in_place, remove_file, remove_tree
from bsd.planning.uninstall import plan_leaving
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import format_of
from bsd.store.entry_notes import forgotten_in, note_forgotten
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.store.root_records import RootRecords
from bsd.store.snapshots import Snapshot, SnapshotFile, SnapshotReader, write_snapshot
from bsd.transcripts.agents.program import ENDING, AgentProgram, PutBack
from bsd.transcripts.agents.programs import program_of, secure
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import TranscriptFile

_log = structlog.stdlib.get_logger(module="archive")

_BLOCK = 1 << 20
_REGISTRY_WAIT_SECONDS = 10.0
_BESIDE = "beside"  # names files that may lie beside the places of others
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.bsd-restored")


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What came back. Sizes are bytes."""

    session: str
    id: Annotated[str, Field(description="What it was called in the archive")]
    path: Annotated[str, Field(description="Of its transcript")]
    sessions: Annotated[list[str], Field(description="All that came back, those with it included")]
    files: int
    bytes: int
    unavailable: Annotated[
        dict[str, str],
        Field(description="What stays a placeholder: session and key, and why"),
        OMIT_EMPTY,
    ] = field(default_factory=dict)
    left_out: Annotated[
        list[str], Field(description="What was not copied, and why"), OMIT_EMPTY
    ] = field(default_factory=list)
    keys: Annotated[
        list[str], Field(description="Its keys in its owner's list, put back"), OMIT_EMPTY
    ] = field(default_factory=list)
    keys_taken: Annotated[
        list[str],
        Field(description="Keys that name another session by now: those stay"),
        OMIT_EMPTY,
    ] = field(default_factory=list)
    advice: Annotated[
        str | None, Field(description="What its program may do with it"), OMIT_EMPTY
    ] = None
    name: Internal[SessionName | None] = None


@dataclass(frozen=True, slots=True)
class _Coming:
    """A file on its way back."""

    copy: Snapshot
    file: SnapshotFile
    staged: Path
    target: Path
    top: Path  # the directory of the agent, out of which nothing may lead

    @property
    def is_transcript(self) -> bool:
        return self.file is self.copy.transcript

    @property
    def temporary(self) -> Path:
        """Beside its place, for another mount; no program takes it for a session."""
        digest = hashlib.sha256(f"{self.copy.id} {self.file.path}".encode()).hexdigest()[:16]
        return self.target.with_name(f".{digest}.bsd-restored")


class BringBack:
    """Brings one session back, with its parts; `renamed` is another name for it."""

    def __init__(
        self,
        layout: Layout,
        head: Snapshot,
        *,
        renamed: SessionName | None = None,
        actor: str = "cli",
        budget: RetryBudget | None = None,
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._head = head
        self._name = renamed or head.name
        self._actor = actor
        self._budget = budget or RetryBudget()
        self._after_step = after_step
        self._unavailable: dict[str, str] = {}
        self._advice: list[str] = []
        returning = inside(_returning(layout), layout.root)
        self._staging = returning / f"{layout.store_name(head.name)}@{head.origin}"

    def run(self) -> BroughtBack:
        """Raises Conflict if a file is in the way, Busy, Forbidden, LeftAlone, Unavailable."""
        layout, head = self._layout, self._head
        program = self._refuse_strangers()
        copies = [head, *deleted_parts(layout, head)]
        names = {copy.name for copy in copies} | {self._called(copy) for copy in copies}
        with ExitStack() as locks:
            for name in sorted(names):
                lock = own_lock(layout, name, self._budget.wait, sleep=self._budget.sleep)
                locks.enter_context(lock)
            if source := layout.source_of(self._name.agent):
                secure(layout, source)
            try:
                _clear(layout, self._staging)  # of who was killed: we have the lock
                coming = [one for copy in reversed(copies) for one in self._files(copy)]
                self._refuse_taken(coming)
                self._stage(coming)
                for copy in copies:
                    self._keep_forgotten(copy)
                self._after_step("staged")
                for one in coming:
                    self._place(one)
                    self._after_step("placed")
                done = self._list_again(program)
                self._after_step("listed")
                for copy in copies:
                    write_snapshot(replace(copy, gone_at=None))
            except OSError as error:
                raise os_problem(error, f"bringing back {head.name}") from error
            finally:
                _clear(layout, self._staging)
        return self._told(copies, coming, program, done)

    def _refuse_strangers(self) -> AgentProgram:
        program = program_of(self._layout, self._name.agent)
        if database := program.database():
            raise LeftAlone(
                f"the sessions of {self._name.agent} are in {database} now",
                hint="`bsd archive show` prints it",
            )
        if not program.is_session_file(f"{self._name.session}{ENDING}"):
            raise Invalid(
                f"{self._name.agent} would not find a session called {self._name.session}",
                hint="name it as its program does",
            )
        kinds = {
            source.kind if (source := self._layout.source_of(name.agent)) else None
            for name in (self._head.name, self._name)
        }
        if len(kinds) > 1:
            raise Invalid(
                f"{self._name.agent} belongs to another program than {self._head.name.agent}",
                hint="name an agent of the same program",
            )
        return program

    def _files(self, copy: Snapshot) -> Iterator[_Coming]:
        """What one session is made of, its transcript last."""
        top = self._directory(copy)
        for number, file in reversed(list(enumerate(copy.files))):
            staged = self._staging / f"{self._layout.store_name(copy.name)}-{number}"
            target = self._target(copy, file, top)
            within = top if target.is_relative_to(top) else target.parent
            yield _Coming(copy, file, staged, target, within)

    def _directory(self, copy: Snapshot) -> Path:
        """The directory of the agent that the copy shall belong to."""
        here = self._layout.sessions_dir(self._name.agent)
        if copy is self._head:
            return here
        # What is a part of it lies below a directory that is called as the session is.
        below = self._layout.sessions_dir(copy.name.agent).relative_to(
            self._layout.sessions_dir(self._head.name.agent)
        )
        return here / self._renamed(str(below))

    def _called(self, copy: Snapshot) -> SessionName:
        """What a session that comes is called from now on."""
        if copy is self._head:
            return self._name
        layout, agent = self._layout, self._name.agent
        source = layout.source_of(agent)
        top = source.directory(agent) if source else None
        if source is None or top is None:
            return copy.name
        below = self._directory(copy).relative_to(layout.sessions_dir(agent))
        return SessionName(source.agent_at(top / below) or copy.name.agent, copy.name.session)

    def _keep_forgotten(self, copy: Snapshot) -> None:
        """What a session was made to forget it does not get back by another name, either."""
        layout, name = self._layout, self._called(copy)
        if name != copy.name:
            hashes = forgotten_in(layout.history_dir(copy.name))
            note_forgotten(layout.history_dir(name), name, hashes)

    def _target(self, copy: Snapshot, file: SnapshotFile, top: Path) -> Path:
        if file is not copy.transcript:
            return top / (self._renamed(file.path) if copy is self._head else file.path)
        if copy is not self._head:
            return top / f"{copy.name.session}{ENDING}"
        places = self._layout.places_of(self._name)
        if copy.put_away and len(places) > 1:
            return places[1]
        return top / f"{self._name.session}{ENDING}"

    def _renamed(self, path: str) -> Path:
        first, *rest = Path(path).parts
        first = self._name.session if first == self._head.name.session else first
        return Path(first, *rest)

    def _refuse_taken(self, coming: Sequence[_Coming]) -> None:
        """Raise before anything is made, if a place is taken by something else."""
        for one in reversed(coming):  # the transcript says most
            inside(one.target.parent, one.top)
            _refuse_no_directory(one)
            if not os.path.lexists(one.target) or _looks_placed(one):
                continue
            if one.is_transcript and one.copy is self._head:
                raise Conflict(
                    f"there is a session {self._name} again: {one.target}",
                    hint=f"`bsd archive bring-back {self._head.id} --as AGENT/SESSION`",
                )
            raise Conflict(
                f"{one.target} is there, and is not what would come back",
                hint="move it away, then try again",
            )

    # --- made beside their places ---

    def _stage(self, coming: Sequence[_Coming]) -> None:
        make_directories(self._staging)
        beside = [os.fsencode(one.temporary) for one in coming]
        write_private(self._staging / _BESIDE, b"\0".join(beside))
        for one in coming:
            if one.is_transcript:
                self._make_whole(one)
            else:
                _write_out(one)
            _dress(one)

    def _make_whole(self, one: _Coming) -> None:
        """The transcript with all values inline, as restore-all would leave it."""
        layout, name = self._layout, one.copy.name
        _write_out(one)
        program = program_of(layout, name.agent)
        with TranscriptFile(one.staged) as source:
            fmt = format_of(source, program)
        if fmt is None:
            return
        store, history = SessionStore(layout, name), History(layout, name)
        records = RootRecords(layout, store, history.entry_notes)
        now, complete = self._budget.clock(), False
        while not complete:
            with TranscriptFile(one.staged) as source:
                plan, answers = plan_leaving(source, fmt, now, store, records, history)
                for answer in answers:
                    for key, why in answer.unavailable.items():
                        self._unavailable[f"{name} {answer.entry_id} {key}"] = why
                if not plan.edits:
                    return
                next_one = one.staged.with_name(f"{one.staged.name}.next")
                _write_edited(source, plan.edits, next_one)
            os.replace(next_one, one.staged)
            complete = plan.complete

    def _place(self, one: _Coming) -> None:
        """Give a file its name, which nobody else may have taken meanwhile."""
        if not os.path.lexists(one.target):
            make_directories(one.target.parent)
        _give(one)
        try:
            link_back(one.staged, one.target, one.temporary)
        except FileExistsError:
            remove_file(one.temporary)
            if not (_looks_placed(one) and filecmp.cmp(one.staged, one.target, shallow=False)):
                raise Conflict(
                    f"{one.target} has just appeared, and is not what would come back",
                    hint="move it away, then try again",
                ) from None

    def _list_again(self, program: AgentProgram) -> PutBack:
        """In its program's own list, if it stood there when it was copied."""
        head = self._head
        if head.listed is None or self._name != head.name:
            return PutBack()
        try:
            return program.list_again(head.listed, wait=_REGISTRY_WAIT_SECONDS)
        except Conflict as problem:  # Busy, too: the session itself is back
            _log.warning("The owner's list was left as it is", problem=problem.message)
            self._advice.append(f"its owner's list was left as it is: {problem.message}")
            return PutBack()

    def _told(
        self,
        copies: Sequence[Snapshot],
        coming: Sequence[_Coming],
        program: AgentProgram,
        listed: PutBack,
    ) -> BroughtBack:
        head, path = self._head, coming[-1].target
        amount = 0
        for one in coming:
            with suppress(OSError):
                amount += one.target.lstat().st_size
        _log.info(f"archive_bring_back: {self._name}, files {len(coming)}", actor=self._actor)
        AuditLog(self._layout.audit_file, self._budget.clock).record(
            actor=self._actor,
            action="archive_bring_back",
            agent=self._name.agent,
            session_id=self._name.session,
            files=len(coming),
            bytes=amount,
        )
        return BroughtBack(
            session=str(self._name),
            id=head.id,
            path=str(path),
            sessions=[str(self._called(copy)) for copy in copies],
            files=len(coming),
            bytes=amount,
            unavailable=self._unavailable,
            left_out=[text for copy in copies for text in copy.left_out],
            keys=list(listed.keys),
            keys_taken=list(listed.taken),
            advice="; ".join([*self._advice, *_advice(program, path, head)]) or None,
            name=self._name,
        )


def _returning(layout: Layout) -> Path:
    return layout.own / "returning"


def sweep_returning(layout: Layout) -> None:
    """Remove what bringing back has left half done when it was killed."""
    with suppress(FileNotFoundError, NotADirectoryError, BsdError):
        directory = layout.refuse_outside(_returning(layout))
        for each in sorted(os.listdir(directory)):
            store = each.rpartition("@")[0]
            name = layout.session_of_store(store) or SessionName("store", "any")
            with suppress(Busy, OSError):
                file = layout.lock_file_of(store)
                with OwnLock(file, 0.0, name=name):
                    _clear(layout, inside(directory, layout.root) / each)


def clear_returning(layout: Layout, name: SessionName) -> None:
    """The same for one session, whose own lock is held."""
    with suppress(FileNotFoundError, NotADirectoryError, BsdError):
        directory = layout.refuse_outside(_returning(layout))
        for each in os.listdir(directory):
            if each.rpartition("@")[0] == layout.store_name(name):
                _clear(layout, inside(directory, layout.root) / each)


def _clear(layout: Layout, staging: Path) -> None:
    """Remove what one call has made beside the places of files, and under the root."""
    with suppress(OSError):
        told = read_ours(staging / _BESIDE, layout.root, LARGEST_RECORD)
        for path in map(Path, map(os.fsdecode, filter(None, told.split(b"\0")))):
            if _TEMPORARY.fullmatch(path.name) and layout.holds(path):
                with suppress(OSError):
                    remove_file(path)
    with suppress(OSError):
        remove_tree(staging)


def _advice(program: AgentProgram, path: Path, head: Snapshot) -> list[str]:
    if program.deletes is None:
        return []
    then = iso_utc(head.transcript.was.mtime_ns / 1e9)[:10]
    return [f"{program.deletes}, and this one is of {then}: `touch {path}` makes it young"]


def _looks_placed(one: _Coming) -> bool:
    """Whether a file may be one that an earlier call has placed: its time and mode are right."""
    try:
        found = one.target.lstat()
    except OSError:
        return False
    was = one.file.was
    plain = one.target.is_file() and not one.target.is_symlink()
    return plain and found.st_mtime_ns == was.mtime_ns and found.st_mode & 0o777 == one.file.mode


def _refuse_no_directory(one: _Coming) -> None:
    for directory in one.target.parents:
        if directory.is_dir():
            return
        if os.path.lexists(directory):
            raise Conflict(
                f"{directory} is there, and is no directory", hint="move it away, then try again"
            )


def _write_out(one: _Coming) -> None:
    with closing(SnapshotReader(one.copy, one.file)) as source:
        _write_new(one.staged, source.whole())


def _write_edited(source: TranscriptFile, edits: Sequence[Edit], path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        at = 0
        for edit in (*edits, Edit(source.identity.size, 0, b"")):
            for start in range(at, edit.offset, _BLOCK):
                yield source.read(start, min(_BLOCK, edit.offset - start))
            yield edit.new
            at = edit.offset + edit.length

    _write_new(path, pieces())


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """A new private file, durable when this returns."""
    target = open_in_place(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for piece in pieces:
            write_all(target, piece)
        os.fsync(target)
    finally:
        os.close(target)


def _dress(one: _Coming) -> None:
    """Give a file mode and time as they were; no more than permissions."""
    staged = open_in_place(one.staged)
    try:
        os.fchmod(staged, one.file.mode & 0o777)
        os.utime(staged, ns=(one.file.was.mtime_ns, one.file.was.mtime_ns))
    finally:
        os.close(staged)


def _give(one: _Coming) -> None:
    """Let a file belong to the owner of the directory in which it will lie."""
    with opened(one.target.parent) as directory, suppress(FileNotFoundError):
        staged = open_in_place(one.staged)  # unless it has been given its name already
        try:
            give_to_owner_of(directory, staged)
        finally:
            os.close(staged)
