"""Checks that everything taken out is still there, and nothing is left in between (SPEC §7)."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bsd.formats.base import NotOurs
from bsd.formats.marker import Marker, placeholder
from bsd.formats.owners import owner_of
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.times import iso_utc
from bsd.foundation.value_path import parse_path
from bsd.lifecycle import catalog
from bsd.lifecycle.retention import expired_before
from bsd.lifecycle.trashed import Aim, Journal, journals
from bsd.store.extracted import Missing, SessionStore, digest
from bsd.store.index import Record
from bsd.transcript import splice
from bsd.transcript.inflight import InFlight, read_record
from bsd.transcript.lock import own_lock
from bsd.transcript.orphans import list_orphans
from bsd.transcript.reader import TranscriptFile, parse_entry

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

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        return asdict(self)


@dataclass(slots=True)
class Verification:
    """What was looked at, and what was found."""

    sessions: int = 0
    placeholders: int = 0
    expired: int = 0  # of these: their content was kept for as long as `retention` said
    files: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing is wrong, or all of it has been repaired."""
        return all(finding.repaired for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        return {
            "clean": self.clean,
            "sessions": self.sessions,
            "placeholders": self.placeholders,
            "expired": self.expired,
            "files": self.files,
            "findings": [finding.as_json() for finding in self.findings],
        }


def verify(
    layout: Layout,
    *,
    repair: bool = False,
    wait: float = 30.0,
    clock: Callable[[], float] = time.time,
) -> Verification:
    """Look at every session and every store file; `repair` mends what can be mended.

    Missing and rotten content cannot be mended; it is listed. `wait` is for sessions that another
    bsd works on, in seconds each.
    """
    result = Verification()
    due = expired_before(layout)
    for name in _names(layout):
        try:
            with _apart_from_other_bsd(layout, name, wait, repair=repair):
                _Session(layout, name, result, repair=repair, expired_before=due).check()
        except BsdError as error:
            result.findings.append(Finding("unreadable", str(name), error.message, hint=error.hint))
        result.sessions += 1
    _check_orphans(layout, result)
    _check_in_flight(layout, result, clock())
    _check_moves(layout, result, clock())
    return result


def reindex(layout: Layout, name: SessionName, *, wait: float = 30.0) -> bool:
    """Remove what a crash left in a session's store, and mend its index if it lacks a file.

    Whether it had to; raises NotFound, Busy after `wait` seconds, and what reading a session does.
    """
    with own_lock(layout, name, wait):
        store = SessionStore(layout, name)
        store.sweep()
        if not set(store.refs()) - set(_refs(store.index.records)) and not store.index.broken:
            return False
        _Session(layout, name, Verification(), repair=True).mend_index()
        return True


def _check_orphans(layout: Layout, result: Verification) -> None:
    for orphan in list_orphans(layout):
        result.findings.append(
            Finding(
                "orphan_bytes",
                str(orphan.file),
                f"{orphan.size} late bytes of {orphan.session} could not be put back: "
                f"{orphan.reason}",
                hint="look at them, put them where they belong, then delete this file",
            )
        )


def _check_in_flight(layout: Layout, result: Verification, now: float) -> None:
    """What recovery should have dealt with long ago; younger records are as it should be."""
    for path in InFlight(layout).records():
        record = read_record(path)
        if record is None:
            message = "is not readable"
        elif now - record.created_ns / 1e9 > _STUCK_SECONDS:
            message = (
                f"has been in flight for {record.session} since {iso_utc(record.created_ns / 1e9)}"
            )
        else:
            continue
        hint = "run `bsd verify --repair` again when the session is idle"
        result.findings.append(Finding("in_flight", str(path), message, hint=hint))


def _check_moves(layout: Layout, result: Verification, now: float) -> None:
    """Deletes and restores from the trash that were interrupted, and that nobody has finished."""
    for path in journals(layout):
        try:
            journal = Journal.read(path)
        except FileNotFoundError:
            continue  # it has just ended
        except BsdError as error:
            found = Finding("half_moved", str(path), error.message, hint=error.hint)
        else:
            if now - journal.at <= _MOVING_SECONDS:
                continue
            names = ", ".join(str(item.name) for item in journal.items)
            what = "restore from the trash" if journal.aim is Aim.BACK else "delete"
            message = f"a {what} of {names} has been under way since {iso_utc(journal.at)}"
            hint = "`bsd trash list` finishes or undoes it once these sessions are idle"
            found = Finding("half_moved", str(path), message, hint=hint)
        result.findings.append(found)


def _apart_from_other_bsd(
    layout: Layout, name: SessionName, wait: float, *, repair: bool
) -> AbstractContextManager[Any]:
    # Looking at a directory that no bsd has worked in yet shall not leave traces there. And a
    # backup is mounted read-only: nobody works there, and no lock can be taken.
    if layout.locks.is_dir() and (repair or os.access(layout.locks, os.W_OK)):
        return own_lock(layout, name, wait)
    return nullcontext()


def _names(layout: Layout) -> Iterator[SessionName]:
    moved = {agent.name for agent in catalog.agents(layout) if agent.sqlite}
    return (name for name in catalog.names(layout) if name.agent not in moved)


@dataclass(slots=True)
class _Marked:
    """A line that says where its original is."""

    entry_id: str
    marker: Marker


class _Session:
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
        self.owner = owner_of(layout, name.agent)
        self.name = name
        self.store = SessionStore(layout, name)
        self.result = result
        self.repair = repair
        self.expired_before = expired_before
        self.marked: dict[str, _Marked] = {}  # by ref

    def check(self) -> None:
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
            fmt = self.owner.detect(line.raw for line in source.lines())
            if isinstance(fmt, NotOurs):
                return
            for line in source.lines():
                if b"[[extracted-" not in line.raw and b'"_extracted"' not in line.raw:
                    continue
                entry = parse_entry(line.raw)
                if entry is None:
                    continue
                entry_id = fmt.facts(entry).id or f"#{line.index}"
                if marker := Marker.of(entry):
                    self._check_marker(entry_id, marker)
                    continue
                own = placeholder(entry_id)
                if any(value.text == own for value in fmt.values(entry)):
                    self._found(
                        "unmarked_placeholder",
                        f"{self.name} {entry_id}",
                        "a placeholder of this entry stands here without its `_extracted` member",
                        hint="the stored line may still be in the store directory",
                    )

    def _check_marker(self, entry_id: str, marker: Marker) -> None:
        self.result.placeholders += len(marker.keys)
        where = f"{self.name} {entry_id}"
        content = self.store.load(marker.ref, marker.hash)
        if content is Missing.GONE and marker.at < self.expired_before:
            self.result.expired += len(marker.keys)
        elif content is Missing.GONE:
            self._found(
                "missing_file",
                where,
                f"the file {marker.ref}.json that holds its values is gone",
                hint="bring it back from a backup into the session's store directory",
            )
        elif content is Missing.CORRUPT:
            self._found(
                "corrupt_file",
                where,
                f"the file {marker.ref}.json is not what was stored (its hash differs)",
                hint="bring it back from a backup into the session's store directory",
            )
        else:
            self.marked[marker.ref] = _Marked(entry_id, marker)

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
                path.unlink()
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
        marked = self.marked.get(ref)
        keys = marked.marker.keys if marked else ()
        path: Path = self.store.file(ref)
        return Record(
            entry_id=marked.entry_id if marked else str(entry.get("__id") or entry.get("id") or ""),
            index=int(ref.partition("_")[0]),
            file=path.name,
            hash=digest(line),
            size=len(line),
            keys=keys,
            sizes_bytes=_sizes(line, keys),
            extracted_at=(marked.marker.at if marked else "") or iso_utc(path.stat().st_mtime),
        )


def _refs(records: Mapping[str, Record]) -> Iterator[str]:
    return (record.ref for record in records.values())


def _sizes(line: bytes, keys: tuple[str, ...]) -> dict[str, int]:
    paths = {key: parse_path(key) for key in keys}
    try:
        spans = splice.find(line, paths.values())
    except splice.SpliceError:
        return {}
    return {key: spans[path].end - spans[path].start for key, path in paths.items()}
