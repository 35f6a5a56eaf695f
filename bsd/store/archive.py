"""The archive of a session: packs of lines that have left its store, found by hash.

After a crash, a line may lie in two packs, or in a pack and in the store. Both copies are equal,
and the next move or merge removes one of them. A caller that changes an archive holds bsd's own
lock of the session.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import os_problem
from bsd.core.files import LARGEST_LINE, read_plain, sync_dir
from bsd.core.layout import Layout
from bsd.store.pack import (
    PACK,
    SET_ASIDE,
    UNFINISHED,
    OnlyInBucket,
    Pack,
    PackDamaged,
    PackFull,
    PackSummary,
    PackWriter,
    root_of,
    why_damaged,
)
from bsd.store.pack_salvage import salvaged
from bsd.store.uploads import note_deleted
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="archive")

# Bytes of lines per pack. The limit bounds how long a session stays locked, and the disk space that
# is needed before the packed files are removed.
_PORTION = 256 << 20
_MANY = 8  # packs; with this many small packs, they are merged
_LARGE = 32 << 20  # bytes; a pack of this size or more is never merged


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """Stored files whose lines are durable in the archive, so that they can be removed.

    Sizes are bytes.
    """

    files: tuple[Path, ...]
    pack: Path | None  # None: the archive had all lines before
    content: int  # of the lines that are new in the archive
    packed: int  # of the pack


# A file of a store, and its record in the store's index, with the members that are known.
ToPack = tuple[Path, Mapping[str, Any]]


class SessionArchive:
    """The packs in one directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trouble: str | None = None  # why the last `line` could not search every pack
        self.unreached: OnlyInBucket | None = None  # why it could not read a line that a pack has
        self._names: frozenset[str] | None = None

    @property
    def _root(self) -> Path:
        return root_of(self.directory / PACK)

    def packs(self) -> list[Path]:
        """Return all packs, the oldest first; raises OSError if they cannot be listed."""
        return [self.directory / name for name in self._listed() if is_pack(name)]

    def set_aside(self) -> list[Path]:
        """Return the damaged packs whose readable lines are in other packs; raises as `packs`."""
        return [self.directory / name for name in self._listed() if name.endswith(SET_ASIDE)]

    def _listed(self) -> list[str]:
        try:
            return sorted(os.listdir(self.directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def line(self, hash: str, first: Path | None = None) -> bytes | None:
        """Return the line with this hash (`sha256:…`); None if no readable pack holds it.

        If a pack cannot be read, `trouble` says afterwards why the line may be there all the same.
        The pack `first` is searched before the others.
        """
        self.trouble = self.unreached = None
        looked: set[Path] = set()
        try:
            # Another process may merge packs during the search: the line is then in a new pack.
            while left := [path for path in self.packs() if path not in looked]:
                away: list[Path] = []  # thin packs that have it: their blocks are in the bucket
                for path in sorted(left, key=lambda path: path == first)[::-1]:
                    try:
                        if (line := _find(path, hash, away)) is not None:
                            return line
                    except (PackDamaged, OSError) as error:
                        self.trouble = _tell_unread(path, error)
                if (line := self._from_bucket(away, hash)) is not None:
                    return line
                looked.update(left)
        except OSError as error:
            _log.warning("An archive cannot be read", problem=str(error))
            self.trouble = os_problem(error, f"reading the archive {self.directory}").message
        for place in (self.directory.parent, self.directory):
            if os.path.lexists(place) and not place.is_dir():
                self.trouble = f"{place} is not a directory"
        return None

    def _from_bucket(self, thin: Iterable[Path], hash: str) -> bytes | None:
        """Return a line that these thin packs have; None if none of them can be read."""
        for path in thin:
            try:
                if (line := _find(path, hash)) is not None:
                    return line
            except OnlyInBucket as error:
                self.unreached, self.trouble = error, error.message
            except (PackDamaged, OSError) as error:
                self.trouble = _tell_unread(path, error)
        return None

    # --- all readable packs ---

    def _readable(self) -> Iterator[Pack]:
        """Yield each pack, opened; leave out packs that are damaged or cannot be read."""
        try:
            packs = self.packs()
        except OSError as error:
            _log.warning("An archive cannot be read", problem=str(error))
            return
        for path in packs:
            with suppress(PackDamaged, OSError), Pack(path) as pack:
                yield pack

    def summaries(self) -> Iterator[tuple[Path, PackSummary]]:
        """Yield the path and the summary of each readable pack."""
        for pack in self._readable():
            yield pack.path, pack.summary

    def names(self) -> frozenset[str]:
        """Return the refs that the lines had in the store. The result is cached."""
        if self._names is None:
            names: set[str] = set()
            for path in self.packs():
                with suppress(PackDamaged, OSError), Pack(path) as pack:
                    names.update(map(ref_of, pack.records()))
            self._names = frozenset(names)
        return self._names

    def entries(self) -> dict[str, int]:
        """Map the id of each entry that has lines in the archive to the bytes of its last line."""
        sizes: dict[str, int] = {}
        for pack in self._readable():
            with suppress(PackDamaged, OSError):
                for place, record in zip(pack.in_order(), pack.records(), strict=True):
                    sizes[str(record.get("entry_id") or place.hash.hex())] = place.size
        return sizes

    def _hashes(self, packs: Iterable[Path]) -> set[bytes]:
        """Return the hashes of all lines that the indexes of these packs list."""
        hashes: set[bytes] = set()
        for path in packs:
            with suppress(PackDamaged, FileNotFoundError), Pack(path) as pack:
                hashes.update(place.hash for place in pack.places())
        return hashes

    # --- adding and merging ---

    def take(self, files: Iterable[ToPack], now: float) -> Iterator[PackedFiles]:
        """Pack files of the store, in portions; the caller may remove the files of each portion.

        A file stays in the store if it cannot be read, or if its line is too long for a pack.

        Args:
            files: the files, each with its record in the index of the store.
            now: epoch seconds.

        Raises:
            OSError, PackDamaged: a pack cannot be written, or does not read back as it was written.
                Portions that were yielded before are in the archive.
        """
        left, more = iter(files), True
        known = self._hashes(self.packs())
        while more:
            done: list[Path] = []
            with PackWriter(self.directory) as writer:
                for one in left:
                    if self._take(one, writer, known):
                        done.append(one[0])
                    if writer.content >= _PORTION:
                        break
                else:
                    more = False
                if writer.lines:
                    path = writer.finish(now, now)
                    size = path.stat().st_size
                    yield PackedFiles(tuple(done), path, writer.content, size)
                elif done:
                    yield PackedFiles(tuple(done), None, 0, 0)
        self._names = None
        self._remove_if_empty()

    def _take(self, one: ToPack, writer: PackWriter, known: set[bytes]) -> bool:
        """Return whether the line of a file is in the archive, or is added to it by this pack."""
        file, record = one
        try:
            line = read_plain(file, LARGEST_LINE)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.warning("A stored file cannot be archived", path=str(file), problem=str(error))
            return False
        hash_ = hashlib.sha256(line).digest()
        if hash_ in known and (hash_ in writer or self._has(hash_)):
            return True
        try:
            writer.add(line, record, hash_)
        except PackFull:
            return False
        known.add(hash_)
        return True

    def _has(self, hash: bytes) -> bool:
        """Return whether the archive has a readable copy of a line; raises OSError if unknown.

        A line that a damaged pack has lost counts as missing, so that it is packed again. Of a thin
        pack, the index is enough.
        """
        for path in reversed(self.packs()):
            away: list[Path] = []
            with suppress(PackDamaged):
                if _find(path, f"sha256:{hash.hex()}", away) is not None or away:
                    return True
        return False

    def merge(self, span: float | None = None) -> list[Path]:
        """Merge small packs, if there are many; return the new packs.

        Args:
            span: merge only packs whose times differ by at most this many seconds, because a merged
                pack expires with its youngest line. None merges packs of any age.

        Raises:
            OSError, PackDamaged: the packs of the failed group are still there; no line is lost.
        """
        made = []
        for group in self._groups(span):
            merged: list[Path] = []
            oldest, newest = float("inf"), 0.0
            with PackWriter(self.directory) as writer, suppress(PackFull):
                for path in filter(_is_whole, group):  # `verify` reports the damaged ones
                    with Pack(path) as pack:
                        for one in pack:
                            writer.add(one.line, one.record, one.hash)
                        oldest = min(oldest, pack.summary.oldest)
                        newest = max(newest, pack.summary.newest)
                    merged.append(path)
                if len(merged) > 1:
                    made.append(writer.finish(oldest, newest))
                    # The last pack may be the new pack: see `may_be_double`.
                    useless = [path for path in merged if path != made[-1]]
                    note_deleted(self._root, useless)
                    for path in useless:
                        path.unlink(missing_ok=True)
                    sync_dir(self.directory)
        self._names = None
        return made

    def _groups(self, span: float | None) -> Iterator[list[Path]]:
        group: list[Path] = []
        began = 0.0
        for path, summary in list(self.summaries()):
            if summary.packed >= _LARGE or summary.is_thin:
                continue
            if group and span is not None and summary.newest - began > span:
                if len(group) >= _MANY:
                    yield group
                group = []
            began = min(began, summary.oldest) if group else summary.oldest
            group.append(path)
        if len(group) >= _MANY:
            yield group

    # --- repair and removal ---

    def sweep(self) -> None:
        """Remove unfinished packs and already merged packs that an interrupted change left."""
        with suppress(OSError):
            names = os.listdir(self.directory)
            for name in names:
                if name.endswith(UNFINISHED):
                    (self.directory / name).unlink(missing_ok=True)
            if may_be_double(names):
                self._remove_doubles()

    def _remove_doubles(self) -> None:
        """Remove each pack whose lines are all in another undamaged pack."""
        held: dict[Path, set[bytes]] = {}
        thin: set[Path] = set()
        for pack in self._readable():
            with suppress(PackDamaged, OSError):
                held[pack.path] = {place.hash for place in pack.places()}
                if pack.is_thin:
                    thin.add(pack.path)
        for path in list(held):
            others = held.keys() - {path}
            if path not in thin:  # what is here stays here
                others -= thin
            if any(held[path] <= held[other] and _is_whole(other) for other in others):
                note_deleted(self._root, [path])
                path.unlink(missing_ok=True)
                del held[path]
        self._names = None

    def mend(self, pack: Path) -> tuple[int, Path, bool]:
        """Copy the lines of a pack with a damaged index to a new pack, and set the old pack aside.

        Lines that are also in other undamaged packs are not copied.

        Returns:
            The number of lines found in the damaged pack, the path of the pack that was set aside,
            and whether all of its blocks could be read.

        Raises:
            OSError, PackDamaged: the pack has no readable line, or the new pack cannot be written.
                The archive is unchanged.
        """
        at = pack.lstat().st_mtime
        found, gaps = 0, list[int]()
        others = self._hashes(path for path in self.packs() if path != pack and _is_here(path))
        made = None
        with PackWriter(self.directory) as writer:
            for number, line in enumerate(salvaged(pack, gaps)):
                found += 1
                hash_ = hashlib.sha256(line).digest()
                if hash_ not in others:
                    record = {
                        "file": f"{number:04d}_salvaged.json",
                        "entry_id": entry_id(parse_kept(line) or {}) or "",
                        "index": number,
                        "size": len(line),
                        "keys": [],
                        "sizes_bytes": {},
                        "extracted_at": "",
                    }
                    writer.add(line, record, hash_)
            if not found:
                raise PackDamaged(pack, "none of its lines can be read")
            made = writer.finish(at, at) if writer.lines else None
        aside = pack.with_name(f"{pack.name.removesuffix(PACK)}{SET_ASIDE}")
        if made != pack:  # otherwise the new pack has the same index and lacks no line
            os.rename(pack, aside)
            sync_dir(self.directory)
        self._names = None
        return found, aside, not gaps

    def mend_lines(self, pack: Path) -> bool:
        """Rewrite a pack without its unreadable lines, if other packs have all of these lines.

        Returns False if an unreadable line is in no other pack. Raises OSError or PackDamaged.
        In all these cases the archive is unchanged.
        """
        others = self._hashes(path for path in self.packs() if path != pack and _is_whole(path))
        made = None
        with Pack(pack) as old, PackWriter(self.directory) as writer:
            for place, record in zip(old.in_order(), old.records(), strict=True):
                if place.hash in others:
                    continue
                try:
                    writer.add(old.line(place), record, place.hash)
                except PackDamaged:
                    return False
            if writer.lines:
                made = writer.finish(old.summary.oldest, old.summary.newest)
        if made != pack:
            self.remove(pack, lines_stay=True)
        return True

    def remove(self, pack: Path, *, lines_stay: bool = False) -> None:
        """Delete a pack permanently, also from the bucket; raises BsdError, OSError.

        `lines_stay`: other packs have its lines.
        """
        note_deleted(self._root, [pack], must=not lines_stay)
        pack.unlink(missing_ok=True)
        self._names = None
        sync_dir(self.directory)
        self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        with suppress(OSError):  # packs are left, or the directory does not exist
            self.directory.rmdir()


def may_be_double(names: Iterable[str]) -> bool:
    """Return whether two packs may hold the same lines, judged by the names of the packs."""
    times = [name.partition("-")[0] for name in names if is_pack(name)]
    return len(times) > len(set(times))


def is_pack(name: str) -> bool:
    """Return whether `name` is the name of a finished pack."""
    return name.endswith(PACK) and not name.startswith(".")


def ref_of(record: Mapping[str, Any]) -> str:
    """Return the ref that a packed line had in the store."""
    return str(record.get("file", "")).removesuffix(".json")


def _find(pack: Path, hash: str, away: list[Path] | None = None) -> bytes | None:
    """Return the line of a pack with this hash, or None; search a damaged pack line by line.

    Args:
        away: receives the pack if it is thin and has the line, which is then not read.

    Raises OSError or PackDamaged if the pack has, or may have, a line that cannot be read.
    """
    try:
        wanted = bytes.fromhex(hash.removeprefix("sha256:"))
    except ValueError:  # a marker that was written by hand
        return None
    try:
        with Pack(pack) as opened:
            place = opened.find(wanted)
            if place is not None and opened.is_thin and away is not None:
                opened.check_index()
                away.append(pack)
                return None
            return None if place is None else opened.line(place)
    except FileNotFoundError:
        return None  # merged since the directory was listed
    except PackDamaged as problem:
        for line in salvaged(pack):
            if hashlib.sha256(line).digest() == wanted:
                _tell_damaged(pack, problem)
                return line
        raise


def _is_whole(path: Path) -> bool:
    if problem := why_damaged(path):
        _tell_damaged(path, problem)
    return problem is None


def _is_here(path: Path) -> bool:
    """Return whether a pack is undamaged, and its lines are on this disk."""
    with suppress(PackDamaged, FileNotFoundError), Pack(path) as pack:
        return not pack.is_thin and _is_whole(path)
    return False


def _tell_unread(pack: Path, error: PackDamaged | OSError) -> str:
    """Log that a pack is damaged or unreadable, and return the message."""
    if isinstance(error, PackDamaged):
        _tell_damaged(pack, error)
        return f"the pack {error}"
    problem = os_problem(error, f"reading the pack {pack}").message
    _log.warning("A pack cannot be read", session=pack.parent.name, problem=problem)
    return problem


_audited: set[Path] = set()


def _tell_damaged(pack: Path, problem: PackDamaged) -> None:
    """Log that a pack is damaged; write it to the audit log once per process."""
    _log.error(
        "A pack of the archive is damaged",
        session=pack.parent.name,
        problem=str(problem),
        hint="`bsd verify --repair` rebuilds its index",
    )
    if pack not in _audited:
        _audited.add(pack)
        AuditLog(Layout(pack.parents[2]).audit_file).record(
            actor="bsd", action="damaged_pack", path=str(pack), problem=str(problem)
        )
