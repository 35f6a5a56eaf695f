"""The archive: copy sessions into it; list, show, search and bring back deleted sessions.

`forget` deletes the stored data of a session, or of one entry, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.list_entries import FIRST_PAGE, EntryRow, entry_row, rows_with_texts
from bsd.actions.restore import RestoredCopy
from bsd.actions.search import FoundEntry, found_entries
from bsd.actions.vanished import (
    FoundPrompt,
    PromptsOnlySession,
    PromptsShown,
    no_copy,
    prompts_only_session,
    search_prompts,
    show_prompts,
)
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.config import OFF
from bsd.core.errors import (
    BsdError,
    Conflict,
    Invalid,
    LeftAlone,
    NotFound,
    os_problem,
)
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.bring_back import bring_back as bring_back_snapshot
from bsd.maintenance.catalog import resume_command, with_stats
from bsd.maintenance.deleted_sessions import deleted_sessions, find_deleted
from bsd.maintenance.forget import Forget, Forgotten
from bsd.maintenance.leftovers import kept_beside
from bsd.maintenance.search import search_gone
from bsd.maintenance.snapshots import (
    SnapshotOutcome,
    SnapshotScope,
    SnapshotStatus,
    take_snapshots,
)
from bsd.maintenance.vanished import vanished_sessions
from bsd.planning.restore import restored_copy
from bsd.planning.view import outline_of
from bsd.sessions.session import format_of
from bsd.store.originals import SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import CopiesUse, Snapshot, copies_use
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.programs import program_of

MOST_GONE = 1000  # sessions of one list

_UNCHANGED = "`bsd archive bring-back {}` brings its file back unchanged"  # a hint


@dataclass(frozen=True, kw_only=True)
class GoneSession:
    """A session that its program has deleted. Sizes are bytes, times ISO 8601."""

    id: Annotated[
        str, Field(description="Its name with a suffix that is unique among copies of that name")
    ]
    session: str
    agent: str
    title: str | None
    parent: Annotated[str | None, Field(description="The session that it is a part of")]
    updated: Annotated[str, Field(description="When its program last wrote to it")]
    kept_at: str
    gone_at: Annotated[
        str | None, Field(description="When bsd noticed the deletion; null: just now")
    ]
    expires_at: str | None
    size: Annotated[int, Field(description="Size of its files, without extracted values")]
    kept_bytes: Annotated[int, Field(description="Size of the copy")]
    files: int
    put_aside: Annotated[
        str | None, Field(description="The file to which its program has renamed the session")
    ]
    resume: Annotated[
        str | None,
        Field(description="The command that continues it in its program after bring-back"),
    ]


@dataclass(frozen=True, kw_only=True)
class GoneList:
    """Sessions that can be brought back, the last used first, and the size of all copies."""

    keep: Annotated[str, Field(description="The setting archive_sessions")]
    sessions: tuple[GoneSession, ...]
    more: Annotated[int, Field(description="Number of further sessions that are not listed")]
    copies: Annotated[
        CopiesUse, Field(description="Disk use of all copies, also of sessions that still exist")
    ]
    prompts_only: Annotated[
        tuple[PromptsOnlySession, ...],
        Field(description="Sessions without a copy that their program's history still names"),
        OMIT_EMPTY,
    ] = ()
    prompts_only_more: Annotated[
        int | None,
        Field(description="Number of further `prompts_only` sessions that are not listed"),
        OMIT_EMPTY,
    ] = None
    problems: Annotated[
        tuple[str, ...], Field(description="Histories that could not be read"), OMIT_EMPTY
    ] = ()


@dataclass(frozen=True, kw_only=True)
class GoneEntries:
    """A session that its program has deleted, with a page of its entries."""

    session: GoneSession
    entries: tuple[EntryRow, ...]
    next: Annotated[int | None, Field(description="The `from` of the next page")]


@dataclass(frozen=True, slots=True)
class FoundGone:
    """Entries of deleted sessions that contain all the words."""

    query: str
    results: tuple[FoundEntry, ...]
    prompts: Annotated[
        tuple[FoundPrompt, ...],
        Field(description="Prompts of sessions of which only the prompts are left, newest first"),
        OMIT_EMPTY,
    ] = ()


@dataclass(frozen=True, slots=True)
class CopiedSession:
    """The outcome for one session. With `dry_run`, the expected outcome.

    `size` is the size of its transcript in bytes.
    """

    session: str
    status: SnapshotStatus
    size: int
    reason: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None
    error: Internal[type[BsdError] | None] = None


@dataclass(frozen=True, slots=True)
class CopiesKept:
    """The outcome for each session, in the order in which their programs will delete them."""

    dry_run: bool
    sessions: tuple[CopiedSession, ...]
    copied: int
    bytes_read: int
    bytes_packed: Annotated[int, Field(description="Bytes read that no copy contained before")]
    memory: Annotated[
        tuple[str, ...], Field(description="Files of projects' memory that were copied"), OMIT_EMPTY
    ] = ()
    left_out: Annotated[
        tuple[str, ...], Field(description="Memory that is not copied, with reasons"), OMIT_EMPTY
    ] = ()


def gone_session(layout: Layout, copy: Snapshot, keep: str) -> GoneSession:
    """Return the description of a copy; `keep` is the setting `archive_sessions`."""
    lifetime = None if keep == OFF else lifetime_seconds(keep)
    expires = None
    if lifetime is not None and copy.gone_at is not None:
        expires = iso_utc(copy.gone_at + lifetime)
    aside = next(iter(kept_beside(layout, copy.name)), None)
    return GoneSession(
        id=copy.id,
        session=str(copy.name),
        agent=copy.name.agent,
        title=copy.title,
        parent=copy.parent,
        updated=iso_utc(copy.transcript.was.mtime_ns / 1e9),
        kept_at=iso_utc(copy.kept_at),
        gone_at=None if copy.gone_at is None else iso_utc(copy.gone_at),
        expires_at=expires,
        size=copy.size,
        kept_bytes=copy.packed,
        files=len(copy.files),
        put_aside=None if aside is None else str(aside),
        resume=_resume_command(layout, copy),
    )


def _resume_command(layout: Layout, copy: Snapshot) -> str | None:
    with suppress(BsdError):  # bsd.toml does not name its agent's program
        program = program_of(layout, copy.name.agent)
        return program.resume_command(copy.name.session, copy.working_directory)
    return None


def copy_sessions(
    context: ActionContext, sessions: Sequence[str] = (), *, dry_run: bool = False
) -> CopiesKept:
    """Copy sessions into the archive, together with the sessions that are parts of them.

    Args:
        sessions: names as AGENT/SESSION; empty: all sessions of all agents.
        dry_run: return which sessions would be copied, and copy none.

    Raises:
        Conflict: the setting `archive_sessions` is off.
        Invalid: a name is not valid.
    """
    keep = context.config.current.archive_sessions
    if keep.strip().casefold() == OFF:
        raise Conflict(
            "no copies are kept: the setting archive_sessions is off",
            hint="`bsd config set archive_sessions 180d`",
        )
    layout = context.layout
    names = list(dict.fromkeys(map(SessionName.parse, sessions)))
    copied: list[CopiedSession] = []

    wanted, read = set(names), 0
    total = sum(
        status.st_size for name, status in with_stats(layout) if not wanted or name in wanted
    )

    def stopping() -> bool:
        context.progress(min(read, total), total)
        return False

    def told(outcome: SnapshotOutcome) -> None:
        nonlocal read
        read += outcome.size
        copied.append(_copied(outcome))

    scope = SnapshotScope(at_once=True, names=frozenset(names), dry_run=dry_run)
    budget = context.budget
    done = take_snapshots(layout, keep, budget, scope=scope, stopping=stopping, report=told)
    known = {one.session for one in copied}
    copied += [_not_found(layout, name) for name in names if str(name) not in known]
    count = sum(one.status is SnapshotStatus.COPIED for one in copied)
    memory, left_out = tuple(map(str, done.memory)), tuple(done.left_out)
    return CopiesKept(
        dry_run, tuple(copied), count, done.read, done.packed, memory=memory, left_out=left_out
    )


def _copied(outcome: SnapshotOutcome) -> CopiedSession:
    name, problem = str(outcome.session), outcome.problem
    if problem is None:
        return CopiedSession(name, outcome.status, outcome.size)
    why, hint, kind = problem.message, problem.hint, type(problem)
    return CopiedSession(name, outcome.status, outcome.size, why, hint, kind)


def _not_found(layout: Layout, name: SessionName) -> CopiedSession:
    """Return the outcome for a named session that cannot be copied, with the reason."""
    try:
        layout.refuse_excluded(name)
        stat_transcript(layout, name)
        problem: BsdError = LeftAlone(
            f"bsd cannot copy {name}: another root serves its agent, or its sessions are in a"
            " database",
            hint="`bsd sources` lists the sources and the roots that serve them",
        )
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"looking at {name}")
    failed = SnapshotStatus.FAILED
    return CopiedSession(str(name), failed, 0, problem.message, problem.hint, type(problem))


def list_archive(context: ActionContext, *, agent: str | None = None, limit: int = 100) -> GoneList:
    """List the sessions that their program has deleted, the last used first.

    Deleted sessions without a copy come from the history of their program, if it keeps one.
    """
    layout, keep = context.layout, context.config.current.archive_sessions
    found = deleted_sessions(layout, agent)
    shown = tuple(gone_session(layout, copy, keep) for copy in found[:limit])
    more = len(found) - len(shown)
    vanished = vanished_sessions(layout, context.now(), agent)
    return GoneList(
        keep=keep,
        sessions=shown,
        more=more,
        copies=copies_use(layout),
        prompts_only=tuple(map(prompts_only_session, vanished.sessions[:limit])),
        prompts_only_more=max(len(vanished.sessions) - limit, 0) or None,
        problems=tuple(vanished.problems),
    )


def show_archived(
    context: ActionContext,
    session: str,
    *,
    start: int = 0,
    limit: int = FIRST_PAGE,
    texts: int = 0,
) -> GoneEntries | PromptsShown:
    """Return a session that its program has deleted, with a page of its entries.

    If the archive has no copy, the answer has the prompts from the history of its program.

    Args:
        session: AGENT/SESSION, or its id in the archive.
        start: the first line to list; for prompts, the number of the first prompt.
        texts: the maximum length of each text of an entry, in characters; 0: no texts.

    Raises:
        NotFound: the archive has no such session.
        Conflict: several copies have this name.
        LeftAlone: bsd does not know the format of its lines.
    """
    layout = context.layout
    try:
        copy = find_deleted(layout, session)
    except NotFound:
        if (prompts := show_prompts(context, session, start=start, limit=limit)) is not None:
            return prompts
        raise
    shown = gone_session(layout, copy, context.config.current.archive_sessions)
    source = SnapshotReader(copy)
    with source:
        found = program_of(layout, copy.name.agent).detect(line.raw for line in source.lines())
        fmt = found.reads if isinstance(found, NotOurs) else found
        if fmt is None:
            why = (
                found.reason
                if isinstance(found, NotOurs)
                else "bsd does not know the format of its lines"
            )
            raise LeftAlone(
                f"{copy.name} cannot be shown: {why}",
                hint=_UNCHANGED.format(copy.id),
            )
        outline = outline_of(source, fmt)
        numbers = outline.entries(range(start, outline.lines))
        rows = list(outline.located_views(source, fmt, islice(numbers, limit + 1)))
    store = SessionStore(layout, copy.name)
    if texts:
        entries = tuple(rows_with_texts(store, fmt, rows[:limit], texts))
    else:
        entries = tuple(entry_row(store, fmt, row) for _, row in rows[:limit])
    after = rows[limit][1].index if len(rows) > limit else None
    return GoneEntries(session=shown, entries=entries, next=after)


def search_archive(
    context: ActionContext,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    read: bool = False,
) -> FoundGone:
    """Find entries of sessions that their program has deleted.

    Args:
        words: words that an entry must all contain, in the syntax of `search`.
        read: first read the lines that the index lacks.

    Raises:
        Invalid: the words are not valid.
    """
    hits = search_gone(
        context.layout, words, agent=agent, limit=limit, read=read, progress=context.progress
    )
    prompts = search_prompts(context, words, agent=agent, limit=limit)
    return FoundGone(words, found_entries(context.layout, hits), prompts)


def bring_back(context: ActionContext, session: str, *, renamed: str | None = None) -> BroughtBack:
    """Bring a deleted session back to its place, with all files that belong to it.

    Args:
        session: AGENT/SESSION, or its id in the archive.
        renamed: bring it back under this name, AGENT/SESSION.

    Raises:
        NotFound: the archive has no such session, or only its prompts are left.
        Conflict: several copies have this name, or a session of this name exists now.
    """
    layout, copy = context.layout, _find_copy(context, session)
    name = SessionName.parse(renamed) if renamed else None
    budget = context.budget
    answer = bring_back_snapshot(layout, copy, renamed=name, actor=context.actor, budget=budget)
    return replace(answer, resume=resume_command(layout, SessionName.parse(answer.session)))


def _find_copy(context: ActionContext, session: str) -> Snapshot:
    try:
        return find_deleted(context.layout, session)
    except NotFound as missing:
        raise no_copy(context, session) or missing from None


def copy_back(
    context: ActionContext, session: str, write: Callable[[bytes], object]
) -> RestoredCopy:
    """Write a deleted session with every value inline. Its own place stays empty.

    Also for sessions that their program keeps in a database, to which bsd does not write.

    Args:
        session: AGENT/SESSION, or its id in the archive.
        write: called with each line.

    Raises:
        NotFound: the archive has no such session, or only its prompts are left.
        Conflict: several copies have this name, or a session of this name exists now.
        LeftAlone: bsd does not know the format of its lines.
    """
    layout = context.layout
    copy = _find_copy(context, session)
    with SnapshotReader(copy) as source:
        fmt = format_of(source, program_of(layout, copy.name.agent))
        if fmt is None:
            why = f"bsd does not know the format of the lines of {copy.name}"
            raise LeftAlone(why, hint=_UNCHANGED.format(copy.id))
        values, missing = restored_copy(source, fmt, SessionStore(layout, copy.name), write)
    return RestoredCopy(str(copy.name), values, missing)


def forget(context: ActionContext, session: str, *, entry: str | None = None) -> Forgotten:
    """Delete for good all data that bsd stores of a session, or of one of its entries.

    The session may be in its place or deleted by its program.

    Args:
        session: AGENT/SESSION, or the id of one copy in the archive.
        entry: forget only the data of this entry.

    Raises:
        NotFound: bsd stores no data of it.
        Invalid: `entry` was given with the id of a copy; it needs the name of the session.
        Busy: the session is in use.
    """
    keep = context.config.current.trash_retention
    forgetting = Forget(
        context.layout,
        trash_keep=keep,
        everywhere=True,
        actor=context.actor,
        budget=context.budget,
    )
    name, copy = kept_session(context.layout, session)
    if entry is None:
        done = forgetting.session(name, copy)
    elif copy is not None:
        raise Invalid(
            "an entry is forgotten in all copies of its session, not in one copy",
            hint=f"name the session: {name}",
        )
    else:
        done = forgetting.entry(name, entry)
    context.cleaned()
    return done


def kept_session(layout: Layout, text: str) -> tuple[SessionName, Snapshot | None]:
    """Return the session of a name or of a copy's id; with the copy if `text` is its id.

    Raises Invalid.
    """
    try:
        copy = find_deleted(layout, text)
    except (NotFound, Conflict, Invalid):  # not deleted, or several copies: all data of the name
        return SessionName.parse(text), None
    return copy.name, copy if copy.id == text else None
