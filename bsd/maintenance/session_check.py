"""Checks a session against its store: every placeholder has its original, every file its record.

`maintenance/verify.py` checks all sessions, and the files that do not belong to a single session.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from bsd.core.answers import OMIT_EMPTY
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.store.index import Record
from bsd.store.markers import NEEDLES, Markers, keys_of, loose_placeholders, stored_line
from bsd.store.originals import Missing, SessionStore, digest
from bsd.store.pack import local_only
from bsd.transcripts import splice
from bsd.transcripts.agents.entry import Entry, Marker, is_placeholder, standing_at
from bsd.transcripts.agents.format import EntryInfo, NotOurs, TranscriptFormat
from bsd.transcripts.agents.opening import open_transcript, require_transcript
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.damage import DamageCount, DamagedLines
from bsd.transcripts.reader import Line, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath, format_path, parse_path, value_at

_REPAIR = "bsd verify --repair"
_MISSING = {
    Missing.GONE: (
        "missing_file",
        "the file {}.json that holds its values is gone, and no pack of the archive has them",
    ),
    Missing.CORRUPT: ("corrupt_file", "the file {}.json has changed since it was stored"),
    Missing.FOREIGN: ("foreign_file", "the file {}.json holds a different entry"),
    Missing.UNREADABLE: (
        "missing_file",
        "the file {}.json that holds its values is gone; {trouble}",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. `where`: the session and the entry, or a file."""

    kind: str
    where: str
    message: str
    repaired: bool = False
    hint: str | None = None
    harmless: bool = False  # information, not a problem
    damaged: Annotated[DamagedLines | None, OMIT_EMPTY] = None  # only for `damaged_lines`

    @property
    def is_open(self) -> bool:
        """True if this is a problem that is not repaired."""
        return not (self.repaired or self.harmless)


@dataclass(slots=True)
class Verification:
    """The result of `verify`: the numbers of checked items, and the findings."""

    clean: bool = True  # no problems, or every problem was repaired
    sessions: int = 0
    elsewhere: list[str] = field(default_factory=list)  # sources of other roots, with the reason
    placeholders: int = 0
    expired: int = 0  # placeholders whose content was deleted in accordance with the settings
    unmarked: int = 0  # placeholders whose marker was dropped by a program
    files: int = 0
    packed: int = 0  # lines in the packs of the archive
    damaged_lines: int = 0  # in sessions; bsd leaves them as they are
    findings: list[Finding] = field(default_factory=list)


def reindex(layout: Layout, name: SessionName, *, wait: float = 30.0) -> bool:
    """Remove crash leftovers from a session's store; repair its index if that is incomplete.

    Returns:
        True if the index was repaired.

    Raises:
        Busy: another bsd process works on the session for more than `wait` seconds.
        NotFound, BsdError: the session cannot be read.
    """
    with own_lock(layout, name, wait):
        store = SessionStore(layout, name)
        store.sweep()
        if not set(store.refs()) - _refs(store.index.records.values()) and not store.index.broken:
            return False
        check = SessionCheck(layout, name, Verification(), repair=True)
        check.check_lines()  # the markers in the lines are needed to make records
        check.check_index()
        return True


class SessionCheck:
    """A check of one session and its store. Findings go to `result`.

    Args:
        layout: the root.
        name: the session.
        result: the result of the whole run.
        repair: repair modes, leftovers and the index.
        expired_before: the content of markers from before this time (ISO 8601) may have expired.

    Attributes:
        unmarked: ids of entries whose lost markers can be put back.
    """

    def __init__(
        self,
        layout: Layout,
        name: SessionName,
        result: Verification,
        *,
        repair: bool,
        expired_before: str = "",
    ) -> None:
        require_transcript(layout, name)
        self._layout = layout
        self._program = program_of(layout, name.agent)
        self._name = name
        self._store = SessionStore(layout, name)
        self._result = result
        self._repair = repair
        self._expired_before = expired_before
        self._fmt: TranscriptFormat | None = None
        self._marked: dict[str, tuple[str, Marker]] = {}  # entry and marker by ref
        self.unmarked: list[str] = []
        self._unreached = 0  # placeholders whose content is only in the bucket

    def check(self) -> None:
        """Check everything; raises BsdError, OSError."""
        if why := self._program.why_no_session(f"{self._name.session}{ENDING}"):
            message = f"bsd has extracted values from it, but it is not a session: {why}"
            hint = f"`bsd restore-all {self._name}` puts the values back"
            found = Finding("no_session", str(self._name), message, hint=hint, harmless=True)
            self._result.findings.append(found)
        self.check_lines()
        if self._unreached:
            message = f"the content of {self._unreached} placeholders is only in the bucket"
            hint = "`bsd archive verify --remote` checks the bucket; with --full, all content"
            found = Finding("in_bucket", str(self._name), message, hint=hint, harmless=True)
            self._result.findings.append(found)
        self._check_modes()
        self._check_leftovers()
        self.check_index()

    def _found(self, kind: str, where: str, message: str, hint: str | None = None) -> None:
        self._result.findings.append(Finding(kind, where, message, hint=hint))

    def _mended(self, kind: str, where: str, message: str) -> None:
        hint = None if self._repair else _REPAIR
        self._result.findings.append(Finding(kind, where, message, self._repair, hint))

    # --- the lines of the session ---

    def check_lines(self) -> None:
        """Check every placeholder and marker; of thin packs, the index alone."""
        with local_only(), open_transcript(self._layout, self._name) as source:
            found = self._program.detect(line.raw for line in source.lines())
            is_ours = not isinstance(found, NotOurs)
            self._fmt = fmt = found.reads if isinstance(found, NotOurs) else found
            if fmt is None:
                return
            markers, damaged = Markers(source, fmt, self._store), DamageCount()
            for line in source.lines():
                if is_too_large(line.raw):
                    where = f"{self._name} #{line.index}"
                    message = f"{len(line.raw):,} bytes would take too much memory, "
                    message += "so bsd skips this line"
                    finding = Finding("too_large_in_memory", where, message, harmless=True)
                    self._result.findings.append(finding)
                    continue
                entry = parse_entry(line.raw)
                damaged.look_at(line, entry)
                has_needle = any(needle in line.raw for needle in NEEDLES)
                if has_needle and entry is not None:
                    self._check_entry(line, entry, fmt, markers, is_ours=is_ours)
        self._note_damage(damaged.lines)

    def _note_damage(self, damaged: DamagedLines) -> None:
        """Report damaged lines, which are harmless for bsd."""
        if damaged.count:
            self._result.damaged_lines += damaged.count
            where, message = str(self._name), damaged.in_words()
            found = Finding("damaged_lines", where, message, harmless=True, damaged=damaged)
            self._result.findings.append(found)

    def _check_entry(
        self, line: Line, entry: Entry, fmt: TranscriptFormat, markers: Markers, *, is_ours: bool
    ) -> None:
        info = fmt.info(entry)
        entry_id = info.id or f"#{line.index}"
        own, alone = Marker.of(entry), set(loose_placeholders(entry, fmt))
        whole = markers.of(entry, info, line.index, copied=False)
        for marker in markers.of(entry, info, line.index):
            alone -= set(keys_of(entry, marker))
            self._result.placeholders += len(marker.keys)
            if marker == own:
                self._check_marker(entry_id, line.raw, entry, marker, fmt)
                continue
            self._marked[marker.ref] = entry_id, marker
            if marker not in whole:  # of values that the program copied from other entries
                continue
            self._result.unmarked += len(marker.keys)
            if is_ours and own is None and not fmt.keeps_length:  # else no room for a marker
                self.unmarked.append(entry_id)
        for path in sorted(alone, key=str):
            name = standing_at(entry, path)
            if name is None:
                continue
            value = value_at(entry, path)
            is_all = isinstance(value, str) and is_placeholder(value)
            may_be_ours = name == info.id or is_all  # otherwise the text mentions a placeholder
            if may_be_ours and markers.may_be_lost(entry, info, line.index, path, name):
                self._check_alone(entry_id, path, info)

    def _check_alone(self, entry_id: str, path: ValuePath, info: EntryInfo) -> None:
        """Report a placeholder that has neither a marker nor a stored original."""
        self._result.placeholders += 1
        self._result.unmarked += 1
        written = iso_utc(info.time_ms / 1000) if info.time_ms is not None else ""
        if written < self._expired_before:
            self._result.expired += 1
            return
        self._found(
            "unmarked_placeholder",
            f"{self._name} {entry_id}",
            f"the placeholder in {format_path(path)} has lost its `_extracted` member, and "
            "no store of this root has its content",
            hint="restore the store directory of the original session from a backup",
        )

    def _check_marker(
        self, entry_id: str, raw: bytes, entry: Entry, marker: Marker, fmt: TranscriptFormat
    ) -> None:
        content = stored_line(raw, entry, marker, fmt, self._store)
        is_due = content is Missing.GONE and marker.at < self._expired_before
        if is_due or content is Missing.FORGOTTEN:
            self._result.expired += len(marker.keys)
        elif content is Missing.UNREACHABLE:
            self._unreached += len(marker.keys)
        elif isinstance(content, Missing):
            kind, message = _MISSING[content]
            self._found(
                kind,
                f"{self._name} {entry_id}",
                message.format(marker.ref, trouble=self._store.trouble()),
                hint="restore the file to the session's store directory from a backup",
            )
        else:
            self._marked[marker.ref] = entry_id, marker

    # --- the files of the store ---

    def _check_modes(self) -> None:
        store = self._store
        wanted = [(store.file(ref), 0o600) for ref in store.refs()]
        self._result.files += len(wanted)
        if store.directory.is_dir():
            wanted.insert(0, (store.directory, 0o700))
        for path, mode in wanted:
            present = stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)
            if present != mode:
                if self._repair:
                    path.chmod(mode)
                message = f"has mode {present:04o} instead of {mode:04o}"
                self._mended("mode", str(path), message)

    def _check_leftovers(self) -> None:
        for path in self._store.leftovers():
            if self._repair:
                try:
                    path.unlink()
                except OSError as error:
                    self._found("leftover", str(path), f"cannot be removed: {error.strerror}")
                    continue
            self._mended("leftover", str(path), "was left by an interrupted extraction")

    def check_index(self) -> None:
        """Check that the index names all files of the store and no others.

        `check_lines` must have been called before.
        """
        index, store = self._store.index, self._store
        there = set(store.refs())
        records = {ref: record for record in index.records.values() if (ref := record.ref) in there}
        if index.broken:
            self._mended("index_broken", str(index.path), f"cannot be used: {index.broken}")
        for file in sorted(set(index.records) - {record.file for record in records.values()}):
            self._mended("index_stale", str(index.path), f"names {file}, which is gone")
        for ref in sorted(there - records.keys()):
            if record := self._record(ref):
                records[ref] = record
                self._mended("not_indexed", str(store.file(ref)), "is not in index.json")
            else:
                self._found("unknown_file", str(store.file(ref)), "holds no readable entry")
        if self._repair and (index.broken or records.keys() != _refs(index.records.values())):
            index.replace(sorted(records.values(), key=lambda record: record.extracted_at))

    def _record(self, ref: str) -> Record | None:
        """Make the record of a stored file from the file and the session's marker."""
        line = self._store.read(ref)
        entry = parse_entry(line) if line is not None else None
        if line is None or entry is None:
            return None
        entry_id, marker = self._marked.get(ref, ("", None))
        if marker is None:
            known = self._fmt.info(entry).id if self._fmt is not None else None
            entry_id = known or str(entry.get("__id") or entry.get("id") or "")
        keys = marker.keys if marker else ()
        path: Path = self._store.file(ref)
        return Record(
            entry_id=entry_id,
            index=int(ref.partition("_")[0]),
            file=path.name,
            hash=digest(line),
            size=len(line),
            keys=keys,
            sizes_bytes=_sizes(line, keys),
            extracted_at=(marker.at if marker else "") or iso_utc(path.stat().st_mtime),
        )


def _refs(records: Iterable[Record]) -> set[str]:
    return {record.ref for record in records}


def _sizes(line: bytes, keys: tuple[str, ...]) -> dict[str, int]:
    paths = {key: parse_path(key) for key in keys}
    try:
        spans = splice.find(line, paths.values())
    except splice.SpliceError:
        return {}
    return {key: splice.text_size(line[slice(*spans[path])]) for key, path in paths.items()}
