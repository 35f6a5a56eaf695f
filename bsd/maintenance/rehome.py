"""Before a store goes for good: what other sessions name in it is handed down to one of them.

Likewise what they name in a session's archive.

Programs copy lines into other sessions, markers included, and `store.index` finds what these
name in whatever store. One that leaves for good could take the only copy along; so a session that
names it, in its place, put aside, gone but copied, or in the trash, gets it into its own store, as
old as it is. And what histories name, or nobody could take back there what was done to an entry
that was away.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import (
    BsdError,
    Busy,
    ConfigError,
    LeftAlone,
    NotFound,
    Unavailable,
    os_problem,
)
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance import catalog
from bsd.maintenance.keeping import gone_sessions
from bsd.maintenance.trashed import transcripts
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive
from bsd.store.contents import StoredPlace, contents_of
from bsd.store.copies import CopiedTranscript, SessionCopy
from bsd.store.entry_notes import forgotten_in
from bsd.store.history import NAMED_FILE, named_files
from bsd.store.index import Record
from bsd.store.markers import NEEDLES, Markers, stored_line
from bsd.store.originals import Missing, SessionStore, StoredOriginal
from bsd.store.pack import Pack, PackDamaged
from bsd.transcripts.agents.entry import MARKER, Entry, Marker, entry_key, mentioned_ids
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import InBlocks, Line, TranscriptFile, parse_entry
from bsd.transcripts.splice import SpliceError, find

_log = structlog.stdlib.get_logger(module="trash")

_AT_ONCE = 16 * 1024 * 1024  # bytes held in memory


@dataclass(frozen=True, slots=True)
class Departing:
    """A session's store and archive that go for good, and the transcript that goes with them."""

    name: SessionName
    stores: tuple[Path, ...]
    transcript: Path


@dataclass(frozen=True, slots=True)
class _KeptSession:
    """A session in its place, put aside, gone or in the trash."""

    name: SessionName
    transcript: Path  # of one that is gone: where its copy lies
    store: Path | None  # in the trash; None: where the stores of sessions lie
    history: Path
    copy: SessionCopy | None = None  # of one that is gone

    def open(self) -> InBlocks:
        return CopiedTranscript(self.copy) if self.copy else TranscriptFile(self.transcript)


@dataclass(frozen=True, slots=True)
class _NeededLine:
    """A stored line that a session names, and that no store has but one that leaves."""

    marker: Marker
    index: int | None  # line number in the session, 0-based; None: only its history names it
    place: StoredPlace


class HandDown:
    """Hands down; `patience` is for sessions on which another bsd works."""

    def __init__(
        self,
        layout: Layout,
        budget: RetryBudget,
        actor: str,
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._budget = budget
        self._actor = actor
        self._audit = AuditLog(layout.audit_file, budget.clock)
        self._after_step = after_step
        self._contents = contents_of(layout)
        # Transcripts that name nothing at all, as they were: they are read once.
        self._silent: dict[Path, Identity] = {}

    def provide(
        self,
        leaving: Collection[Departing],
        locked: Collection[SessionName],
        *,
        at_once: bool = False,
    ) -> None:
        """Give other sessions what would leave with these; durable when this returns.

        The caller holds bsd's own lock of those that are `locked`; others are waited for, unless
        it is to be `at_once`. If it raises, nothing may leave: Busy if a session is being worked
        on, Unavailable on a full disk, Forbidden; either for what cannot be read, as others may
        need it.
        """
        self._contents.changed()  # what it knows shall be as it is now
        try:
            self._provide(leaving, locked, at_once=at_once)
        except OSError as error:
            where = error.filename or "what other sessions may need"
            raise os_problem(error, f"reading {where}") from error

    def _provide(
        self, leaving: Collection[Departing], locked: Collection[SessionName], *, at_once: bool
    ) -> None:
        going = self._going(leaving)
        damaged = self._damaged_among(leaving)
        needs = self._needs(leaving, going, damaged) if going or damaged else {}
        if not needs:
            return
        with ExitStack() as locks:
            for name in sorted({session.name for session in needs} - set(locked)):
                wait = 0.0 if at_once else self._budget.wait
                lock = own_lock(self._layout, name, wait, sleep=self._budget.sleep)
                locks.enter_context(lock)
            # Looked at anew: while it was waited for, a session may have changed, or moved.
            again = self._needs(leaving, going, damaged)
            if {one.name for one in again} - {one.name for one in needs}:
                raise Busy("sessions that need what would go have just changed", hint="again later")
            for session, needed in again.items():
                self._rehome_references(session, needed)

    def _going(self, leaving: Collection[Departing]) -> dict[str, StoredPlace]:
        """What lies in these stores and, whole, in no other: by hash."""
        stores = {store for one in leaving for store in one.stores}
        going = {place.hash: place for store in stores for place in self._contents.of_store(store)}
        return {
            hash_: place
            for hash_, place in going.items()
            if not any(
                other.directory not in stores and other.line() is not None
                for other in self._contents.with_hash(hash_)
            )
        }

    def _damaged_among(self, leaving: Collection[Departing]) -> PackDamaged | None:
        """Return what is wrong with a pack that leaves, if its index is damaged.

        Then not all that it holds is known. Raises OSError, BsdError for what cannot be read.
        """
        found = None
        for store in [store for one in leaving for store in one.stores]:
            if problem := self._contents.unread_in(store):
                raise problem
            for path in SessionArchive(store).packs():
                try:
                    with Pack(path) as pack:
                        pack.check_index()
                except FileNotFoundError:
                    continue  # merged since we looked
                except OSError as error:
                    raise os_problem(error, f"reading the pack {path}") from error
                except PackDamaged as damaged:
                    found = found or damaged
        return found

    def _needs(
        self,
        leaving: Collection[Departing],
        going: Mapping[str, StoredPlace],
        damaged: PackDamaged | None,
    ) -> dict[_KeptSession, list[_NeededLine]]:
        """Which sessions name something of that, each thing once.

        Raises Unavailable if one names what may lie in the `damaged` pack, and lies nowhere else.
        """
        left, needs = dict(going), {}
        entries: dict[int, list[StoredPlace]] = defaultdict(list)
        for each in going.values():
            entries[each.entry].append(each)
        transcripts_leaving = {one.transcript for one in leaving}
        stores_leaving = {store for one in leaving for store in one.stores}
        for session in self._sessions():
            if not left and damaged is None:
                break
            gone_with_them = session.copy and session.copy.directory.parent in stores_leaving
            if gone_with_them or session.transcript in transcripts_leaving:
                continue
            unwanted = forgotten_in(session.history)
            named = self._named(session, left, entries, every=damaged is not None)
            if damaged is not None:
                hashes = {marker.hash for _, marker in named} - unwanted - going.keys()
                self._refuse_missing(session, hashes, damaged)
            needed = [
                _NeededLine(marker, index, place)
                for index, marker in named
                if marker.hash not in unwanted
                and (place := left.pop(marker.hash, None)) is not None
            ]
            if needed:
                needs[session] = needed
        return needs

    def _refuse_missing(
        self, session: _KeptSession, hashes: Iterable[str], damaged: PackDamaged
    ) -> None:
        """Raise Unavailable if one of these can be read nowhere: the damaged pack may hold it."""
        for hash_ in hashes:
            if not any(place.line() is not None for place in self._contents.with_hash(hash_)):
                hint = "`bsd verify --repair` mends what can be mended; if it lies in the trash, "
                hint += "bring its session back before"
                problem = f"the pack {damaged}; {session.name} may need what it holds"
                raise Unavailable(problem, hint=hint) from damaged

    def _sessions(self) -> Iterator[_KeptSession]:
        """All sessions of the root: those in their place first, those in the trash last."""
        layout = self._layout
        for _, problem in catalog.unreadable(layout):
            raise problem
        for agent in self._agents():
            for name in catalog.names(layout, agent):
                yield _KeptSession(name, layout.transcript(name), None, layout.history_dir(name))
            for name, path in catalog.renamed_by_program(layout, agent):
                yield _KeptSession(name, path, None, layout.history_dir(name))
        for copy in gone_sessions(layout, strictly=True):
            history = layout.history_dir(copy.name)
            yield _KeptSession(copy.name, copy.directory, None, history, copy)
        for name, place in transcripts(layout):
            yield _KeptSession(name, place.transcript, place.store, place.history)

    def _agents(self) -> list[str]:
        """All agents but those that lead elsewhere: bsd works on none of their sessions."""
        found = []
        with suppress(ConfigError):  # a root without agents
            for agent in catalog.agents(self._layout):
                with suppress(BsdError):
                    self._layout.sessions_dir(agent.name)
                    found.append(agent.name)
        return found

    def _named(
        self,
        session: _KeptSession,
        hashes: Container[str],
        entries: Mapping[int, Collection[StoredPlace]],
        *,
        every: bool,
    ) -> list[tuple[int | None, Marker]]:
        """What of these its lines name, with their numbers, and what only its history names.

        `every`: all that its lines name.
        """
        kept = (Marker(*named, size=0, keys=(), at="") for named in named_files(session.history))
        lines = self._in_lines(session, hashes, entries, every=every)
        return [*lines, *((None, marker) for marker in kept)]

    def _in_lines(
        self,
        session: _KeptSession,
        hashes: Container[str],
        entries: Mapping[int, Collection[StoredPlace]],
        *,
        every: bool,
    ) -> list[tuple[int, Marker]]:
        def may_name(raw: bytes) -> bool:
            named = every or any(match[2].decode() in hashes for match in NAMED_FILE.finditer(raw))
            if NEEDLES[0] in raw:  # what a marker does not name is nobody's but in odd sessions
                return named
            mentioned = {key for one in _mentioned(raw) if (key := entry_key(one)) in entries}
            for place in (place for key in mentioned for place in entries[key]):
                place.readable_line()  # or nothing tells whether the placeholder stands for it
            return named or bool(mentioned)

        try:
            with session.open() as source:
                if self._silent.get(session.transcript) == source.identity:
                    return []
                lines = [one for one in source.lines() if any(map(one.raw.__contains__, NEEDLES))]
                if not lines:
                    self._silent[session.transcript] = source.identity
                lines = [line for line in lines if may_name(line.raw)]
                return list(self._read(session, source, lines)) if lines else []
        except NotFound as error:
            problem = f"{session.transcript} has just been moved"
            raise Busy(problem, hint="again in a moment") from error
        except LeftAlone as error:
            problem = f"{session.transcript}: {error.message}, and it may need what would go"
            raise LeftAlone(problem, hint="mend that file, or move it away") from error

    def _read(
        self, session: _KeptSession, source: InBlocks, lines: Iterable[Line]
    ) -> Iterator[tuple[int, Marker]]:
        fmt = format_of(source, program_of(self._layout, session.name.agent))
        store = SessionStore(self._layout, session.name, session.store)
        for line in lines:
            entry = parse_entry(line.raw) or _marker_alone(line.raw)
            if entry is None:
                continue
            if fmt is None:
                named = [marker] if (marker := Marker.of(entry)) else []
            else:
                found = Markers(source, fmt, store).of(entry, fmt.info(entry), line.index)
                # A line with a copied marker gets nothing: it is another entry.
                named = [
                    one
                    for one in found
                    if stored_line(line.raw, entry, one, fmt, store) is not Missing.FOREIGN
                ]
            yield from ((line.index, marker) for marker in named)

    def _rehome_references(self, session: _KeptSession, needed: list[_NeededLine]) -> None:
        own = SessionStore(self._layout, session.name, session.store)
        files = amount = 0
        for portion in _portions(needed):
            used: set[str] = set()
            keeps = []
            for one, line in portion:
                ref = own.free_ref(one.marker.ref, used)
                used.add(ref)
                keeps.append(_keep(one, ref, line))
            own.add(keeps)
            self._after_step("handed_down")
            together = [(one, keep) for (one, _), keep in zip(portion, keeps, strict=True)]
            for one, keep in together:
                _make_as_old(own.file(keep.ref), one.place.file)
            with suppress(Unavailable):  # a cache
                own.index.add(self._records(together))
            self._after_step("indexed")
            files, amount = files + len(keeps), amount + sum(keep.size for keep in keeps)
        if files:
            self._tell(session, files, amount)

    def _records(self, kept: Iterable[tuple[_NeededLine, StoredOriginal]]) -> Iterator[Record]:
        """What the index says of them; `verify --repair` knows what to say if it said nothing."""
        for one, keep in kept:
            if one.place.pack:
                known = one.place.record()
            else:  # whose store it was matters to nobody: an index is read by its path
                store = SessionStore(self._layout, SessionName("store", "any"), one.place.directory)
                known = store.index.records.get(f"{one.place.ref}.json")
            if known:
                index = known.index if one.index is None else one.index
                yield replace(known, file=f"{keep.ref}.json", index=index)

    def _tell(self, session: _KeptSession, files: int, amount: int) -> None:
        _log.info(f"hand_down: {session.name}, files {files}", actor=self._actor, bytes=amount)
        self._audit.record(
            actor=self._actor,
            action="hand_down",
            agent=session.name.agent,
            session_id=session.name.session,
            files=files,
            bytes=amount,
        )


def _mentioned(raw: bytes) -> list[str]:
    return mentioned_ids(raw.decode("utf-8", "replace"))


def _marker_alone(raw: bytes) -> Entry | None:
    """Of a line that is too large to be parsed, what says where its original is."""
    with suppress(SpliceError):
        span = find(raw, [(MARKER,)])[(MARKER,)]
        return parse_entry(b'{"%b":%b}' % (MARKER.encode(), raw[slice(*span)]))
    return None


def _portions(needed: list[_NeededLine]) -> Iterator[list[tuple[_NeededLine, bytes]]]:
    portion, size = [], 0
    for one in needed:
        line = one.place.readable_line()
        if line is None:
            continue  # its time was up since we looked
        portion.append((one, line))
        size += len(line)
        if size >= _AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _keep(one: _NeededLine, ref: str, line: bytes) -> StoredOriginal:
    marker, kind = one.marker, ref.partition("_")[2].partition("-")[0]
    return StoredOriginal(
        ref, "", one.index or 0, kind, marker.hash, len(line), marker.keys, (), line
    )


def _make_as_old(file: Path, as_file: Path) -> None:
    """Age is what retention goes by; a crash before this leaves the file younger than it is."""
    with suppress(FileNotFoundError):
        was = as_file.stat()
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
