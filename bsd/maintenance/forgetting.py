"""Forgets a session, or one entry of it, for good: in store, archive, history, trash and index.

What other sessions need of it is handed down to them before, and they are named: nothing is taken
import structlog
from anybody else. Nothing goes before what takes its place is durable. What is being forgotten is
noted before, without a word of it: `forget_on` finishes what somebody began who was killed, and
takes nothing that has come since. Steps, as `after_step` hears of them: noted, handed, history,
store, archive, beside, index, ended.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy, NotFound, Unavailable, os_problem
from bsd.core.files import sync_dir
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.bring_back import clear_returning
from bsd.maintenance.keepers import Begun, Keepers, begun, emptied, lines_of, values_of
from bsd.maintenance.keeping import open_or_copy
from bsd.maintenance.leftovers import drafts_of, is_there
from bsd.maintenance.rehome import Departing, HandDown
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import forget_orphan, list_orphans
from bsd.sessions.idle import IdlePolicy, RetryBudget
from bsd.sessions.session import format_of
from bsd.store.archive import SessionArchive
from bsd.store.contents import contents_of
from bsd.store.copies import (
    CopiedTranscript,
    NewParts,
    SessionCopy,
    copies_in,
    copies_of,
    copy_directories,
    copy_directory,
    forget_copy,
    parts_of,
    read_copy,
    tidy_copy,
    write_copy,
)
from bsd.store.entry_notes import FORGOTTEN, note_forgotten
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.store.pack import Pack, PackDamaged, PackWriter
from bsd.store.search import ask, forget_sessions
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Transcript

_log = structlog.stdlib.get_logger(module="archive")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is known no more. Sizes are bytes."""

    session: str
    entry: str | None
    files: int
    bytes: int
    kept_by: Annotated[
        list[str], Field(description="Sessions that still keep it: copies, forks, children")
    ]
    in_transcript: Annotated[
        bool, Field(description="Whether the session is in its place, and may still say it")
    ]
    said_in: Annotated[
        list[str],
        Field(description="What belongs to the session and says the same, of an entry's texts"),
    ] = field(default_factory=list)


class Forgetting:
    """Forgets for one actor; `trash_keep` is the setting `trash_retention`."""

    def __init__(
        self,
        layout: Layout,
        *,
        trash_keep: str = "never",
        actor: str = "cli",
        budget: RetryBudget | None = None,
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._trash_keep = trash_keep
        self._actor = actor
        self._budget = budget or RetryBudget()
        self._after_step = after_step
        self._idle_policy = IdlePolicy(layout, self._budget, InFlight(layout))
        self._files = self._bytes = 0

    # --- a whole session ---

    def session(self, name: SessionName, copy: SessionCopy | None = None) -> Forgotten:
        """Forget all that is kept of a session, or only one `copy` of those called so.

        Its transcript, if it is in its place, stays. Raises NotFound if nothing is kept, Busy,
        Unavailable.
        """
        layout = self._layout
        self._files = self._bytes = 0
        self._refuse_unknown(name)
        others = [each for each in copies_of(layout, name) if copy and each.origin != copy.origin]
        alone = copy is None or not (others or is_there(self._layout, name))
        begun = Begun.now(layout, name, self._budget.clock())
        kept_by: list[str] = []
        with self._until_done(begun):
            with self._locked(name):
                if not alone and copy is not None:
                    replace(begun, origin=copy.origin).write()
                    self._forget_copy(name, copy.directory)
                else:
                    self._idle_policy.blank([name])
                    kept_by = Keepers(layout, name).of_copy(copy, layout.transcript(name))
                    begun = replace(begun, hashes=self._hashes_of(name))
                    with suppress(Unavailable):  # a full disk: what goes needs no room
                        begun.write()
                    kept_by += self._forget_all(begun)
            if copy is None:
                self._empty_trash_of(name)
        if not self._files:
            raise NotFound(f"nothing is kept of {name}", hint="`bsd archive list`")
        return self._told(name, None, list(dict.fromkeys(kept_by)))

    def _forget_all(self, begun: Begun, before: float | None = None) -> list[str]:
        """Who else keeps it; what came after `before` (epoch seconds) stays."""
        layout, name = self._layout, begun.session
        # Before the files, by which the next call knows that there is something to do; and after
        # them, as somebody may have read them meanwhile.
        forget_sessions(layout.search_db, [name])
        stores = (layout.store_dir(name), layout.archive_dir(name))
        leaving = Departing(name, stores, layout.transcript(name))
        HandDown(layout, self._budget, self._actor).provide([leaving], [name])
        self._after_step("handed")
        kept_by = Keepers(layout, name).who_has(_digests(begun.hashes))
        history = layout.history_dir(name)
        stays = is_there(self._layout, name)
        self._clear(history, before, but=(FORGOTTEN,) if stays else ())
        self._after_step("history")
        for step, directory in zip(("store", "archive"), stores, strict=True):
            self._clear(directory, before)
            self._after_step(step)
        if stays and begun.hashes:  # now there is room for it
            note_forgotten(history, name, begun.hashes)
        contents_of(layout).changed()
        for directory in drafts_of(layout, name):
            self._clear(directory, before)
        for orphan in list_orphans(layout):
            late = before is not None and orphan.found_at_ns / 1e9 > before
            if orphan.session == str(name) and not late:
                self._files, self._bytes = self._files + 1, self._bytes + orphan.size
                forget_orphan(orphan)
        clear_returning(layout, name)
        self._after_step("beside")
        forget_sessions(layout.search_db, [name])
        self._after_step("index")
        return kept_by

    def _forget_copy(self, name: SessionName, directory: Path) -> None:
        """Take one copy, of which something may have gone already."""
        forget_sessions(self._layout.search_db, [name])
        self._take(directory)
        with suppress(FileNotFoundError):
            forget_copy(directory)
        self._after_step("beside")
        forget_sessions(self._layout.search_db, [name])
        self._after_step("index")

    def _empty_trash_of(self, name: SessionName, before: float | None = None) -> None:
        """What of it lies in the trash, which locks it itself."""
        trash = Trash(self._layout, self._trash_keep, actor=self._actor, budget=self._budget)
        store = self._layout.store_name(name)
        for each in ids(self._layout):
            place = TrashPlace(self._layout.trash_dir(), each)
            if each.rpartition("_")[0] != store or (before and place.trashed_at > before):
                continue
            with suppress(NotFound):
                item = trash.remove(each)
                self._files += 1 + item.extracted_files
                self._bytes += item.size + item.extracted_bytes

    # --- one entry ---

    def entry(self, name: SessionName, entry: str) -> Forgotten:
        """Forget what is kept of one entry. Raises NotFound, Busy, Unavailable."""
        layout = self._layout
        self._files = self._bytes = 0
        self._refuse_unknown(name)
        begun = Begun.now(layout, name, self._budget.clock(), entry)
        keepers = Keepers(layout, name)
        with self._until_done(begun), self._locked(name):
            hashes = self._hashes_of(name, entry)
            self._refuse_unread(name)
            _refuse_damaged(layout.archive_dir(name), _digests(hashes))
            said_in = keepers.beside(self._texts(name, entry, hashes))
            self._idle_policy.blank([name])
            begun = replace(begun, hashes=hashes)
            begun.write()
            forgotten = self._forget_entry(begun)
            kept_by = sorted({*keepers.who_has(_digests(hashes)), *keepers.who_says([entry])})
        if not (self._files or forgotten):
            raise NotFound(f"nothing is kept of entry {entry} of {name}", hint=f"`bsd show {name}`")
        return replace(self._told(name, entry, kept_by), said_in=said_in)

    def _forget_entry(self, begun: Begun, before: float | None = None) -> int:
        """How many lines of history and copies said it; what came after `before` stays."""
        layout, name, entry = self._layout, begun.session, str(begun.entry)
        if begun.hashes:
            note_forgotten(layout.history_dir(name), name, begun.hashes)
        forgotten = History(layout, name).forget(entry)
        self._after_step("history")
        self._forget_stored(name, entry, before)
        self._after_step("store")
        self._forget_packed(layout.archive_dir(name), _digests(begun.hashes), before)
        for copy in copies_in(layout.archive_dir(name), strictly=True):
            forgotten += _forget_in_copy(layout, copy, entry, self._budget.clock())
        self._after_step("archive")
        contents_of(layout).changed()
        clear_returning(layout, name)
        forget_sessions(layout.search_db, [name])  # it is read again, as it is now
        self._after_step("index")
        return forgotten

    def _refuse_unread(self, name: SessionName) -> None:
        """Raise, before anything goes, if something kept of the session cannot be read.

        It may hold the entry, and the answer would say that nothing is kept of that.
        """
        layout = self._layout
        for directory in (layout.store_dir(name), layout.archive_dir(name)):
            if problem := contents_of(layout).unread_in(directory):
                raise problem
        for directory in copy_directories(layout.archive_dir(name)):
            read_copy(directory)

    def _hashes_of(self, name: SessionName, entry: str | None = None) -> frozenset[str]:
        """Those of all lines that store and archive of the session keep, or of an entry's."""
        layout = self._layout
        contents = contents_of(layout)
        contents.changed()
        own = (layout.store_dir(name), layout.archive_dir(name))
        if entry is None:
            places = [place for directory in own for place in contents.of_store(directory)]
        else:
            places = [each for each in contents.of_entry(entry) if each.directory in own]
        return frozenset(place.hash for place in places)

    def _texts(self, name: SessionName, entry: str, hashes: Collection[str]) -> set[str]:
        """What an entry says, or said, as far as it can be read."""
        layout = self._layout
        with suppress(BsdError, OSError), open_or_copy(layout, name) as source:
            fmt = format_of(source, program_of(layout, name.agent))
            lines = list(lines_of(source, fmt, entry))
            for hash_ in hashes:
                places = contents_of(layout).with_hash(hash_)
                lines += islice(filter(None, (place.line() for place in places)), 1)
            return {text for line in lines for text in values_of(fmt, line)}
        return set()

    def _forget_stored(self, name: SessionName, entry: str, before: float | None) -> None:
        store = SessionStore(self._layout, name)
        refs = {
            place.ref
            for place in contents_of(self._layout).of_entry(entry)
            if place.directory == store.directory
            and not place.pack
            and not _is_later(place.file, before)
        }
        for ref in sorted(refs):
            self._take(store.file(ref))
            store.file(ref).unlink(missing_ok=True)
        if refs:
            sync_dir(store.directory)
            store.index.replace(
                [one for one in store.index.records.values() if one.ref not in refs]
            )

    def _forget_packed(self, archive: Path, hashes: set[bytes], before: float | None) -> None:
        """Write packs anew without these lines; the old one goes when the new one is durable.

        Damaged packs that were set aside go whole: they may say it, and packs have their lines.
        """
        for path in SessionArchive(archive).set_aside():
            if not _is_later(path, before):
                self._take(path)
                path.unlink(missing_ok=True)
        for path in SessionArchive(archive).packs():
            with Pack(path) as pack:
                if hashes.isdisjoint(place.hash for place in pack.places()):
                    continue
                if before is not None and pack.summary.newest > before:
                    continue
                new = None
                with PackWriter(archive) as writer:
                    for one in pack:
                        if one.hash in hashes:
                            self._files, self._bytes = self._files + 1, self._bytes + len(one.line)
                        else:
                            writer.add(one.line, one.record)
                    if writer.lines:
                        new = writer.finish(pack.summary.oldest, pack.summary.newest)
                        self._after_step("packed")
            if new != path:
                path.unlink()
            sync_dir(archive)

    # --- gone on from ---

    def go_on(self, begun: Begun) -> None:
        """Finish what somebody began who was killed; raises Busy, Unavailable, Forbidden."""
        self._files = self._bytes = 0
        name = begun.session
        with self._locked(name):
            if not begun.path.exists():
                return  # whoever began it has ended it until just now
            if begun.origin is not None:
                directory = copy_directory(self._layout, name, begun.origin)
                copy = _whole_copy(directory)
                if copy is None or copy.kept_at <= begun.at:
                    self._forget_copy(name, directory)
            else:
                self._idle_policy.blank([name])
                go_on = self._forget_all if begun.entry is None else self._forget_entry
                go_on(begun, begun.at)
        if begun.entry is None and begun.origin is None:
            self._empty_trash_of(name, begun.at)
        begun.end()
        self._told(name, begun.entry, [])

    @contextmanager
    def _until_done(self, begun: Begun) -> Iterator[None]:
        """The note of it goes when all is done, or nothing was; whoever is killed leaves it."""
        try:
            yield
        except (BsdError, OSError):
            if not self._files:
                begun.end()
            raise
        begun.end()
        self._after_step("ended")

    # --- all of them ---

    def _refuse_unknown(self, name: SessionName) -> None:
        """Raise NotFound, before anything is locked, unless something may be kept of it."""
        layout, store = self._layout, self._layout.store_name(name)
        places = (layout.store_dir(name), layout.archive_dir(name))
        history = layout.history_dir(name)
        remembered = history.is_dir() and any(each != FORGOTTEN for each in os.listdir(history))
        trashed = any(each.rpartition("_")[0] == store for each in ids(layout))
        orphaned = any(orphan.session == str(name) for orphan in list_orphans(layout))
        kept = (
            remembered
            or trashed
            or orphaned
            or drafts_of(layout, name)
            or any(map(Path.exists, places))
        )
        if not (kept or ask(layout.search_db, lambda index: index.known_as(name), None)):
            raise NotFound(f"nothing is kept of {name}", hint="`bsd archive list`")

    def _locked(self, name: SessionName) -> ExitStack:
        budget, stack = self._budget, ExitStack()
        stack.enter_context(own_lock(self._layout, name, budget.wait, sleep=budget.sleep))
        stack.enter_context(_explained(f"forgetting {name}"))
        return stack

    def _clear(self, directory: Path, before: float | None, but: Collection[str] = ()) -> None:
        """Remove what a directory holds, and itself; what came after `before` stays."""
        if not directory.is_dir():
            return
        if before is None and not but:
            self._take(directory)
            shutil.rmtree(directory)
        else:
            for path in sorted(_all_below(directory), reverse=True):
                if path.is_dir() and not path.is_symlink():
                    _remove_empty(path)
                elif path.name not in but and not _is_later(path, before):
                    self._take(path)
                    path.unlink(missing_ok=True)
            _remove_empty(directory)
        sync_dir(directory.parent)

    def _take(self, path: Path) -> None:
        """Count what goes."""
        files = path.rglob("*") if path.is_dir() else [path]
        for file in files:
            with suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    self._files, self._bytes = self._files + 1, self._bytes + file.stat().st_size

    def _told(self, name: SessionName, entry: str | None, kept_by: list[str]) -> Forgotten:
        _log.info(f"archive_forget: {name}, files {self._files}", actor=self._actor, entry=entry)
        more = {} if entry is None else {"entry": entry}
        AuditLog(self._layout.audit_file, self._budget.clock).record(
            actor=self._actor,
            action="archive_forget",
            agent=name.agent,
            session_id=name.session,
            files_removed=self._files,
            bytes_removed=self._bytes,
            **more,
        )
        stays = is_there(self._layout, name)
        return Forgotten(str(name), entry, self._files, self._bytes, kept_by, stays)


def forget_on(layout: Layout, *, actor: str, budget: RetryBudget | None = None) -> int:
    """Finish what others began to forget and were killed; what is busy waits for later.

    Returns how many of them cannot be finished; the log says why.
    """
    failed = 0
    budget = replace(budget or RetryBudget(), wait=0.0)
    for each in begun(layout, actor):
        try:
            Forgetting(layout, actor=actor, budget=budget).go_on(each)
            _log.info(f"What was begun has been forgotten of {each.session}", entry=each.entry)
        except Busy as busy:
            _log.debug("Forgetting waits", session=str(each.session), why=busy.message)
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"forgetting {each.session}").message
            _log.warning("Forgetting cannot be finished", problem=problem)
            failed += 1
    return failed


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Say of an OSError, and of a damaged pack, what was being done."""
    try:
        yield
    except OSError as error:
        raise os_problem(error, doing) from error
    except PackDamaged as error:
        raise Unavailable(str(error), hint="`bsd verify --repair` mends what can be") from error


def _digests(hashes: Collection[str]) -> set[bytes]:
    return {bytes.fromhex(one.removeprefix("sha256:")) for one in hashes}


def _refuse_damaged(archive: Path, hashes: set[bytes]) -> None:
    """Raise PackDamaged, before anything goes, if a pack that has one of these cannot be read."""
    for path in SessionArchive(archive).packs():
        with Pack(path) as pack:
            if not hashes.isdisjoint(place.hash for place in pack.places()):
                pack.check()


def _whole_copy(directory: Path) -> SessionCopy | None:
    with suppress(Unavailable):
        return read_copy(directory)
    return None


def _is_later(path: Path, moment: float | None) -> bool:
    with suppress(OSError):
        return moment is not None and path.lstat().st_mtime > moment
    return False


def _all_below(directory: Path) -> Iterator[Path]:
    """Return every path below a directory; unlike `Path.rglob`, raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    for top, directories, names in os.walk(directory, onerror=fail):
        yield from (Path(top, name) for name in (*directories, *names))


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):  # something is left in it
        directory.rmdir()


def _forget_in_copy(layout: Layout, copy: SessionCopy, entry: str, now: float) -> int:
    """Write a copy anew, in which the values of one entry are gone; how many lines that were."""
    forgotten = 0

    def without(source: Transcript, fmt: TranscriptFormat) -> Iterator[bytes]:
        nonlocal forgotten
        for line in source.lines():
            new = emptied(line, fmt, entry)
            forgotten += new != line.raw
            yield new

    with closing(CopiedTranscript(copy)) as source:
        fmt = format_of(source, program_of(layout, copy.name.agent))
        if fmt is None or not any(emptied(one, fmt, entry) != one.raw for one in source.lines()):
            return 0
        with NewParts(copy.directory, copy, now) as new:
            parts = tuple(map(new.add, parts_of(without(source, fmt))))
            new.finish()
    was = replace(copy.transcript.was, size=sum(part.size for part in parts))
    files = (replace(copy.transcript, was=was, parts=parts), *copy.files[1:])
    title = None  # which may be what was asked there
    changed = replace(copy, files=files, title=title)
    write_copy(changed)
    tidy_copy(changed, now, strictly=True)
    return forgotten
