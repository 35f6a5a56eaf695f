"""Before a session goes: what branches of it still need is handed down into their own stores.

The copied lines of a branch name files of the session that it was branched off from (see
`store.ancestry`). A store that leaves its place would take the only copy along; so each branch,
in its place or in the trash, gets what its own markers name there, as old as it is; and what its
history names, or nobody could take back there what was done to an entry that was away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bsd.formats.marker import MARKER, Marker
from bsd.foundation.audit import AuditLog
from bsd.foundation.errors import BsdError, Busy, NotFound, Unavailable
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.lifecycle import catalog
from bsd.lifecycle.trashed import transcripts
from bsd.store.ancestry import archives, parent_of
from bsd.store.extracted import Keep, Missing, SessionStore
from bsd.store.history import named_files
from bsd.store.index import Record
from bsd.transcript.exchangers import Step, no_step
from bsd.transcript.lock import own_lock
from bsd.transcript.reader import TranscriptFile, parse_entry

_log = get_logger("trash")

_AT_ONCE = 16 * 1024 * 1024  # bytes held in memory


@dataclass(frozen=True, slots=True)
class _Kin:
    """A session in its place, put aside or in the trash, and the one its first line names."""

    name: SessionName
    parent: SessionName | None
    transcript: Path
    store: Path | None  # in the trash; None: where the stores of sessions lie
    history: Path


@dataclass(frozen=True, slots=True)
class _Legacy:
    """A line that a branch names, and which store has it."""

    marker: Marker
    index: int | None  # line number in the branch, 0-based; only its history names it
    store: SessionStore
    ref: str  # its name there


class Heirs:
    """Hands down. `wait` is in seconds, for another bsd that works on a branch."""

    def __init__(
        self,
        layout: Layout,
        wait: float,
        sleep: Callable[[float], None],
        actor: str,
        clock: Callable[[], float],
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._wait = wait
        self._sleep = sleep
        self._actor = actor
        self._audit = AuditLog(layout.audit_file, clock)
        self._after_step = after_step

    def provide(
        self,
        leaving: Collection[SessionName],
        locked: Collection[SessionName],
        *,
        at_once: bool = False,
    ) -> None:
        """Give their branches what would leave with these sessions; durable when this returns.

        The caller holds bsd's own lock of those that are `locked`; others are waited for, unless
        it is to be `at_once`. If it raises, nothing may leave: Busy if a branch is being worked
        on, Unavailable on a full disk, Forbidden.
        """
        for agent in sorted({name.agent for name in leaving}):
            needy = {kin.name for kin, legacies in self._needs(agent, leaving) if legacies}
            if not needy:
                continue
            with ExitStack() as locks:
                for name in sorted(needy - set(locked)):
                    wait = 0.0 if at_once else self._wait
                    locks.enter_context(own_lock(self._layout, name, wait, sleep=self._sleep))
                # Looked at anew: while it was waited for, a branch may have changed, or moved.
                for kin, legacies in self._needs(agent, leaving):
                    if kin.name in needy:
                        self._hand_down(kin, legacies)

    def _needs(
        self, agent: str, leaving: Collection[SessionName]
    ) -> Iterator[tuple[_Kin, list[_Legacy]]]:
        """The branches, and what each names, has not, and would find no longer."""
        family = _Family(self._layout, agent)
        for kin in family.members:
            if behind := family.stores_behind(kin, leaving):
                own = family.store_of(kin)
                stores = [store for store in behind if store.directory != own.directory]
                yield kin, list(_legacies(kin, own, stores)) if stores else []

    def _hand_down(self, kin: _Kin, legacies: list[_Legacy]) -> None:
        own = SessionStore(self._layout, kin.name, kin.store)
        files = amount = 0
        for portion in _portions(legacies):
            used: set[str] = set()
            keeps = []
            for legacy, line in portion:
                ref = own.free_ref(legacy.marker.ref, used)
                used.add(ref)
                keeps.append(_keep(legacy, ref, line))
            own.keep(keeps)
            self._after_step("handed_down")
            together = [(legacy, keep) for (legacy, _), keep in zip(portion, keeps, strict=True)]
            for legacy, keep in together:
                _make_as_old(own.file(keep.ref), legacy.store.file(legacy.ref))
            with suppress(Unavailable):  # a cache
                own.index.add(_records(together))
            self._after_step("indexed")
            files, amount = files + len(keeps), amount + sum(keep.size for keep in keeps)
        if files:
            self._tell(kin, files, amount)

    def _tell(self, kin: _Kin, files: int, amount: int) -> None:
        _log.info(f"hand_down: {kin.name}, files {files}", actor=self._actor, bytes=amount)
        try:
            self._audit.record(
                actor=self._actor,
                action="hand_down",
                agent=kin.name.agent,
                session_id=kin.name.session,
                files=files,
                bytes=amount,
            )
        except BsdError as error:  # what is done is done
            _log.error("The audit log cannot be written", error=error.message, action="hand_down")


class _Family:
    """All sessions of an agent, those put aside or in the trash too, and who began with whose."""

    def __init__(self, layout: Layout, agent: str) -> None:
        self._layout = layout
        self.members = list(_members(layout, agent))
        self._by_name: dict[SessionName, list[_Kin]] = {}
        for kin in self.members:
            self._by_name.setdefault(kin.name, []).append(kin)

    def store_of(self, kin: _Kin) -> SessionStore:
        return SessionStore(self._layout, kin.name, kin.store)

    def stores_behind(self, kin: _Kin, leaving: Collection[SessionName]) -> list[SessionStore]:
        """Those that are found only by way of a session that leaves."""
        names = self._names_behind(kin, leaving)
        if not names:
            return []
        found = [SessionStore(self._layout, name) for name in names]
        found += [
            self.store_of(other)
            for name in names
            for other in self._by_name.get(name, ())
            if other.store is not None
        ]
        return [store for store in found if store.directory.is_dir()]

    def _names_behind(self, kin: _Kin, leaving: Collection[SessionName]) -> list[SessionName]:
        behind = {kin.name} if kin.name in leaving else set()
        if kin.parent is None or kin.parent == kin.name:  # most are nobody's branch
            return sorted(behind)
        seen: set[tuple[SessionName, bool]] = set()
        way: list[tuple[SessionName | None, bool]] = [(kin.parent, False)]
        for name, past in way:  # it grows while it is walked
            if name is None:
                continue
            step = (name, past or name in leaving)
            if step not in seen:
                seen.add(step)
                way += [(other.parent, step[1]) for other in self._by_name.get(name, ())]
        return sorted(behind | {name for name, past in seen if past})


def _members(layout: Layout, agent: str) -> Iterator[_Kin]:
    try:
        directory = layout.sessions_dir(agent)
    except BsdError:  # it is gone, or leads elsewhere: bsd works on none of its sessions
        directory = None
    if directory is not None:
        for name in catalog.names(layout, agent):
            path = layout.transcript(name)
            yield _Kin(name, parent_of(agent, path), path, None, layout.history_dir(name))
    for name, path in archives(layout, agent):
        yield _Kin(name, parent_of(agent, path), path, None, layout.history_dir(name))
    for name, place in transcripts(layout):
        if name.agent == agent:
            parent = parent_of(agent, place.transcript)
            yield _Kin(name, parent, place.transcript, place.store, place.history)


def _legacies(kin: _Kin, own: SessionStore, stores: list[SessionStore]) -> Iterator[_Legacy]:
    for index, marker in _wanted(kin):
        if own.held(marker.ref, marker.hash) is None:
            for store in stores:
                if (ref := store.held(marker.ref, marker.hash)) is not None:
                    yield _Legacy(marker, index, store, ref)
                    break


def _wanted(kin: _Kin) -> list[tuple[int | None, Marker]]:
    """What its lines name, each file once, with their numbers, and what only its history names."""
    needle = f'"{MARKER}"'.encode()
    found: dict[tuple[str, str], tuple[int | None, Marker]] = {}
    try:
        with TranscriptFile(kin.transcript) as source:
            for line in source.lines():
                entry = parse_entry(line.raw) if needle in line.raw else None
                if entry is not None and (marker := Marker.of(entry)):
                    found.setdefault((marker.ref, marker.hash), (line.index, marker))
    except NotFound as error:
        raise Busy(f"{kin.transcript} has just been moved", hint="again in a moment") from error
    for named in named_files(kin.history):
        found.setdefault(named, (None, Marker(*named, size=0, keys=(), at="")))
    return list(found.values())


def _portions(legacies: list[_Legacy]) -> Iterator[list[tuple[_Legacy, bytes]]]:
    portion, size = [], 0
    for legacy in legacies:
        line = legacy.store.own(legacy.ref, legacy.marker.hash)
        if isinstance(line, Missing):
            continue  # its time was up since we looked
        portion.append((legacy, line))
        size += len(line)
        if size >= _AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _keep(legacy: _Legacy, ref: str, line: bytes) -> Keep:
    marker, kind = legacy.marker, ref.partition("_")[2].partition("-")[0]
    return Keep(ref, "", legacy.index or 0, kind, marker.hash, len(line), marker.keys, {}, line)


def _records(kept: Iterable[tuple[_Legacy, Keep]]) -> Iterator[Record]:
    """What the index says of them; `verify --repair` knows what to say if it said nothing there."""
    for legacy, keep in kept:
        if known := legacy.store.index.records.get(f"{legacy.ref}.json"):
            index = known.index if legacy.index is None else legacy.index
            yield replace(known, file=f"{keep.ref}.json", index=index)


def _make_as_old(file: Path, as_file: Path) -> None:
    """Age is what retention goes by; a crash before this leaves the file younger than it is."""
    with suppress(FileNotFoundError):
        was = as_file.stat()
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
