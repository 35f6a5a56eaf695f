"""Checks that everything taken out is still there, and nothing is left in between (SPEC §7)."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from bsd.core.errors import BsdError, os_problem
from bsd.core.files import MEND_PLANTED
from bsd.core.formatting import NEVER, iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import Keeping
from bsd.maintenance.keepers import broken_notes
from bsd.maintenance.leftovers import adds_nothing, stores_without_transcript
from bsd.maintenance.targets import lock_of
from bsd.maintenance.trash import Trash
from bsd.maintenance.trash_moves import Aim, TrashMoves, pending_moves
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.idle import RetryBudget
from bsd.sessions.notes import expired_before
from bsd.store.archive import SessionArchive
from bsd.store.index import Record
from bsd.store.markers import NEEDLES, Markers, keys_of, loose_placeholders, stored_line
from bsd.store.originals import Missing, SessionStore, digest
from bsd.store.pack import LinesDamaged, PackDamaged, why_damaged
from bsd.store.snapshots import damaged_snapshots
from bsd.transcripts import splice
from bsd.transcripts.agents.entry import Entry, Marker, is_placeholder, standing_at
from bsd.transcripts.agents.format import EntryInfo, NotOurs, TranscriptFormat
from bsd.transcripts.agents.programs import elsewhere, program_of
from bsd.transcripts.reader import Line, TranscriptFile, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath, format_path, parse_path, value_at

_log: BoundLogger = structlog.get_logger(module="verify")

_MISSING = {
    Missing.GONE: (
        "missing_file",
        "the file {}.json that holds its values is gone, and no pack of the archive has them",
    ),
    Missing.CORRUPT: ("corrupt_file", "the file {}.json is not what was stored (its hash differs)"),
    Missing.FOREIGN: ("foreign_file", "the file {}.json holds another entry than this one"),
    Missing.UNREADABLE: (
        "missing_file",
        "the file {}.json that holds its values is gone; {trouble}",
    ),
}

# A displaced file is kept for a minute, and goes with the next call after that.
_STUCK_SECONDS = 24 * 3600.0
# A delete takes moments, unless the trash is on another disk.
_MOVING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    where: str  # session and entry, or a file
    message: str
    repaired: bool = False
    hint: str | None = None
    harmless: bool = False  # worth knowing, and nothing is wrong

    @property
    def is_open(self) -> bool:
        """Whether something is still wrong."""
        return not (self.repaired or self.harmless)


@dataclass(slots=True)
class Verification:
    """What was looked at, and what was found."""

    clean: bool = True  # nothing is wrong, or all of it has been repaired
    sessions: int = 0
    elsewhere: list[str] = field(default_factory=list)  # sources of other roots, with the reason
    placeholders: int = 0
    expired: int = 0  # of these: their content was kept for as long as was wanted
    unmarked: int = 0  # of these: some program has dropped the marker beside them
    files: int = 0
    packed: int = 0  # lines in the packs of the archive
    findings: list[Finding] = field(default_factory=list)


def verify(
    layout: Layout,
    *,
    repair: bool = False,
    wait: float = 30.0,
    clock: Callable[[], float] = time.time,
    remark: Callable[[SessionName], Collection[str]] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Look at every session and every store file; `repair` mends what can be mended.

    `remark` puts markers back that a program has dropped, and names the entries. Missing and
    rotten content cannot be mended; it is listed. `wait` is for sessions that another bsd works
    on, in seconds each. `progress` hears how many were looked at, and may raise, to end it.
    """
    _log.trace("Sessions are verified", root=str(layout.root))
    result = Verification()
    due = expired_before(layout)
    others = _of_other_roots(layout)
    result.elsewhere += others.values()
    for name in _names(layout):
        progress(result.sessions)
        if layout.source_of(name.agent) in others:
            continue  # what was taken out of them lies there
        try:
            with _apart_from_other_bsd(layout, name, wait, repair=repair):
                session = _SessionCheck(layout, name, result, repair=repair, expired_before=due)
                session.check()
            if session.unmarked:
                result.findings += _remarked(name, session.unmarked, remark if repair else None)
        except (BsdError, OSError) as error:
            result.findings.append(_unreadable(name, error, "reading"))
        result.sessions += 1
    for where, problem in catalog.unreadable(layout):
        result.findings.append(_unreadable(where, problem))
    result.findings += _packs(layout, result, wait, repair=repair)
    result.findings += _late_bytes(layout, repair=repair)
    result.findings += _in_flight(layout, clock())
    result.findings += _half_moved(layout, clock())
    for note, why in broken_notes(layout):
        result.findings.append(_unreadable(note, why, kind="half_forgotten"))
    result.findings += _broken_trash(layout)
    result.findings += _without_transcript(layout)
    result.clean = not any(finding.is_open for finding in result.findings)
    return result


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
    """Put lost markers back, or say that they are lost."""
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
            "placeholders stand here without their `_extracted` member; what they stand for is "
            "stored",
            repaired=done,
            hint=None if done else hint,
        )


def reindex(layout: Layout, name: SessionName, *, wait: float = 30.0) -> bool:
    """Remove what a crash left in a session's store, and mend its index if it lacks a file.

    Whether it had to; raises NotFound, Busy after `wait` seconds, and what reading a session does.
    """
    with own_lock(layout, name, wait):
        store = SessionStore(layout, name)
        store.sweep()
        if not set(store.refs()) - set(_refs(store.index.records)) and not store.index.broken:
            return False
        _SessionCheck(layout, name, Verification(), repair=True).mend_index()
        return True


def _packs(layout: Layout, result: Verification, wait: float, *, repair: bool) -> Iterator[Finding]:
    """Packs of the archive, and copies, that are not as they were written; all of it is read."""
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
    """The same of one session; raises OSError."""
    for copy, damage in list(damaged_snapshots(directory)):
        name = layout.session_of_store(directory.name)
        if wait is not None and name is not None and _is_made_anew(layout, name, copy, wait):
            message = f"{damage.message}; its session is there, and was copied anew"
            yield Finding("damaged_copy", str(copy), message, repaired=True)
            continue
        yield Finding("damaged_copy", str(copy), damage.message, hint=damage.hint)
    archive = SessionArchive(directory)
    whose = layout.session_of_store(directory.name) or directory.name
    for pack in archive.set_aside():
        message = f"of the archive of {whose}: it was damaged; what could be read of it is in "
        message += "another pack"
        hint = f"`rm {shlex.quote(str(pack))}` when nothing of this session is missing"
        yield Finding("set_aside_pack", str(pack), message, hint=hint, harmless=True)
    for pack in archive.packs():
        try:
            problem = why_damaged(pack)
        except FileNotFoundError:
            continue  # merged since we looked
        except OSError as error:
            yield _unreadable(pack, error, f"the archive of {whose}")
            continue
        if problem is None:
            continue
        message = f"of the archive of {whose}: {problem.why}"
        if isinstance(problem, LinesDamaged):
            if wait is not None and _are_elsewhere(layout, archive, pack, wait):
                message += "; other packs have these lines: it was made anew without them"
                yield Finding("damaged_pack", str(pack), message, repaired=True)
                continue
            hint = "bring it back from a backup: whatever else it holds can be restored"
            yield Finding("damaged_pack", str(pack), message, hint=hint)
            continue
        yield _mended_pack(layout, archive, pack, message, wait)


def _is_made_anew(layout: Layout, name: SessionName, copy: Path, wait: float) -> bool:
    """Whether a copy is whole now, since its session is in its place and could be read."""
    made = Keeping(layout, NEVER, RetryBudget(wait)).remake(name)
    return made and copy not in dict(damaged_snapshots(copy.parent))


def _are_elsewhere(layout: Layout, archive: SessionArchive, pack: Path, wait: float) -> bool:
    """Whether what a pack has lost was packed again since; then it has been made anew."""
    try:
        with lock_of(layout, archive.directory, wait):
            return archive.mend_lines(pack)
    except (BsdError, OSError, PackDamaged) as error:
        _log.warning("A pack is not made anew", pack=str(pack), problem=str(error))
        return False


def _mended_pack(
    layout: Layout, archive: SessionArchive, pack: Path, message: str, wait: float | None
) -> Finding:
    """A pack whose index is damaged: made anew of its lines, unless `wait` is None."""
    hint: str | None = "bsd verify --repair"
    if wait is not None:
        try:
            with lock_of(layout, archive.directory, wait):
                mended = archive.mend(pack)
            message += f"; {mended.lines} lines were found in it, and are in a new one; "
            message += f"it is set aside as {mended.set_aside.name}"
            if mended.whole:
                return Finding("damaged_pack", str(pack), message, repaired=True)
            message += "; the rest of it cannot be read"
            hint = "bring it back from a backup: whatever else it held can be restored then"
        except (BsdError, OSError, PackDamaged) as error:
            message, hint = f"{message}; {error}", "bring it back from a backup"
    return Finding("damaged_pack", str(pack), message, hint=hint)


def _late_bytes(layout: Layout, *, repair: bool) -> Iterator[Finding]:
    for orphan in list_orphans(layout):
        message = f"{orphan.size} late bytes of {orphan.session} could not be put back: "
        message += orphan.reason
        done, files = False, shlex.join(map(str, orphan.files))
        hint: str | None = f"look at them, put what is missing where it belongs, then `rm {files}`"
        if adds_nothing(layout, orphan):
            message += "; the session or its store has all that they say"
            done, hint = repair, None if repair else "bsd verify --repair"
            if repair:
                forget_orphan(orphan)
        yield Finding("orphan_bytes", str(orphan.file), message, done, hint)


def _in_flight(layout: Layout, now: float) -> Iterator[Finding]:
    """What recovery should have dealt with long ago; younger records are as it should be."""
    inflight = InFlight(layout)
    for path, why in inflight.planted():
        message = f"is left alone, it is not bsd's own: {why}"
        hint = MEND_PLANTED.format(path)
        yield Finding("in_flight", str(path), message, hint=hint)
    for path in inflight.records():
        try:
            record, touched = inflight.read(path), path.lstat().st_mtime
        except FileNotFoundError:
            continue  # it has just been finished
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
    """Deletes and restores from the trash that were interrupted, and that nobody has finished."""
    for path in pending_moves(layout):
        try:
            moves = TrashMoves.read(layout, path)
        except FileNotFoundError:
            continue  # it has just ended
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
    """What lies in the trash and cannot be brought back, since nothing says how it was."""
    for item in Trash(layout, "never").items():
        if item.problem is not None:
            message = f"{item.name} cannot be brought back from the trash: {item.problem}"
            hint = f"`bsd trash delete {item.id}`, or make its files a session by hand"
            yield Finding("broken_trash", item.id, message, hint=hint)


def _without_transcript(layout: Layout) -> Iterator[Finding]:
    """Content of sessions whose transcript is gone: programs delete, rename and compress them."""
    try:
        for store in stores_without_transcript(layout):
            where = str(store.session or store.directory)
            yield Finding("no_transcript", where, store.message, hint=store.hint, harmless=True)
    except (BsdError, OSError) as error:
        yield _unreadable(layout.extracted, error)


def _apart_from_other_bsd(
    layout: Layout, name: SessionName, wait: float, *, repair: bool
) -> AbstractContextManager[Any]:
    # Looking at a directory that no bsd has worked in yet shall not leave traces there. And a
    # backup is mounted read-only: nobody works there, and no lock can be taken.
    if layout.locks.is_dir() and (repair or os.access(layout.locks, os.W_OK)):
        return own_lock(layout, name, wait)
    return nullcontext()


def _of_other_roots(layout: Layout) -> dict[Source | None, str]:
    """Sources that another root serves, and which one."""
    found = ((source, elsewhere(layout, source, look_inside=True)) for source in layout.sources)
    return {source: why for source, why in found if why is not None}


def _names(layout: Layout) -> Iterator[SessionName]:
    moved = {agent.name for agent in catalog.agents(layout) if agent.sqlite}
    return (name for name in catalog.names(layout) if name.agent not in moved)


class _SessionCheck:
    """One session and its store, looked at together."""

    def __init__(
        self,
        layout: Layout,
        name: SessionName,
        result: Verification,
        *,
        repair: bool,
        expired_before: str = "",
    ) -> None:
        self.path = layout.session_file(name)
        self.program = program_of(layout, name.agent)
        self.name = name
        self.store = SessionStore(layout, name)
        self.result = result
        self.repair = repair
        self.expired_before = expired_before
        self.fmt: TranscriptFormat | None = None
        self.marked: dict[str, tuple[str, Marker]] = {}  # entries and their markers, by ref
        self.unmarked: list[str] = []  # entries whose markers could be put back

    def check(self) -> None:
        if why := self.program.why_no_session(self.path.name):
            message = f"something was taken out of it, though it is no session: {why}"
            hint = f"`bsd restore-all {self.name}` puts it back"
            found = Finding("no_session", str(self.name), message, hint=hint, harmless=True)
            self.result.findings.append(found)
        self._check_lines()
        self._check_modes()
        self._check_leftovers()
        self._check_index()

    def mend_index(self) -> None:
        self._check_lines()  # which say what the files are
        self._check_index()

    def _found(self, kind: str, where: str, message: str, hint: str | None = None) -> None:
        self.result.findings.append(Finding(kind, where, message, hint=hint))

    def _mended(self, kind: str, where: str, message: str) -> None:
        hint = None if self.repair else "bsd verify --repair"
        self.result.findings.append(Finding(kind, where, message, self.repair, hint))

    def _check_lines(self) -> None:
        with TranscriptFile(self.path) as source:
            found = self.program.detect(line.raw for line in source.lines())
            fmt = found.reads if isinstance(found, NotOurs) else found
            if fmt is None:
                return
            self.fmt = fmt
            markers = Markers(source, fmt, self.store)
            for line in source.lines():
                if is_too_large(line.raw):
                    self._too_large(line)
                    continue
                if not any(map(line.raw.__contains__, NEEDLES)):
                    continue
                if (entry := parse_entry(line.raw)) is not None:
                    editable = not isinstance(found, NotOurs)
                    self._check_entry(line, entry, fmt, markers, editable=editable)

    def _too_large(self, line: Line) -> None:
        where = f"{self.name} #{line.index}"
        message = f"{len(line.raw):,} bytes that would take too much memory, so it is left alone"
        found = Finding("too_large_in_memory", where, message, harmless=True)
        self.result.findings.append(found)

    def _check_entry(
        self, line: Line, entry: Entry, fmt: TranscriptFormat, markers: Markers, *, editable: bool
    ) -> None:
        info = fmt.info(entry)
        entry_id = info.id or f"#{line.index}"
        own, alone = Marker.of(entry), set(loose_placeholders(entry, fmt))
        for marker in markers.of(entry, info, line.index):
            alone -= set(keys_of(entry, marker))
            if marker == own:
                self._check_marker(entry_id, line.raw, entry, marker, fmt)
                continue
            self.result.placeholders += len(marker.keys)
            self.result.unmarked += len(marker.keys)
            self.marked[marker.ref] = entry_id, marker
            if editable and own is None:
                self.unmarked.append(entry_id)
        for path in sorted(alone, key=str):
            name = standing_at(entry, path)
            if name is None or not (name == info.id or self._is_all(entry, path)):
                continue
            if markers.may_be_lost(entry, info, line.index, name):  # else somebody mentions it
                self._check_alone(entry_id, path, info)

    def _is_all(self, entry: Entry, path: ValuePath) -> bool:
        """Whether a placeholder is all that a value is."""
        text = value_at(entry, path)
        return isinstance(text, str) and is_placeholder(text)

    def _check_alone(self, entry_id: str, path: ValuePath, info: EntryInfo) -> None:
        """A placeholder without marker, for which nothing is stored."""
        self.result.placeholders += 1
        self.result.unmarked += 1
        written = iso_utc(info.time_ms / 1000) if info.time_ms is not None else ""
        if written < self.expired_before:
            self.result.expired += 1
            return
        self._found(
            "unmarked_placeholder",
            f"{self.name} {entry_id}",
            f"a placeholder stands in {format_path(path)} without its `_extracted` member, and "
            "no store of this root has what it stands for",
            hint="bring the store directory of the session it came from back from a backup",
        )

    def _check_marker(
        self, entry_id: str, raw: bytes, entry: Entry, marker: Marker, fmt: TranscriptFormat
    ) -> None:
        self.result.placeholders += len(marker.keys)
        where = f"{self.name} {entry_id}"
        content = stored_line(raw, entry, marker, fmt, self.store)
        is_due = content is Missing.GONE and marker.at < self.expired_before
        if is_due or content is Missing.FORGOTTEN:
            self.result.expired += len(marker.keys)
        elif isinstance(content, Missing):
            kind, message = _MISSING[content]
            self._found(
                kind,
                where,
                message.format(marker.ref, trouble=self.store.trouble()),
                hint="bring it back from a backup into the session's store directory",
            )
        else:
            self.marked[marker.ref] = entry_id, marker

    def _check_modes(self) -> None:
        wanted = [(self.store.directory, 0o700)] if self.store.directory.is_dir() else []
        wanted += [(self.store.file(ref), 0o600) for ref in self.store.refs()]
        self.result.files += len(wanted) - 1 if wanted else 0
        for path, mode in wanted:
            present = stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)
            if present == mode:
                continue
            if self.repair:
                path.chmod(mode)
            self._mended("mode", str(path), f"has mode {present:04o} instead of {mode:04o}")

    def _check_leftovers(self) -> None:
        for path in self.store.leftovers():
            if self.repair:
                try:
                    path.unlink()
                except OSError as error:
                    self._found("leftover", str(path), f"cannot be removed: {error.strerror}")
                    continue
            self._mended("leftover", str(path), "was left by an interrupted extraction")

    def _check_index(self) -> None:
        index = self.store.index
        there = set(self.store.refs())
        records = {ref: record for record in index.records.values() if (ref := record.ref) in there}
        if index.broken:
            self._mended("index_broken", str(index.path), f"cannot be used: {index.broken}")
        for file in sorted(set(index.records) - {record.file for record in records.values()}):
            self._mended("index_stale", str(index.path), f"names {file}, which is gone")
        for ref in sorted(there - records.keys()):
            if record := self._record(ref):
                records[ref] = record
                self._mended("not_indexed", str(self.store.file(ref)), "is not in index.json")
            else:
                self._found("unknown_file", str(self.store.file(ref)), "holds no readable entry")
        if self.repair and (index.broken or records.keys() != {*_refs(index.records)}):
            index.replace(sorted(records.values(), key=lambda record: record.extracted_at))

    def _record(self, ref: str) -> Record | None:
        """What the index would say of a file, read from the file and from the session."""
        line = self.store.read(ref)
        entry = parse_entry(line) if line is not None else None
        if line is None or entry is None:
            return None
        name, marker = self.marked.get(ref, ("", None))
        keys = marker.keys if marker else ()
        path: Path = self.store.file(ref)
        return Record(
            entry_id=name if marker else self._id_of(entry),
            index=int(ref.partition("_")[0]),
            file=path.name,
            hash=digest(line),
            size=len(line),
            keys=keys,
            sizes_bytes=_sizes(line, keys),
            extracted_at=(marker.at if marker else "") or iso_utc(path.stat().st_mtime),
        )

    def _id_of(self, entry: Entry) -> str:
        if self.fmt is not None and (known := self.fmt.info(entry).id):
            return known
        return str(entry.get("__id") or entry.get("id") or "")


def _refs(records: Mapping[str, Record]) -> Iterator[str]:
    return (record.ref for record in records.values())


def _sizes(line: bytes, keys: tuple[str, ...]) -> dict[str, int]:
    paths = {key: parse_path(key) for key in keys}
    try:
        spans = splice.find(line, paths.values())
    except splice.SpliceError:
        return {}
    return {key: splice.text_size(line[slice(*spans[path])]) for key, path in paths.items()}
