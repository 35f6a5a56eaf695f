"""Brings sessions that their program has deleted back from their snapshots in the archive.

All files are first written under temporary names beside their targets, with values inline as
restore-all leaves them. Then each file gets its name unless that name is taken. The transcript is
last, because programs find a session by its transcript. Missing files of the project's memory
come back together with the session.

If a call is killed, the user repeats it. The next call, `forget` or the daemon (`sweep_returning`)
removes its temporary files. `after_step` is called with the names of the steps: `staged`, `placed`
for each file, `listed`.

The path of a file is made from the session's name. A file gets the owner of its directory, not the
user that the snapshot names. Symbolic links on the way are not followed (`core/directories`).
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.audit import AuditLog
from bsd.core.directories import give_to_owner_of, is_there, make_directories, opened
from bsd.core.errors import (
    BsdError,
    Busy,
    Conflict,
    Invalid,
    LeftAlone,
    Unavailable,
    os_problem,
)
from bsd.core.files import open_plain, write_all
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName, inside
from bsd.core.locks import OwnLock, own_lock
from bsd.maintenance.crash_journal import read_journal, write_journal
from bsd.maintenance.deleted_sessions import beginnings, deleted_parts, is_deleted
from bsd.maintenance.project_memory import MemoryFile, MissingMemory, missing_memory
from bsd.maintenance.relocate import remove_file, remove_tree
from bsd.planning.uninstall import plan_leaving
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import format_of
from bsd.store.entry_notes import forgotten_in, note_forgotten
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.store.root_records import RootRecords
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import Snapshot, SnapshotFile, write_snapshot
from bsd.transcripts.agents.program import ENDING, AgentProgram, PutBack
from bsd.transcripts.agents.programs import program_of, secure
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import InBlocks, TranscriptFile

_log = structlog.stdlib.get_logger(module="archive")

_BLOCK = 1 << 20
_REGISTRY_WAIT_SECONDS = 10.0
_JOURNAL = "journal.json"
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.bsd-restored")
_MOVE_AWAY = "move it away, then try again"
# The error numbers of file systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """The session that came back. Sizes are bytes."""

    session: str
    id: Annotated[str, Field(description="The id of its copy in the archive")]
    path: Annotated[str, Field(description="The path of its transcript")]
    sessions: Annotated[
        list[str], Field(description="All sessions that came back: it and its parts")
    ]
    files: int
    bytes: int
    resume: Annotated[
        str | None, Field(description="The command that continues it in its program")
    ] = None
    unavailable: Annotated[
        dict[str, str],
        Field(description="Values that stay placeholders: the session and key, and the reason"),
        OMIT_EMPTY,
    ] = field(default_factory=dict)
    left_out: Annotated[
        list[str], Field(description="Files that the copy does not hold, and why"), OMIT_EMPTY
    ] = field(default_factory=list)
    keys: Annotated[
        list[str],
        Field(description="Its keys that were put back into its program's list"),
        OMIT_EMPTY,
    ] = field(default_factory=list)
    memory: Annotated[
        list[str],
        Field(description="Missing files of the project's memory that came back"),
        OMIT_EMPTY,
    ] = field(default_factory=list)
    memory_stays: Annotated[
        list[str],
        Field(description="Files of the memory that differ from their copies and stay as they are"),
        OMIT_EMPTY,
    ] = field(default_factory=list)
    keys_taken: Annotated[
        list[str],
        Field(description="Keys that name another session now and stay as they are"),
        OMIT_EMPTY,
    ] = field(default_factory=list)
    advice: Annotated[
        str | None,
        Field(description="Problems to expect, such as that its program deletes old sessions"),
        OMIT_EMPTY,
    ] = None
    name: Internal[SessionName | None] = None


@dataclass(frozen=True, slots=True)
class _ReturningFile:
    """A file to bring back."""

    whose: str  # the id of the snapshot, or the agent to whose memory the file belongs
    path: str  # in the copy
    target: Path
    top: Path  # a directory of the agent's program that the target must not leave
    mode: int
    mtime_ns: int
    content: Callable[[], Iterator[bytes]]
    is_head: bool = False  # the transcript of the requested session

    @property
    def temporary(self) -> Path:
        """A hidden file beside the target that programs do not take for a session."""
        about = f"{self.whose} {self.path}"
        digest = hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return self.target.with_name(f".{digest}.bsd-restored")

    def looks_placed(self) -> bool:
        """Return True if the target has the time and mode that an earlier call gave it."""
        try:
            found = self.target.lstat()
        except OSError:
            return False
        is_plain = self.target.is_file() and not self.target.is_symlink()
        same_time = found.st_mtime_ns == self.mtime_ns
        return is_plain and same_time and found.st_mode & 0o777 == self.mode


def bring_back(
    layout: Layout,
    head: Snapshot,
    *,
    renamed: SessionName | None = None,
    actor: str = "cli",
    budget: RetryBudget | None = None,
    after_step: Step = no_step,
) -> BroughtBack:
    """Put a deleted session back in its place, together with the sessions that are parts of it.

    Deleted sessions in whose files it begins come back too, since its program reads them.

    Args:
        layout: the root.
        head: the snapshot of the session.
        renamed: the name under which the session comes back; None: its former name.
        actor: the actor named in log and audit.
        budget: how long to wait for another bsd process that works on the session.
        after_step: for tests.

    Raises:
        Conflict: another file is in the way.
        Invalid: the agent's program would not find a session of this name.
        Busy, Forbidden, LeftAlone, Unavailable.
    """
    budget = budget or RetryBudget()
    before = beginnings(layout, head)
    for copy in reversed(before):
        _BringBack(layout, copy, copy.name, actor, budget, after_step).run()
    answer = _BringBack(layout, head, renamed or head.name, actor, budget, after_step).run()
    advice = _lacking(layout, before[-1] if before else head)
    return replace(
        answer,
        sessions=[*answer.sessions, *(str(copy.name) for copy in before)],
        advice="; ".join(filter(None, (answer.advice, advice))) or None,
    )


def _lacking(layout: Layout, copy: Snapshot) -> str | None:
    """Return the warning that the file in which a session begins is missing, or None."""
    if copy.begins_in is None or not is_deleted(layout, SessionName.parse(copy.begins_in)):
        return None
    return f"its program cannot continue it: it begins in {copy.begins_in}, which is gone"


@dataclass(slots=True)
class _BringBack:
    layout: Layout
    head: Snapshot
    name: SessionName  # the new name
    actor: str
    budget: RetryBudget
    after_step: Step
    program: AgentProgram = field(init=False)
    staging: Path = field(init=False)
    unavailable: dict[str, str] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = self._program_that_finds_it()
        returning = inside(_returning(self.layout), self.layout.root)
        self.staging = returning / f"{self.layout.store_name(self.head.name)}@{self.head.origin}"

    def run(self) -> BroughtBack:
        layout, head = self.layout, self.head
        snapshots = [head, *deleted_parts(layout, head.name)]
        names = {each.name for each in snapshots} | {self._new_name(each) for each in snapshots}
        with ExitStack() as locks:
            for name in sorted(names):
                lock = own_lock(layout, name, self.budget.wait, sleep=self.budget.sleep)
                locks.enter_context(lock)
            if source := layout.source_of(self.name.agent):
                secure(layout, source, edits=True)
            try:
                _clear(layout, self.staging)
                missing = self._missing_memory()
                memory = list(map(self._memory_file, missing.files))
                files = [file for each in reversed(snapshots) for file in self._files(each)]
                self._refuse_taken(files)
                self._write_beside([*memory, *files])
                for each in snapshots:
                    self._keep_forgotten(each)
                self.after_step("staged")
                for file in (*memory, *files):
                    _place(file)
                    self.after_step("placed")
                listed = self._list_again()
                self.after_step("listed")
                for each in snapshots:
                    write_snapshot(replace(each, gone_at=None))
            except OSError as error:
                raise os_problem(error, f"bringing back {head.name}") from error
            finally:
                _clear(layout, self.staging)
        return self._answer(snapshots, files, missing, listed)

    # --- names and places ---

    def _program_that_finds_it(self) -> AgentProgram:
        layout, name, old = self.layout, self.name, self.head.name
        program = program_of(layout, name.agent)
        if database := program.database():
            raise LeftAlone(
                f"the sessions of {name.agent} are in {database.path} now",
                hint=f"bsd archive bring-back {old} --to FILE",
            )
        if not program.is_session_file(f"{name.session}{ENDING}"):
            raise Invalid(
                f"{name.agent} would not find a session called {name.session}",
                hint="name it as its program does",
            )
        sources = [layout.source_of(agent) for agent in (old.agent, name.agent)]
        if len({source.kind if source else None for source in sources}) > 1:
            raise Invalid(
                f"{name.agent} belongs to another program than {old.agent}",
                hint="name an agent of the same program",
            )
        return program

    def _files(self, snapshot: Snapshot) -> Iterator[_ReturningFile]:
        """Yield the files of one session, the transcript last."""
        top = self._directory(snapshot)
        for file in reversed(snapshot.files):
            self._refuse_misplaced(snapshot, file)
            target = self._target(snapshot, file, top)
            within = top if target.is_relative_to(top) else target.parent
            yield _ReturningFile(
                snapshot.id,
                file.path,
                target,
                within,
                file.mode & 0o777,
                file.was.mtime_ns,
                partial(self._content, snapshot, file),
                is_head=snapshot is self.head and file is snapshot.transcript,
            )

    def _refuse_misplaced(self, snapshot: Snapshot, file: SnapshotFile) -> None:
        """Raise Unavailable if a file cannot belong to the session of its snapshot."""
        if not snapshot.owns_directory or file is snapshot.transcript:
            return
        program = program_of(self.layout, snapshot.name.agent)
        if not program.owns_directory or program.is_session_file(file.path):
            raise Unavailable(
                f"the copy of {snapshot.name} names {file.path!r:.200}, which is no file of it",
                hint="`bsd archive forget` removes this copy",
            )

    def _missing_memory(self) -> MissingMemory:
        """Return the missing files of the project's memory; none if the agent changes."""
        agent = self.name.agent
        is_same = agent == self.head.name.agent
        return missing_memory(self.layout, agent) if is_same else MissingMemory()

    def _memory_file(self, file: MemoryFile) -> _ReturningFile:
        top = self.layout.sessions_dir(self.name.agent)
        path, data = f"memory/{file.below}", partial(file.read, self.layout)
        return _ReturningFile(
            self.name.agent, path, file.target, top, 0o600, file.mtime_ns, lambda: iter([data()])
        )

    def _target(self, snapshot: Snapshot, file: SnapshotFile, top: Path) -> Path:
        if file is not snapshot.transcript:
            return top / (self._renamed(file.path) if snapshot is self.head else file.path)
        if snapshot is not self.head:
            return top / f"{snapshot.name.session}{ENDING}"
        places = self.layout.places_of(self.name)
        if snapshot.put_away and len(places) > 1:
            return places[1]
        return top / f"{self.name.session}{ENDING}"

    def _directory(self, snapshot: Snapshot) -> Path:
        """Return the session directory of the agent to which the session will belong."""
        layout, here = self.layout, self.layout.sessions_dir(self.name.agent)
        if snapshot is self.head:
            return here
        # A part lies below a directory named after the session.
        former = layout.sessions_dir(self.head.name.agent)
        return here / self._renamed(
            str(layout.sessions_dir(snapshot.name.agent).relative_to(former))
        )

    def _renamed(self, path: str) -> Path:
        first, *rest = Path(path).parts
        first = self.name.session if first == self.head.name.session else first
        return Path(first, *rest)

    def _new_name(self, snapshot: Snapshot) -> SessionName:
        if snapshot is self.head:
            return self.name
        layout, agent, old = self.layout, self.name.agent, snapshot.name
        source = layout.source_of(agent)
        top = source.directory(agent) if source else None
        if source is None or top is None:
            return old
        below = self._directory(snapshot).relative_to(layout.sessions_dir(agent))
        return SessionName(source.agent_at(top / below) or old.agent, old.session)

    def _refuse_taken(self, files: Sequence[_ReturningFile]) -> None:
        """Raise Conflict, before the first write, if another file is in the way."""
        for file in reversed(files):  # the message about the transcript says most
            inside(file.target.parent, file.top)
            for directory in file.target.parents:
                if directory.is_dir():
                    break
                if os.path.lexists(directory):
                    problem = f"{directory} exists and is not a directory"
                    raise Conflict(problem, hint=_MOVE_AWAY)
            if not os.path.lexists(file.target) or file.looks_placed():
                continue
            if file.is_head:
                raise Conflict(
                    f"there is a session {self.name} again: {file.target}",
                    hint=f"`bsd archive bring-back {self.head.id} --as AGENT/SESSION`",
                )
            problem = f"{file.target} exists and differs from the file to bring back"
            raise Conflict(problem, hint=_MOVE_AWAY)

    # --- content ---

    def _write_beside(self, files: Sequence[_ReturningFile]) -> None:
        make_directories(self.staging)
        # As latin-1, because a path need not be valid UTF-8.
        paths = [os.fsencode(file.temporary).decode("latin-1") for file in files]
        write_journal(self.staging / _JOURNAL, {"temporary": paths})
        for file in files:
            make_directories(file.target.parent)
            with opened(file.target.parent) as directory:
                with suppress(FileNotFoundError):
                    os.unlink(file.temporary.name, dir_fd=directory)
                descriptor = _create(file.temporary.name, directory)
                try:
                    for piece in file.content():
                        write_all(descriptor, piece)
                    os.fchmod(descriptor, file.mode)
                    os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
                    give_to_owner_of(directory, descriptor)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _content(self, snapshot: Snapshot, file: SnapshotFile) -> Iterator[bytes]:
        with closing(SnapshotReader(snapshot, file)) as source:
            if file is snapshot.transcript:
                yield from self._with_values(snapshot.name, source)
            else:
                yield from source.whole()

    def _with_values(self, name: SessionName, source: InBlocks) -> Iterator[bytes]:
        """Yield the transcript with all values inline, as restore-all leaves it.

        The size of a plan is limited. If a plan cannot cover the whole transcript, its result is
        written to a staging file, and the next plan starts from that file.
        """
        layout = self.layout
        fmt = format_of(source, program_of(layout, name.agent))
        store, history = SessionStore(layout, name), History(layout, name)
        records = RootRecords(layout, store, history.entry_notes)
        staged = [self.staging / "transcript", self.staging / "transcript-2"]
        with ExitStack() as opened_files:
            while fmt is not None:
                now = self.budget.clock()
                plan, answers = plan_leaving(source, fmt, now, store, records, history)
                for answer in answers:
                    for key, why in answer.unavailable.items():
                        self.unavailable[f"{name} {answer.entry_id} {key}"] = why
                if plan.complete or not plan.edits:
                    yield from _edited(source, plan.edits)
                    return
                remove_file(staged[0])
                with opened(self.staging) as directory:
                    descriptor = _create(staged[0].name, directory)
                try:
                    for piece in _edited(source, plan.edits):
                        write_all(descriptor, piece)
                finally:
                    os.close(descriptor)
                source = opened_files.enter_context(TranscriptFile(staged[0]))
                staged.reverse()
            yield from _edited(source, ())

    def _keep_forgotten(self, snapshot: Snapshot) -> None:
        """Copy the hashes of forgotten lines to the new name, so that the lines stay forgotten."""
        layout, name = self.layout, self._new_name(snapshot)
        if name != snapshot.name:
            hashes = forgotten_in(layout.history_dir(snapshot.name))
            note_forgotten(layout.history_dir(name), name, hashes)

    # --- the program's list, and the answer ---

    def _list_again(self) -> PutBack:
        """Put the session into its program's list if it was listed when it was copied."""
        head = self.head
        if head.listed is None or self.name != head.name:
            return PutBack()
        try:
            return self.program.list_again(head.listed, wait=_REGISTRY_WAIT_SECONDS)
        except Conflict as problem:  # Busy is a Conflict, too; the session itself is back
            _log.warning("The program's list was left as it is", problem=problem.message)
            self.advice.append(f"its program's list was left as it is: {problem.message}")
            return PutBack()

    def _answer(
        self,
        snapshots: Sequence[Snapshot],
        files: Sequence[_ReturningFile],
        missing: MissingMemory,
        listed: PutBack,
    ) -> BroughtBack:
        name, head, path = self.name, self.head, files[-1].target
        size = 0
        for file in files:
            with suppress(OSError):
                size += file.target.lstat().st_size
        _log.info(f"archive_bring_back: {name}, files {len(files)}", actor=self.actor)
        AuditLog(self.layout.audit_file, self.budget.clock).record(
            actor=self.actor,
            action="archive_bring_back",
            agent=name.agent,
            session_id=name.session,
            files=len(files),
            bytes=size,
        )
        if self.program.deletes is not None:
            since = iso_utc(head.transcript.was.mtime_ns / 1e9)[:10]
            self.advice.append(
                f"{self.program.deletes}, and this session is of {since}: "
                f"`touch {path}` renews its time"
            )
        return BroughtBack(
            session=str(name),
            id=head.id,
            path=str(path),
            sessions=[str(self._new_name(each)) for each in snapshots],
            files=len(files),
            bytes=size,
            unavailable=self.unavailable,
            left_out=[*(text for each in snapshots for text in each.left_out), *missing.left_out],
            memory=[str(file.target) for file in missing.files],
            memory_stays=list(map(str, missing.stays)),
            keys=list(listed.keys),
            keys_taken=list(listed.taken),
            advice="; ".join(self.advice) or None,
            name=name,
        )


def _create(name: str, directory: int) -> int:
    return open_plain(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, directory=directory)


def _edited(source: InBlocks, edits: Iterable[Edit]) -> Iterator[bytes]:
    at = 0
    for edit in (*edits, Edit(source.size, 0, b"")):
        for start in range(at, edit.offset, _BLOCK):
            yield source.read(start, min(_BLOCK, edit.offset - start))
        yield edit.new
        at = edit.offset + edit.length


def _place(file: _ReturningFile) -> None:
    """Give a file its name durably; raises Conflict if another file has the name by now."""
    with opened(file.target.parent) as directory:
        try:
            _link(file.temporary.name, file.target.name, directory)
        except FileExistsError:
            same = file.looks_placed() and filecmp.cmp(file.temporary, file.target, shallow=False)
            if not same:
                problem = f"{file.target} has just appeared and differs from the file to bring back"
                raise Conflict(problem, hint=_MOVE_AWAY) from None
        os.fsync(directory)
        with suppress(FileNotFoundError):
            os.unlink(file.temporary.name, dir_fd=directory)


def _link(source: str, target: str, directory: int) -> None:
    """Link a file to its target, or rename it where hard links fail.

    Raises FileExistsError if the target exists.
    """
    try:
        os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if is_there(directory, target):
            raise FileExistsError(errno.EEXIST, "it is taken", target) from error
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)


# --- temporary files of killed calls ---


def _returning(layout: Layout) -> Path:
    return layout.own / "returning"


def sweep_returning(layout: Layout) -> None:
    """Remove the temporary files of all calls that were killed."""
    for staging in _stagings(layout):
        store = staging.name.rpartition("@")[0]
        name = layout.session_of_store(store) or SessionName("store", "any")
        with suppress(Busy, OSError), OwnLock(layout.lock_file_of(store), 0.0, name=name):
            _clear(layout, staging)


def clear_returning(layout: Layout, name: SessionName) -> None:
    """Remove the temporary files of one session. The caller holds the session's own lock."""
    for staging in _stagings(layout):
        if staging.name.rpartition("@")[0] == layout.store_name(name):
            _clear(layout, staging)


def _stagings(layout: Layout) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError, BsdError):
        directory = inside(_returning(layout), layout.root)
        return [directory / name for name in sorted(os.listdir(directory))]
    return []


def _clear(layout: Layout, staging: Path) -> None:
    """Remove the temporary files that the journal of one call names, and its staging directory."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        for text in read_journal(layout, staging / _JOURNAL)["temporary"]:
            path = Path(os.fsdecode(text.encode("latin-1")))
            if _TEMPORARY.fullmatch(path.name) and layout.holds(path):
                with suppress(OSError):
                    remove_file(path)
    with suppress(OSError):
        remove_tree(staging)
