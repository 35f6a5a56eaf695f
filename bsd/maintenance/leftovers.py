"""Stores without a transcript, and late bytes without a place in their session.

Programs delete, compress, rename and move transcripts. The extracted values of such a session stay
in the store until `retention` ends, which is not a fault; the user is told where the transcript may
be. Late bytes are compared with their session, which may already contain them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bsd.core import files
from bsd.core.errors import BsdError, NotFound, os_problem
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.trashed import transcripts
from bsd.sessions.commit.late import Orphan
from bsd.store.contents import Contents, contents_of
from bsd.store.originals import SessionStore
from bsd.store.snapshots import snapshots_of
from bsd.transcripts.agents.entry import first_entries
from bsd.transcripts.agents.opening import database_with, open_file, open_transcript
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import TranscriptFile

_STORED = re.compile(r"[0-9]{4,}_.+\.json")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StoreWithoutTranscript:
    """A store that has content but belongs to a session without a transcript."""

    directory: Path
    session: SessionName | None  # None: the directory's name holds only a shortened name
    files: int
    size: int  # bytes
    where: tuple[str, ...]  # where the transcript may be, the most likely place first
    beside: bool = False  # its program keeps the file under a longer name

    @property
    def message(self) -> str:
        """The description for the user, a single sentence."""
        stored = "1 stored file" if self.files == 1 else f"{self.files} stored files"
        where = "; ".join(self.where) or "its program or a user has deleted it"
        return f"{stored} ({self.size:,} bytes) of a session without a transcript: {where}"

    @property
    def hint(self) -> str:
        """The advice for the user: usually that no action is needed."""
        if self.beside:
            return (
                "no action needed, unless you miss the session: its program can bring the file back"
            )
        what = f"`bsd delete {self.session} --permanent`" if self.session else "deleting it"
        return f"no action needed: `retention` decides how long it is kept; {what} removes it now"


def stores_without_transcript(layout: Layout) -> Iterator[StoreWithoutTranscript]:
    """Yield all stores without a transcript.

    If there is such a store, the first lines of other sessions are read to find its conversation.
    """
    places = _KnownSessions(layout)
    for store in _directories(layout.extracted):
        if store in places.stores or not (sizes := _stored(layout.extracted / store)):
            continue
        name = layout.session_of_store(store)
        with suppress(BsdError):  # `catalog.unreadable` reports the problem
            if name is not None and is_there(layout, name):
                continue
        size = sum(sizes)
        where = tuple(places.of(name)) if name else ()
        if name and snapshots_of(layout, name):
            where = (f"the archive has a copy: `bsd archive bring-back {name}`", *where)
        beside = name is not None and bool(kept_beside(layout, name))
        yield StoreWithoutTranscript(
            layout.extracted / store, name, len(sizes), size, where, beside
        )


def kept_beside(layout: Layout, name: SessionName, *, strictly: bool = False) -> list[Path]:
    """Return files whose names begin with that of the session's file: compressed, renamed, backups.

    `strictly`: raise OSError if a directory cannot be read.
    """
    found: list[Path] = []
    absent = (FileNotFoundError, NotADirectoryError)
    with suppress(BsdError):
        for directory in (layout.sessions_dir(name.agent), *layout.archived_dirs()):
            with suppress(*(absent if strictly else (OSError,))):
                beginning = f"{name.session}{ENDING}."
                found += (
                    directory / file
                    for file in sorted(os.listdir(directory))
                    if file.startswith(beginning)
                )
    return found


def drafts_of(layout: Layout, name: SessionName) -> list[Path]:
    """Return the drafts of edits to sessions of this name that could not be applied."""
    mine = re.compile(re.escape(name.session[:100]) + r"-[a-z0-9_]{8}")
    with suppress(OSError, BsdError):
        edits = layout.refuse_outside(layout.edits)
        return [edits / each for each in sorted(os.listdir(edits)) if mine.fullmatch(each)]
    return []


def _directories(path: Path) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stored(store: Path) -> list[int]:
    """Return the sizes of the files in a store."""
    sizes = []
    with os.scandir(store) as found:
        for file in found:
            with suppress(FileNotFoundError):
                if _STORED.fullmatch(file.name):
                    sizes.append(file.stat(follow_symlinks=False).st_size)
    return sizes


def is_there(layout: Layout, name: SessionName) -> bool:
    """Return True if a file of any kind is at the transcript's place.

    Raises BsdError if that cannot be determined, because callers delete content if it is False.
    """
    try:
        return database_with(layout, name) is not None or files.is_there(layout.transcript(name))
    except NotFound:  # no source has such an agent
        return False
    except OSError as error:
        raise os_problem(error, f"looking for session {name} at {error.filename}") from error


class _KnownSessions:
    """The places of sessions; each look-up table is made on first use."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @cached_property
    def _names(self) -> list[SessionName]:
        return list(catalog.names(self._layout))

    @cached_property
    def stores(self) -> set[str]:
        """The names of the stores of all sessions that have a transcript."""
        return {self._layout.store_name(name) for name in self._names}

    @cached_property
    def _by_file(self) -> dict[str, list[SessionName]]:
        return _grouped((name.session, name) for name in self._names)

    @cached_property
    def _by_conversation(self) -> dict[str, list[SessionName]]:
        return _grouped((id_, name) for name in self._names for id_ in self._ids_in(name))

    @cached_property
    def _trashed(self) -> set[SessionName]:
        return {name for name, _ in transcripts(self._layout)}

    def of(self, name: SessionName) -> Iterator[str]:
        """Yield sentences that say where the transcript of `name` may be."""
        if name in self._trashed:
            yield "it is in the trash (`bsd trash list`)"
        if aside := kept_beside(self._layout, name):
            yield f"its program keeps it as {_listed(map(str, aside))}"
        same = self._by_file.get(name.session, [])
        if same:
            yield f"a session of the same name is {_listed(map(str, same))}"
        ids = {*self._ids_of(name), *_UUID.findall(name.session)}
        kin = {other for id_ in ids for other in self._by_conversation.get(id_, ())}
        if kin := kin - {*same, name}:
            yield f"the same conversation continues in {_listed(map(str, sorted(kin)))}"
        yield from self._agent_of(name)

    def _agent_of(self, name: SessionName) -> Iterator[str]:
        """Yield reasons why the directory of an agent may have no transcript."""
        try:
            directory = self._layout.sessions_dir(name.agent)
            if database := program_of(self._layout, name.agent).database():
                yield f"the sessions of {name.agent} are in {database.path} now"
            os.scandir(directory).close()
        except (FileNotFoundError, NotADirectoryError):
            if ":" in name.agent and self._layout.source_of(name.agent) is None:
                source = name.agent.partition(":")[0]
                yield f"no source is named {source} in the present settings"
            else:
                yield f"its directory {directory} is gone"
        except OSError as error:
            yield f"{directory} cannot be read: {error.strerror}"
        except BsdError as error:
            yield error.message

    def _ids_of(self, name: SessionName) -> tuple[str, ...]:
        """Return the ids under which its program may know the session."""
        with suppress(BsdError):
            return program_of(self._layout, name.agent).ids_in(name.session)
        return (name.session,)

    def _ids_in(self, name: SessionName) -> set[str]:
        """Return the ids of the conversations that a session is or comes from, by its entries."""
        with suppress(BsdError, OSError), open_transcript(self._layout, name) as source:
            entries = first_entries(line.raw for line in source.lines())
            named = map(program_of(self._layout, name.agent).conversations, entries)
            return next(filter(None, named), set())
        return set()


def _grouped(pairs: Iterator[tuple[str, SessionName]]) -> dict[str, list[SessionName]]:
    found: dict[str, list[SessionName]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found


def _listed(names: Iterator[str]) -> str:
    every = list(names)
    return ", ".join(every[:_SHOWN]) + (f" and {len(every) - _SHOWN} more" * (len(every) > _SHOWN))


def adds_nothing(layout: Layout, orphan: Orphan) -> bool:
    """Return True if the session or its store has all content of an orphan.

    Zero bytes, which a power cut leaves, are ignored. An incomplete last line counts as present if
    a line of the session or of its store begins with it.
    """
    try:
        name = SessionName.parse(orphan.session)
        session = layout.session_file(name)
        lines, begun = _said(orphan.file)
        left = lines - _standing(session, lines)
        stored = contents_of(layout)
        return all(_is_stored(stored, line) for line in left) and (
            not begun or _begins_one(begun, session, SessionStore(layout, name))
        )
    except BsdError:  # the session does not exist, or one of the files cannot be read
        return False


def _said(file: Path) -> tuple[Counter[bytes], bytes]:
    """Return the hashes of a file's complete lines, and its incomplete last line."""
    lines: Counter[bytes] = Counter()
    try:
        with TranscriptFile(file) as source:
            for line in source.lines():
                if not line.raw.endswith(b"\n"):
                    return lines, line.raw.strip(b"\0")
                if said := line.raw.strip(b"\0"):
                    lines[hashlib.sha256(said).digest()] += 1
    except NotFound:  # removed meanwhile
        pass
    return lines, b""


def _standing(session: Path, wanted: Counter[bytes]) -> Counter[bytes]:
    """Count how often each of these lines occurs in the session."""
    found: Counter[bytes] = Counter()
    with open_file(session) as source:
        for line in source.lines():
            if (hashed := hashlib.sha256(line.raw).digest()) in wanted:
                found[hashed] += 1
    return found


def _is_stored(stored: Contents, line: bytes) -> bool:
    """Return True if a store has the complete original line with this hash."""
    return any(place.line() is not None for place in stored.with_hash(f"sha256:{line.hex()}"))


def _begins_one(begun: bytes, session: Path, store: SessionStore) -> bool:
    with open_file(session) as source:
        if any(line.raw.startswith(begun) for line in source.lines()):
            return True
    return any((store.read(ref) or b"").startswith(begun) for ref in store.refs())
