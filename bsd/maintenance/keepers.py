"""What forgetting goes by: a note of what it takes, without a word of it, until it is done.

And who else keeps what a session, or one entry of it, says: forks, copies, children; files beside.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Conflict, os_problem
from bsd.core.files import (
    LARGEST_LINE,
    LARGEST_RECORD,
    read_ours,
    read_plain,
    sync_dir,
    write_private,
)
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.keeping import gone_sessions
from bsd.sessions.session import format_of
from bsd.store.checked import moment, text, text_or_none
from bsd.store.contents import contents_of
from bsd.store.copies import CopiedTranscript, SessionCopy, copies_of
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import (
    InBlocks,
    Line,
    Transcript,
    TranscriptFile,
    parse_entry,
    parse_kept,
)
from bsd.transcripts.splice import SpliceError, edit, encode_string

_log = structlog.stdlib.get_logger(module="archive")

_VERSION = 1
_ENDING = ".json"
_ORIGIN = re.compile(r"[0-9a-f]{16}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_FORGOTTEN = encode_string("[content forgotten]")


@dataclass(frozen=True, slots=True)
class Begun:
    """One call of `forget`: what it takes. `at` is when it began, in epoch seconds."""

    path: Path
    session: SessionName
    at: float
    entry: str | None = None
    origin: str | None = None  # of the only copy that goes; None: all that is kept
    hashes: frozenset[str] = frozenset()  # of the lines that are kept of it

    @classmethod
    def now(cls, layout: Layout, name: SessionName, at: float, entry: str | None = None) -> Begun:
        """One that begins; it must be written."""
        return cls(layout.forgetting / f"{secrets.token_hex(8)}{_ENDING}", name, at, entry)

    def write(self) -> None:
        """Make it durable; raises Unavailable, Forbidden."""
        said = {
            "version": _VERSION,
            "session": str(self.session),
            "at": self.at,
            "entry": self.entry,
            "origin": self.origin,
            "hashes": sorted(self.hashes),
        }
        try:
            write_private(self.path, orjson.dumps(said))
        except OSError as error:
            raise os_problem(error, f"writing {self.path}") from error

    def end(self) -> None:
        """It is done; a problem costs doing it again."""
        with suppress(OSError):
            self.path.unlink()
            sync_dir(self.path.parent)

    @classmethod
    def read(cls, layout: Layout, path: Path) -> Begun:
        """Raises OSError, Forbidden for one that is not bsd's own, Conflict for a broken one."""
        try:
            return cls._of(path, orjson.loads(read_ours(path, layout.root, LARGEST_RECORD)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise os_problem(error, f"reading the note {path}") from error
        except (ValueError, LookupError, TypeError, BsdError) as error:
            raise Conflict(
                f"the note {path} of what is being forgotten cannot be read: {error}",
                hint="was it written by a newer bsd? nothing is forgotten by it",
            ) from error

    @classmethod
    def _of(cls, path: Path, said: Any) -> Begun:
        if said["version"] != _VERSION:
            raise ValueError(f"it is of version {said['version']!r:.20}")
        entry, origin = text_or_none(said["entry"]), text_or_none(said["origin"])
        if origin is not None and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r:.40} is the origin of no copy")
        hashes = frozenset(map(text, said["hashes"]))
        if not all(map(_HASH.fullmatch, hashes)):
            raise ValueError("a hash is none")
        session = SessionName.parse(text(said["session"]))
        return cls(path, session, moment(said["at"]), entry, origin, hashes)


def begun(layout: Layout, actor: str) -> Iterator[Begun]:
    """Return every journal that has not ended: of a running process, or of one that was killed.

    Nothing is forgotten by a note that is not bsd's own, or cannot be read; it is left alone.
    """
    try:
        paths = _notes(layout)
    except OSError as error:
        _log.warning("What is being forgotten cannot be read", problem=str(error))
        return
    for path in paths:
        try:
            yield Begun.read(layout, path)
        except FileNotFoundError:
            continue  # it has just ended
        except BsdError as error:
            _log.warning("A note of what is being forgotten is left alone", problem=error.message)
            AuditLog(layout.audit_file).refused(path, error.message, actor)


def broken_notes(layout: Layout) -> Iterator[tuple[Path, BsdError | OSError]]:
    """The notes by which nothing is forgotten, and why; raises OSError."""
    for path in _notes(layout):
        try:
            Begun.read(layout, path)
        except FileNotFoundError:
            continue
        except BsdError as error:
            yield path, error


def _notes(layout: Layout) -> list[Path]:
    return sorted(layout.forgetting.glob(f"[!.]*{_ENDING}"))


_LINES_LOOKED_AT, _IDS_LOOKED_FOR = 200, 8
_LONG_ENOUGH = 12  # characters
_MOST_LOOKED_FOR = 32


# --- who else keeps it ---


class Keepers:
    """Who else keeps what a session says."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self._layout = layout
        self._name = name

    def of_copy(self, copy: SessionCopy | None, path: Path) -> list[str]:
        """Sessions that say what this one says, told by its first entries."""
        chosen = copy or next(iter(copies_of(self._layout, self._name)), None)
        with suppress(BsdError, OSError), ExitStack() as opened:
            source: Transcript
            if copy is None and path.is_file():
                source = opened.enter_context(TranscriptFile(path))
            elif chosen is not None:
                source = opened.enter_context(CopiedTranscript(chosen))
            else:
                return []
            return self.who_says(list(_ids_in(self._layout, self._name, source)))
        return []

    def who_says(self, entries: list[str]) -> list[str]:
        """The sessions of the same program in whose lines one of these entries stands."""
        name = self._name
        mine = self._layout.source_of(name.agent)
        found = []
        for other in catalog.names(self._layout) if entries else ():
            if other == name or self._layout.source_of(other.agent) != mine:
                continue
            with suppress(BsdError, OSError):
                path = self._layout.session_file(other)
                with TranscriptFile(path) as source:
                    if _holds(source, program_of(self._layout, other.agent), entries):
                        found.append(str(other))
        for copy in gone_sessions(self._layout) if entries else ():
            if copy.name == name or self._layout.source_of(copy.name.agent) != mine:
                continue
            with suppress(BsdError, OSError), CopiedTranscript(copy) as copied:
                if _holds(copied, program_of(self._layout, copy.name.agent), entries):
                    found.append(copy.id)
        return found

    def who_has(self, hashes: Collection[bytes]) -> list[str]:
        """Other sessions whose stores or archives hold one of these lines."""
        contents = contents_of(self._layout)
        found = set()
        for each in hashes:
            for place in contents.with_hash(f"sha256:{each.hex()}"):
                directory = place.directory
                if directory.parent.name == self._layout.trash.name:
                    continue
                other = self._layout.session_of_store(directory.name)
                if other is not None and other != self._name:
                    found.add(str(other))
        return sorted(found)

    # --- what belongs to it ---

    def beside(self, values: Collection[str]) -> list[str]:
        """What belongs to the session and says one of these, too: results, subagents, copies."""
        needles = set(_needles(values))
        if not needles:
            return []
        layout, name = self._layout, self._name
        found = []
        for copy in copies_of(layout, name):
            for file in copy.files[1:]:
                with suppress(BsdError, OSError), CopiedTranscript(copy, file) as copied:
                    if any(_says(part, needles) for part in copied.whole()):
                        found.append(f"{file.path} (in the copy in the archive)")
        for path in program_of(layout, name.agent).belongings(name.session):
            with suppress(OSError):
                if _says(read_plain(path, LARGEST_LINE), needles):
                    found.append(str(path))
        for part, source in self._parts():
            with suppress(BsdError, OSError), source:
                if any(_says(line.raw, needles) for line in source.lines()):
                    found.append(part)
        return sorted(set(found))

    def _parts(self) -> Iterator[tuple[str, InBlocks]]:
        """Sessions that are parts of this one, in their place or gone."""
        layout, path = self._layout, self._layout.transcript(self._name)
        for agent in catalog.agents(layout):
            if program_of(layout, agent.name).part_of == path:
                for name in catalog.names(layout, agent.name):
                    with suppress(BsdError, OSError):
                        yield str(name), TranscriptFile(layout.session_file(name))
        for copy in gone_sessions(layout):
            if copy.parent == str(self._name):
                yield copy.id, CopiedTranscript(copy)


def values_of(fmt: TranscriptFormat | None, line: bytes) -> Iterator[str]:
    """The texts of an entry, long or not."""
    entry = parse_kept(line)
    if fmt is not None and entry is not None:
        yield from (value.text for value in fmt.values(entry, 1) if value.text is not None)


def _needles(values: Collection[str]) -> Iterator[bytes]:
    """By what to know these texts: a row of theirs, as it is, and as JSON has it."""
    for value in islice(values, _MOST_LOOKED_FOR):
        row = max(value.splitlines(), key=len, default="").strip()
        if len(row) >= _LONG_ENOUGH:
            yield row.encode("utf-8", "surrogatepass")
            yield encode_string(row)[1:-1]
            yield json.dumps(row)[1:-1].encode()


def _says(content: bytes, needles: Collection[bytes]) -> bool:
    return any(needle in content for needle in needles)


# --- reading ---


def emptied(line: Line, fmt: TranscriptFormat, entry_id: str) -> bytes:
    """A line that says of its values only that they are forgotten, if it is of this entry."""
    if not _may_be(fmt, [entry_id])(line.raw) or (entry := parse_entry(line.raw)) is None:
        return line.raw
    info = fmt.info(entry)
    if info.id != entry_id or info.is_header:
        return line.raw
    new = line.raw
    for value in fmt.values(entry):
        with suppress(SpliceError):
            replaced = {value.path: value.shape.holding(_FORGOTTEN)}
            new = edit(new, replace=replaced, remove=value.removes)
    return new


def _ids_in(layout: Layout, name: SessionName, source: Transcript) -> Iterator[str]:
    """The ids of its first messages: copies of a session begin as it does."""
    fmt = format_of(source, program_of(layout, name.agent))
    ids_found = 0
    for line in islice(source.lines(), _LINES_LOOKED_AT):
        entry = parse_entry(line.raw)
        info = fmt.info(entry) if fmt and entry is not None else None
        if info and info.id and info.is_message and not info.is_header:
            yield info.id
            ids_found += 1
            if ids_found == _IDS_LOOKED_FOR:
                return


def _holds(source: Transcript, program: AgentProgram, entries: list[str]) -> bool:
    """Whether one of these is an entry of a session, and not only named there."""
    if (fmt := format_of(source, program)) is None:
        return False
    may_be = _may_be(fmt, entries)
    parsed = (parse_entry(line.raw) for line in source.lines() if may_be(line.raw))
    return any(entry is not None and fmt.info(entry).id in entries for entry in parsed)


def _may_be(fmt: TranscriptFormat, entries: list[str]) -> Callable[[bytes], bool]:
    """Tells lines that may be one of these entries from most that are none."""
    made_of = [pattern for entry in entries if (pattern := fmt.made_of(entry)) is not None]
    if made_of:
        return lambda raw: any(pattern.search(raw) for pattern in made_of)
    needles = [encode_string(entry) for entry in entries]
    return lambda raw: any(needle in raw for needle in needles)


def lines_of(source: Transcript, fmt: TranscriptFormat | None, entry: str) -> Iterator[bytes]:
    """The lines of a session that are of an entry."""
    if fmt is None:
        return
    may_be = _may_be(fmt, [entry])
    for raw in (line.raw for line in source.lines() if may_be(line.raw)):
        found = parse_entry(raw)
        if found is not None and fmt.info(found).id == entry:
            yield raw
