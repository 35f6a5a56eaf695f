"""Forgets a session, or one entry of it, for good: in store, archive, history, trash and index.

What other sessions need of it is handed down to them before, and they are named: nothing is taken
from anybody else. Nothing goes before what takes its place is durable; whoever is killed in between
is gone on from by the next call, and what is left says the same until then. Steps, as `after_step`
hears of them: handed, history, store, archive, beside, index.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from bsd.agents.dialect import Format, NotOurs
from bsd.agents.owners import owner_of
from bsd.care import catalog
from bsd.care.bring_back import clear_returning
from bsd.care.expiry import Cleaned, Expired, Lot, Thing
from bsd.care.gone import gone_sessions
from bsd.care.hand_down import HandDown, Leaving
from bsd.care.trash import Trash
from bsd.care.trashed import ids
from bsd.foundation.audit import AuditLog
from bsd.foundation.definition import Answer, contract
from bsd.foundation.errors import BsdError, Busy, NotFound, Unavailable, os_problem
from bsd.foundation.files import sync_dir
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.locks import own_lock
from bsd.foundation.logs import get_logger
from bsd.foundation.setting import OFF
from bsd.foundation.spelling import NEVER
from bsd.session.commit.exchange import Step, no_step
from bsd.session.commit.inflight import InFlight
from bsd.session.commit.orphans import forget_orphan, list_orphans
from bsd.session.rest import Patience
from bsd.store.copies import (
    CopiedTranscript,
    NewParts,
    SessionCopy,
    copies_of,
    forget_copy,
    parts_of,
    read_copy,
    tidy_copy,
    write_copy,
)
from bsd.store.extracted import SessionStore
from bsd.store.history import History
from bsd.store.index import contents_of
from bsd.store.pack import PACK, Pack, PackDamaged, PackWriter
from bsd.store.search import ask, forget_sessions
from bsd.text.reader import Line, Transcript, TranscriptFile, parse_entry
from bsd.text.splice import SpliceError, edit, encode_string

_log = get_logger("archive")

_FORGOTTEN = "[content forgotten]"
_LINES_LOOKED_AT, _IDS_LOOKED_FOR = 200, 8
_DRAFT = r"-[a-z0-9_]{8}"  # what is added to a draft's name


@dataclass(frozen=True, slots=True)
class Forgotten(Answer):
    """What is known no more. Sizes are bytes."""

    session: str
    entry: str | None
    files: int
    bytes: int
    kept_by: list[str] = field(
        metadata=contract("Sessions that still keep it: copies, forks, children")
    )
    in_transcript: bool = field(
        metadata=contract("Whether the session is in its place, and may still say it")
    )


class Forgetting:
    """Forgets for one actor; `trash_keep` is the setting `trash_retention`."""

    def __init__(
        self,
        layout: Layout,
        *,
        trash_keep: str = "never",
        actor: str = "cli",
        patience: Patience | None = None,
        after_step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._trash_keep = trash_keep
        self._actor = actor
        self._patience = patience or Patience()
        self._after_step = after_step
        self._files = self._bytes = 0

    # --- a whole session ---

    def session(self, name: SessionName, copy: SessionCopy | None = None) -> Forgotten:
        """Forget all that is kept of a session, or only one `copy` of those called so.

        Its transcript, if it is in its place, stays. Raises NotFound if nothing is kept, Busy,
        Unavailable.
        """
        layout = self._layout
        self._refuse_unknown(name)
        self._refuse_in_flight(name)
        others = [each for each in copies_of(layout, name) if copy and each.origin != copy.origin]
        alone = copy is None or not (others or self._is_there(name))
        if copy is None:
            self._empty_trash_of(name)
        with self._locked(name):
            kept_by = self._keepers(name, copy) if alone else []
            # Before the files, by which the next call knows that there is something to do; and
            # after them, as somebody may have read them meanwhile.
            forget_sessions(layout.search_db, [name])
            if not alone and copy is not None:
                self._take(copy.directory)
                forget_copy(copy)
            else:
                kept_by += self._forget_all(name, kept_by)
            self._after_step("beside")
            forget_sessions(layout.search_db, [name])
            self._after_step("index")
        if not self._files:
            raise NotFound(f"nothing is kept of {name}", hint="`bsd archive list`")
        return self._told(name, None, kept_by)

    def _forget_all(self, name: SessionName, known: list[str]) -> list[str]:
        layout = self._layout
        path = layout.transcript(name)
        stores = (layout.store_dir(name), layout.archive_dir(name))
        leaving = Leaving(name, stores, path)
        HandDown(layout, self._patience, self._actor).provide([leaving], [name])
        self._after_step("handed")
        more = [each for each in self._keep_same(name) if each not in known]
        places = (
            ("history", layout.history_dir(name)),
            ("store", layout.store_dir(name)),
            ("archive", layout.archive_dir(name)),
        )
        for step, directory in places:
            self._take(directory)
            if directory.is_dir():
                shutil.rmtree(directory)
                sync_dir(directory.parent)
            self._after_step(step)
        contents_of(layout).changed()
        for directory in self._drafts(name):
            self._take(directory)
            shutil.rmtree(directory)
        for orphan in list_orphans(layout):
            if orphan.session == str(name):
                self._files, self._bytes = self._files + 1, self._bytes + orphan.size
                forget_orphan(orphan)
        clear_returning(layout, name)
        return more

    def _empty_trash_of(self, name: SessionName) -> None:
        """What of it lies in the trash, which locks it itself."""
        trash = Trash(self._layout, self._trash_keep, actor=self._actor, patience=self._patience)
        store = self._layout.store_name(name)
        for each in ids(self._layout):
            if each.rpartition("_")[0] == store:
                with suppress(NotFound):
                    item = trash.remove(each)
                    self._files += 1 + item.extracted_files
                    self._bytes += item.size + item.extracted_bytes

    def _drafts(self, name: SessionName) -> list[Path]:
        """What people wrote that could not be applied; its agent is not told there."""
        mine = re.compile(re.escape(name.session[:100]) + _DRAFT)
        with suppress(OSError, BsdError):
            edits = self._layout.refuse_outside(self._layout.edits)
            return [edits / each for each in sorted(os.listdir(edits)) if mine.fullmatch(each)]
        return []

    # --- one entry ---

    def entry(self, name: SessionName, entry: str) -> Forgotten:
        """Forget what is kept of one entry. Raises NotFound, Busy, Unavailable."""
        layout = self._layout
        self._refuse_unknown(name)
        self._refuse_in_flight(name)
        with self._locked(name):
            hashes = self._hashes_of(name, entry)
            history = History(layout, name)
            forgotten = history.forget(entry)
            self._after_step("history")
            self._forget_stored(name, entry)
            self._after_step("store")
            self._forget_packed(layout.archive_dir(name), hashes)
            for copy in copies_of(layout, name):
                forgotten += _forget_in_copy(layout, copy, entry, self._patience.clock())
            self._after_step("archive")
            contents_of(layout).changed()
            clear_returning(layout, name)
            forget_sessions(layout.search_db, [name])  # it is read again, as it is now
            self._after_step("index")
            kept_by = sorted({*self._who_has(name, hashes), *self._who_says(name, [entry])})
        if not (self._files or forgotten):
            raise NotFound(f"nothing is kept of entry {entry} of {name}", hint=f"`bsd show {name}`")
        return self._told(name, entry, kept_by)

    def _hashes_of(self, name: SessionName, entry: str) -> set[bytes]:
        """Those of all lines that store and archive of the session keep of an entry."""
        layout = self._layout
        contents = contents_of(layout)
        contents.changed()
        own = {layout.store_dir(name), layout.archive_dir(name)}
        return {
            bytes.fromhex(place.hash.removeprefix("sha256:"))
            for place in contents.of_entry(entry)
            if place.directory in own
        }

    def _forget_stored(self, name: SessionName, entry: str) -> None:
        store = SessionStore(self._layout, name)
        refs = {
            place.ref
            for place in contents_of(self._layout).of_entry(entry)
            if place.directory == store.directory and not place.pack
        }
        for ref in sorted(refs):
            self._take(store.file(ref))
            store.file(ref).unlink(missing_ok=True)
        if refs:
            sync_dir(store.directory)
            store.index.replace(
                [one for one in store.index.records.values() if one.ref not in refs]
            )

    def _forget_packed(self, archive: Path, hashes: set[bytes]) -> None:
        """Write packs anew without these lines; the old one goes when the new one is durable."""
        for path in sorted(archive.glob(f"*{PACK}")):
            with Pack(path) as pack:
                if hashes.isdisjoint(place.hash for place in pack.places()):
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
            if new != path:
                path.unlink()
            sync_dir(archive)

    # --- who keeps it all the same ---

    def _keepers(self, name: SessionName, copy: SessionCopy | None) -> list[str]:
        """Sessions that say what this one says, told by its first entries."""
        path = self._layout.transcript(name)
        chosen = copy or next(iter(copies_of(self._layout, name)), None)
        with suppress(BsdError, OSError), ExitStack() as opened:
            source: Transcript
            if copy is None and os.path.lexists(path):
                source = opened.enter_context(TranscriptFile(path))
            elif chosen is not None:
                source = opened.enter_context(CopiedTranscript(chosen))
            else:
                return []
            return self._who_says(name, list(_ids_in(self._layout, name, source)))
        return []

    def _who_says(self, name: SessionName, entries: list[str]) -> list[str]:
        """The sessions of the same program in whose lines one of these entries stands."""
        mine = self._layout.source_of(name.agent)
        found = []
        for other in catalog.names(self._layout) if entries else ():
            if other == name or self._layout.source_of(other.agent) != mine:
                continue
            with suppress(BsdError, OSError):
                path = self._layout.session_file(other)
                with TranscriptFile(path) as source:
                    if _holds(source, _format_of(self._layout, other, source), entries):
                        found.append(str(other))
        for copy in gone_sessions(self._layout) if entries else ():
            if copy.name == name or self._layout.source_of(copy.name.agent) != mine:
                continue
            with suppress(BsdError, OSError), CopiedTranscript(copy) as copied:
                if _holds(copied, _format_of(self._layout, copy.name, copied), entries):
                    found.append(copy.id)
        return found

    def _keep_same(self, name: SessionName) -> list[str]:
        """Sessions whose stores or archives hold lines that this one's hold, too."""
        contents = contents_of(self._layout)
        contents.changed()
        own = (self._layout.store_dir(name), self._layout.archive_dir(name))
        hashes = {
            bytes.fromhex(place.hash.removeprefix("sha256:"))
            for directory in own
            for place in contents.of_store(directory)
        }
        return self._who_has(name, hashes)

    def _who_has(self, name: SessionName, hashes: set[bytes]) -> list[str]:
        contents = contents_of(self._layout)
        found = set()
        for each in hashes:
            for place in contents.with_hash(f"sha256:{each.hex()}"):
                directory = place.directory
                if directory.parent.name == self._layout.trash.name:
                    continue
                other = self._layout.session_of_store(directory.name)
                if other is not None and other != name:
                    found.add(str(other))
        return sorted(found)

    # --- all of them ---

    def _refuse_unknown(self, name: SessionName) -> None:
        """Raise NotFound, before anything is locked, unless something may be kept of it."""
        layout, store = self._layout, self._layout.store_name(name)
        places = (layout.store_dir(name), layout.archive_dir(name), layout.history_dir(name))
        trashed = any(each.rpartition("_")[0] == store for each in ids(layout))
        orphaned = any(orphan.session == str(name) for orphan in list_orphans(layout))
        kept = trashed or orphaned or self._drafts(name) or any(map(Path.exists, places))
        if not (kept or ask(layout.search_db, lambda index: index.known_as(name), None)):
            raise NotFound(f"nothing is kept of {name}", hint="`bsd archive list`")

    def _refuse_in_flight(self, name: SessionName) -> None:
        """A file that a commit displaced is watched for a minute, and says it all."""
        if any(record.session == name for record in InFlight(self._layout).readable()):
            raise Busy(
                f"session {name} was changed a moment ago, and the file as it was is still kept",
                hint="again in a minute",
            )

    def _is_there(self, name: SessionName) -> bool:
        with suppress(BsdError):
            return os.path.lexists(self._layout.transcript(name))
        return False

    def _locked(self, name: SessionName) -> ExitStack:
        patience, stack = self._patience, ExitStack()
        stack.enter_context(own_lock(self._layout, name, patience.wait, sleep=patience.sleep))
        stack.enter_context(_explained(f"forgetting {name}"))
        return stack

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
        AuditLog(self._layout.audit_file, self._patience.clock).record(
            actor=self._actor,
            action="archive_forget",
            agent=name.agent,
            session_id=name.session,
            files_removed=self._files,
            bytes_removed=self._bytes,
            **more,
        )
        is_there = self._is_there(name)
        return Forgotten(str(name), entry, self._files, self._bytes, kept_by, is_there)


# --- when their time is up ---


class GoneShelf:
    """Sessions that are gone, each a lot; age counts from when that was noticed."""

    name = "copied"

    def __init__(
        self, layout: Layout, keep: str, *, actor: str = "cli", patience: Patience | None = None
    ) -> None:
        self.keep = NEVER if keep == OFF else keep  # then only `forget` takes what there is
        self._layout = layout
        self._forgetting = Forgetting(layout, actor=actor, patience=patience)

    def lots(self) -> Iterator[Lot]:
        for copy in gone_sessions(self._layout):
            if copy.gone_at is not None:
                yield _GoneLot(copy, self._forgetting)


class _GoneLot:
    def __init__(self, copy: SessionCopy, forgetting: Forgetting) -> None:
        self.path = copy.directory
        self._copy = copy
        self._forgetting = forgetting

    def things(self) -> list[Thing]:
        copy = read_copy(self.path)
        if copy is None or copy.gone_at is None:
            return []
        return [Thing(self.path, copy.packed, copy.gone_at)]

    def delete(self, expired: Expired) -> Cleaned:
        gone = list(filter(expired, self.things()))
        if gone:
            self._forgetting.session(self._copy.name, self._copy)
        return Cleaned(len(gone), sum(thing.size for thing in gone))

    def is_untidy(self) -> bool:
        return False

    def tidy(self) -> None:
        """Nothing: what is half done is done anew."""


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Say of an OSError, and of a damaged pack, what was being done."""
    try:
        yield
    except OSError as error:
        raise os_problem(error, doing) from error
    except PackDamaged as error:
        raise Unavailable(str(error), hint="`bsd verify --repair` mends what can be") from error


def _format_of(layout: Layout, name: SessionName, source: Transcript) -> Format | None:
    found = owner_of(layout, name.agent).detect(line.raw for line in source.lines())
    return found.reads if isinstance(found, NotOurs) else found


def _ids_in(layout: Layout, name: SessionName, source: Transcript) -> Iterator[str]:
    """The ids of its first messages: copies of a session begin as it does."""
    fmt = _format_of(layout, name, source)
    ids_found = 0
    for line in islice(source.lines(), _LINES_LOOKED_AT):
        entry = parse_entry(line.raw)
        facts = fmt.facts(entry) if fmt and entry is not None else None
        if facts and facts.id and facts.is_message and not facts.is_header:
            yield facts.id
            ids_found += 1
            if ids_found == _IDS_LOOKED_FOR:
                return


def _holds(source: Transcript, fmt: Format | None, entries: list[str]) -> bool:
    """Whether one of these is an entry of a session, and not only named there."""
    if fmt is None:
        return False
    may_be = _may_be(fmt, entries)
    parsed = (parse_entry(line.raw) for line in source.lines() if may_be(line.raw))
    return any(entry is not None and fmt.facts(entry).id in entries for entry in parsed)


def _may_be(fmt: Format, entries: list[str]) -> Callable[[bytes], bool]:
    """Tells lines that may be one of these entries from most that are none."""
    made_of = [pattern for entry in entries if (pattern := fmt.made_of(entry)) is not None]
    if made_of:
        return lambda raw: any(pattern.search(raw) for pattern in made_of)
    needles = [encode_string(entry) for entry in entries]
    return lambda raw: any(needle in raw for needle in needles)


def _forget_in_copy(layout: Layout, copy: SessionCopy, entry: str, now: float) -> int:
    """Write a copy anew, in which the values of one entry are gone; how many lines that were."""
    forgotten = 0

    def without(source: Transcript, fmt: Format) -> Iterator[bytes]:
        nonlocal forgotten
        for line in source.lines():
            new = _emptied(line, fmt, entry)
            forgotten += new != line.raw
            yield new

    with closing(CopiedTranscript(copy)) as source:
        fmt = _format_of(layout, copy.name, source)
        if fmt is None or not any(_emptied(one, fmt, entry) != one.raw for one in source.lines()):
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


def _emptied(line: Line, fmt: Format, entry_id: str) -> bytes:
    """A line without its values, if it is of this entry."""
    if not _may_be(fmt, [entry_id])(line.raw) or (entry := parse_entry(line.raw)) is None:
        return line.raw
    facts = fmt.facts(entry)
    if facts.id != entry_id or facts.is_header:
        return line.raw
    new = line.raw
    for value in fmt.values(entry):
        with suppress(SpliceError):
            new = edit(new, replace={value.path: value.shape.holding(_TEXT)}, remove=value.removes)
    return new


_TEXT = encode_string(_FORGOTTEN)
