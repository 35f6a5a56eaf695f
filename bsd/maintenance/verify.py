"""Checks that all extracted content exists and that no operation is unfinished (SPEC §7).

The checks cover all sessions (`maintenance/session_check.py`), the archive, the trash, and the
leftovers of commits, deletes and calls of `forget`.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import structlog

from bsd.core.errors import BsdError, os_problem
from bsd.core.files import MEND_PLANTED
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.maintenance import catalog
from bsd.maintenance.crash_journal import forget_journals, redaction_journals
from bsd.maintenance.from_bucket import lost_files
from bsd.maintenance.leftovers import adds_nothing, stores_without_transcript
from bsd.maintenance.session_check import Finding, SessionCheck, Verification
from bsd.maintenance.snapshots import retake_snapshot
from bsd.maintenance.targets import lock_of
from bsd.maintenance.trash import Trash
from bsd.maintenance.trash_moves import Aim, TrashMoves, pending_moves
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.foreign import why_foreign
from bsd.sessions.idle import RetryBudget
from bsd.sessions.notes import expired_before
from bsd.sessions.session import Session
from bsd.store.archive import SessionArchive
from bsd.store.pack import PackDamaged, why_damaged
from bsd.store.snapshot_parts import damaged_snapshots
from bsd.store.uploads import stored_in_bucket
from bsd.transcripts.agents.programs import elsewhere, program_of

_log: BoundLogger = structlog.get_logger(module="verify")

# A displaced file is kept for a minute, and the next call after that removes it.
_STUCK_SECONDS = 24 * 3600.0
# A delete takes only moments.
_MOVING_SECONDS = 60.0


def verify(
    layout: Layout,
    *,
    repair: bool = False,
    wait: float = 30.0,
    clock: Callable[[], float] = time.time,
    remark: Callable[[SessionName], Collection[str]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check every session, every stored file and every pack.

    Args:
        layout: the root.
        repair: repair the problems that can be repaired. Missing and damaged content is only
            listed.
        wait: seconds to wait for each session on which another bsd process works.
        clock: returns epoch seconds.
        remark: puts back the markers of a session that a program has dropped, and returns the ids
            of the repaired entries.
        progress: called with the bytes of sessions checked so far and the total; may raise to end
            the run.
    """
    _log.trace("Sessions are verified", root=str(layout.root))
    result = Verification()
    due, now = expired_before(layout), clock()
    sources = ((source, elsewhere(layout, source, look_inside=True)) for source in layout.sources)
    others = {source: why for source, why in sources if why is not None}
    result.elsewhere += others.values()
    in_databases = {agent.name for agent in catalog.agents(layout) if agent.sqlite}
    result.findings += lost_files(layout, wait if repair else None)
    for name in _sessions(layout, progress):
        if name.agent in in_databases:
            continue
        if layout.source_of(name.agent) in others:
            continue  # the originals lie in another root
        try:
            with _locked(layout, name, wait, repair=repair):
                if foreign := why_foreign(Session(layout, name)):
                    message, hint = foreign.message, foreign.hint
                    finding = Finding("elsewhere", str(name), message, hint=hint, harmless=True)
                    result.findings.append(finding)
                    result.sessions += 1
                    continue
                session = SessionCheck(layout, name, result, repair=repair, expired_before=due)
                session.check()
            if session.unmarked:
                result.findings += _remarked(name, session.unmarked, remark if repair else None)
        except (BsdError, OSError) as error:
            result.findings.append(_unreadable(name, error, "reading"))
        result.sessions += 1
    for where, problem in catalog.unreadable(layout):
        result.findings.append(_unreadable(where, problem))
    result.findings += (each for agent in in_databases for each in _imported(layout, agent))
    result.findings += _packs(layout, result, wait, repair=repair)
    result.findings += _late_bytes(layout, repair=repair)
    result.findings += _in_flight(layout, now)
    result.findings += _half_moved(layout, now)
    for path, journal in forget_journals(layout):
        if isinstance(journal, BsdError):
            result.findings.append(_unreadable(path, journal, kind="half_forgotten"))
    result.findings += _half_redacted(layout)
    result.findings += _broken_trash(layout)
    result.findings += _without_transcript(layout)
    result.clean = not any(finding.is_open for finding in result.findings)
    return result


def _imported(layout: Layout, agent: str) -> Iterator[Finding]:
    """Yield findings about the files that an agent's program has imported into its database."""
    complete = size = 0
    with suppress(BsdError):  # the list of agents reports the problem
        database = program_of(layout, agent).database()
        for file in database.imported() if database is not None else ():
            where, hint = str(file.path), "keep this file: it is the only one with these lines"
            if file.problem is not None:
                why = f"it cannot be compared with the database: {file.problem}"
                yield Finding("not_imported", where, why, hint=hint, harmless=True)
            elif file.missing:
                why = f"{file.missing} of its {file.lines} lines are not in the database"
                yield Finding("not_imported", where, why, hint=hint, harmless=True)
            else:
                complete += 1
                with suppress(OSError):
                    size += file.path.lstat().st_size
    if complete:
        message = f"all lines of {complete} imported files ({size:,} bytes) are in the database"
        hint = "the program's own cleanup may delete them"
        yield Finding("imported", agent, message, hint=hint, harmless=True)


def _half_redacted(layout: Layout) -> Iterator[Finding]:
    """Yield findings for redactions that have not ended."""
    for path, journal in redaction_journals(layout):
        if isinstance(journal, BsdError):
            yield _unreadable(path, journal, kind="half_redacted")
            continue
        where = f"secret {journal.hash} ({journal.rule})"
        message = f"its redaction, begun at {iso_utc(journal.at)}, has not ended: copies are left"
        hint = f"`bsd secrets redact {journal.hash}` continues it, unless it is still running"
        yield Finding("half_redacted", where, message, hint=hint)


def _sessions(layout: Layout, progress: Callable[[int, int], None] | None) -> Iterator[SessionName]:
    """Yield all sessions; before each, call `progress` with the bytes done and the total."""
    done = total = 0
    if progress is not None:
        total = sum(status.st_size for _, status in catalog.with_stats(layout))
    for name, status in catalog.with_stats(layout):
        if progress is not None:
            progress(min(done, total), total)
        done += status.st_size
        yield name


def _unreadable(
    where: object, error: BsdError | OSError, doing: str = "", *, kind: str = "unreadable"
) -> Finding:
    problem = os_problem(error, doing or f"reading {where}")
    return Finding(kind, str(where), problem.message, hint=problem.hint)


def _remarked(
    name: SessionName,
    entries: list[str],
    remark: Callable[[SessionName], Collection[str]] | None,
) -> Iterator[Finding]:
    """Put lost markers back, or report them."""
    repaired: Collection[str] = ()
    hint = "bsd verify --repair"
    if remark is not None:
        try:
            repaired = remark(name)
            hint = "`bsd restore` finds the content without a marker"
        except BsdError as error:
            hint = f"again later: {error.message}"
    for entry in entries:
        done = entry in repaired
        yield Finding(
            "unmarked_placeholder",
            f"{name} {entry}",
            "placeholders have lost their `_extracted` member; their content is stored",
            repaired=done,
            hint=None if done else hint,
        )


def _packs(layout: Layout, result: Verification, wait: float, *, repair: bool) -> Iterator[Finding]:
    """Yield findings for damaged packs and snapshots; reads the whole archive."""
    try:
        directories = sorted(layout.archive.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        yield _unreadable(layout.archive, error)
        return
    for directory in filter(Path.is_dir, directories):
        try:
            yield from _packs_in(layout, directory, wait if repair else None)
            result.packed += sum(one.lines for _, one in SessionArchive(directory).summaries())
        except OSError as error:
            yield _unreadable(directory, error)


def _packs_in(layout: Layout, directory: Path, wait: float | None) -> Iterator[Finding]:
    """Yield the findings of one session's archive.

    `wait`: seconds to wait for the session's lock; None: do not repair.
    """
    for copy, damage in list(damaged_snapshots(directory)):
        name = layout.session_of_store(directory.name)
        if wait is not None and name is not None and _is_made_anew(layout, name, copy, wait):
            message = f"{damage.message}; its session exists and was copied again"
            yield Finding("damaged_copy", str(copy), message, repaired=True)
            continue
        yield Finding("damaged_copy", str(copy), damage.message, hint=damage.hint)
    archive = SessionArchive(directory)
    whose = layout.session_of_store(directory.name) or directory.name
    for pack in archive.set_aside():
        message = f"of the archive of {whose}: it was damaged; its readable lines are in "
        message += "another pack"
        hint = f"`rm {shlex.quote(str(pack))}` when no value of this session is missing"
        yield Finding("set_aside_pack", str(pack), message, hint=hint, harmless=True)
    for pack in archive.packs():
        try:
            problem = why_damaged(pack)
        except FileNotFoundError:
            continue  # merged meanwhile
        except OSError as error:
            yield _unreadable(pack, error, f"the archive of {whose}")
            continue
        if problem is None:
            continue
        message = f"of the archive of {whose}: {problem.why}"
        if problem.only_lines:
            if wait is not None and _are_elsewhere(layout, archive, pack, wait):
                message += "; other packs have these lines, and it was rewritten without them"
                yield Finding("damaged_pack", str(pack), message, repaired=True)
                continue
            yield Finding("damaged_pack", str(pack), message, hint=_lines_hint(layout, pack, wait))
            continue
        yield _mended_pack(layout, archive, pack, message, wait)


def _lines_hint(layout: Layout, pack: Path, wait: float | None) -> str:
    with suppress(BsdError):
        if wait is None and stored_in_bucket(layout.root, pack):
            return "`bsd verify --repair` gets it back from the bucket"
    return "restore the pack from a backup; its other lines can still be restored"


def _is_made_anew(layout: Layout, name: SessionName, copy: Path, wait: float) -> bool:
    """Replace a damaged snapshot by a copy of the existing session; return True if it is intact."""
    made = retake_snapshot(layout, name, RetryBudget(wait))
    return made and copy not in dict(damaged_snapshots(copy.parent))


def _are_elsewhere(layout: Layout, archive: SessionArchive, pack: Path, wait: float) -> bool:
    """Rewrite a pack without its damaged lines if other packs have these; return True if done."""
    try:
        with lock_of(layout, archive.directory, wait):
            return archive.mend_lines(pack)
    except (BsdError, OSError, PackDamaged) as error:
        _log.warning("A damaged pack is not rewritten", pack=str(pack), problem=str(error))
        return False


def _mended_pack(
    layout: Layout, archive: SessionArchive, pack: Path, message: str, wait: float | None
) -> Finding:
    """Rebuild a pack with a damaged index from its lines, unless `wait` is None."""
    hint: str | None = "bsd verify --repair"
    if wait is not None:
        try:
            with lock_of(layout, archive.directory, wait):
                lines, aside, is_whole = archive.mend(pack)
            message += f"; {lines} lines were found in it, and are in a new pack; "
            message += f"it is set aside as {aside.name}"
            if is_whole:
                return Finding("damaged_pack", str(pack), message, repaired=True)
            message += "; the rest of it cannot be read"
            hint = "restore the pack from a backup to get its other lines back"
        except (BsdError, OSError, PackDamaged) as error:
            message, hint = f"{message}; {error}", "restore the pack from a backup"
    return Finding("damaged_pack", str(pack), message, hint=hint)


def _late_bytes(layout: Layout, *, repair: bool) -> Iterator[Finding]:
    for orphan in list_orphans(layout):
        message = f"{orphan.size} late bytes of {orphan.session} could not be put back: "
        message += orphan.reason
        done, files = False, shlex.join(map(str, orphan.files))
        hint: str | None = f"add the missing lines to the session by hand, then `rm {files}`"
        if adds_nothing(layout, orphan):
            message += "; the session or its store already has this content"
            done, hint = repair, None if repair else "bsd verify --repair"
            if repair:
                forget_orphan(orphan)
        yield Finding("orphan_bytes", str(orphan.file), message, done, hint)


def _in_flight(layout: Layout, now: float) -> Iterator[Finding]:
    """Yield findings for commits that recovery should have finished long ago."""
    inflight = InFlight(layout)
    for path, why in inflight.planted():
        message = f"is ignored, it is not bsd's own: {why}"
        hint = MEND_PLANTED.format(path)
        yield Finding("in_flight", str(path), message, hint=hint)
    for path in inflight.records():
        try:
            record, touched = inflight.read(path), path.lstat().st_mtime
        except FileNotFoundError:
            continue  # just finished
        except (BsdError, OSError) as error:
            yield _unreadable(path, error, kind="in_flight")
            continue
        began = record.created_ns / 1e9 if record else touched
        if now - began <= _STUCK_SECONDS:
            continue
        if record is None:
            message = "is not readable"
        else:
            message = f"has been in flight for {record.session} since {iso_utc(began)}"
        hint = "run `bsd verify --repair` again when the session is idle"
        yield Finding("in_flight", str(path), message, hint=hint)


def _half_moved(layout: Layout, now: float) -> Iterator[Finding]:
    """Yield findings for deletes and restores that were interrupted and are not finished."""
    for path in pending_moves(layout):
        try:
            moves = TrashMoves.read(layout, path)
        except FileNotFoundError:
            continue  # just ended
        except (BsdError, OSError) as error:
            yield _unreadable(path, error, kind="half_moved")
            continue
        began = moves.journal.at
        if now - began > _MOVING_SECONDS:
            names = ", ".join(str(item.name) for item in moves.items)
            what = "restore from the trash" if moves.aim is Aim.BACK else "delete"
            message = f"a {what} of {names} has been under way since {iso_utc(began)}"
            hint = "`bsd trash list` finishes or undoes it once these sessions are idle"
            yield Finding("half_moved", str(path), message, hint=hint)


def _broken_trash(layout: Layout) -> Iterator[Finding]:
    """Yield findings for sessions in the trash that cannot be restored."""
    for item in Trash(layout, "never").items():
        if item.problem is not None:
            message = f"{item.name} cannot be brought back from the trash: {item.problem}"
            hint = f"`bsd trash delete {item.id}`, or move its files back by hand"
            yield Finding("broken_trash", item.id, message, hint=hint)


def _without_transcript(layout: Layout) -> Iterator[Finding]:
    """Yield findings for stores of sessions whose program has deleted or renamed the transcript."""
    try:
        for store in stores_without_transcript(layout):
            where = str(store.session or store.directory)
            yield Finding("no_transcript", where, store.message, hint=store.hint, harmless=True)
    except (BsdError, OSError) as error:
        yield _unreadable(layout.extracted, error)


def _locked(
    layout: Layout, name: SessionName, wait: float, *, repair: bool
) -> AbstractContextManager[Any]:
    # A check leaves no files in a root that bsd has never used. On a read-only backup, locks can
    # not be taken and are not needed.
    if layout.locks.is_dir() and (repair or os.access(layout.locks, os.W_OK)):
        return own_lock(layout, name, wait)
    return nullcontext()
