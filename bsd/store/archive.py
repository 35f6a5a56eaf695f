"""The archive of a session: packs of what has left its store, found by the hash of the line.

A line may lie in two packs, or in a pack and in the store: so it does after a crash. It is the
same wherever it is read, and the next who moves or merges makes one of it. Whoever changes an
archive holds bsd's own lock of the session.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import os_problem
from bsd.core.files import LARGEST_LINE, read_plain, sync_dir
from bsd.core.layout import Layout
from bsd.store.pack import (
    PACK,
    SET_ASIDE,
    UNFINISHED,
    Pack,
    PackDamaged,
    Packed,
    PackFull,
    PackPlace,
    PackSummary,
    PackWriter,
    Salvage,
    salvaged,
    why_damaged,
)
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="archive")

# So many lines' bytes go into a pack at once: a session is locked, and room is taken, for no more.
_PORTION = 256 << 20
_MANY = 8  # packs: then those of them that are not large become one
_LARGE = 32 << 20  # bytes: a pack of that size stays as it is


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """Files whose lines are in the archive now, durably; they may go. Sizes are bytes."""

    files: tuple[Path, ...]
    pack: Path | None  # None: they were there already
    content: int  # of the lines that are new there
    packed: int  # of the pack


class Mended(NamedTuple):
    """The result of salvaging a pack whose index was damaged."""

    lines: int  # that were found in it
    set_aside: Path
    whole: bool  # all of its blocks could be read


class ToPack(NamedTuple):
    """A file of a store, and what its index says of it, as far as that is known."""

    file: Path
    record: Mapping[str, Any]


class SessionArchive:
    """The packs in one directory, which need not be there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trouble: str | None = None  # what kept the last `line` from looking everywhere
        self._names: frozenset[str] | None = None

    def packs(self) -> list[Path]:
        """All packs, the oldest first; raises OSError if the directory cannot be read."""
        try:
            names = os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.directory / name for name in sorted(names) if is_pack(name)]

    def set_aside(self) -> list[Path]:
        """Return the damaged packs whose readable lines other packs have; raises as `packs`."""
        try:
            names = os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.directory / name for name in sorted(names) if name.endswith(SET_ASIDE)]

    def summaries(self) -> Iterator[tuple[Path, PackSummary]]:
        """What the ends of the packs say; what cannot be read is left out."""
        try:
            packs = self.packs()
        except OSError as error:
            _log.warning("An archive cannot be read", problem=str(error))
            return
        for path in packs:
            with suppress(PackDamaged, OSError), Pack(path) as pack:
                yield path, pack.summary

    def line(self, hash: str) -> bytes | None:
        """The line with this hash (`sha256:…`), if a pack has it; `trouble` tells why it may."""
        self.trouble = None
        looked: set[Path] = set()
        try:
            # While we look, packs may be merged: then the line is in one that has just come.
            while left := [path for path in self.packs() if path not in looked]:
                for path in reversed(left):
                    if (line := self._line_in(path, hash)) is not None:
                        return line
                looked.update(left)
        except OSError as error:
            _log.warning("An archive cannot be read", problem=str(error))
            self.trouble = os_problem(error, f"reading the archive {self.directory}").message
        for place in (self.directory.parent, self.directory):
            if os.path.lexists(place) and not place.is_dir():
                self.trouble = f"{place} is not a directory"
        return None

    def _line_in(self, pack: Path, hash: str) -> bytes | None:
        try:
            return _find(pack, hash)
        except (PackDamaged, OSError) as error:
            self.trouble = _tell_unread(pack, error)
        return None

    def names(self) -> frozenset[str]:
        """The refs under which its lines lay in the store; read once."""
        if self._names is None:
            self._names = frozenset(ref for path in self.packs() for ref in _names_in(path))
        return self._names

    def entries(self) -> dict[str, int]:
        """The entries of which it has lines, and how many bytes the one has that came last.

        Only the ends of packs are read; what is damaged is left out.
        """
        found: dict[str, int] = {}
        try:
            packs = self.packs()
        except OSError as error:
            _log.warning("An archive cannot be read", problem=str(error))
            return found
        for path in packs:
            with suppress(PackDamaged, OSError), Pack(path) as pack:
                for place, record in zip(_in_order(pack), pack.records(), strict=True):
                    found[str(record.get("entry_id") or place.hash.hex())] = place.size
        return found

    def lines(self, refs: frozenset[str]) -> Iterator[Packed]:
        """The lines that had these refs, each once; what is damaged is left out."""
        left = set(refs)
        for path in self.packs():
            with suppress(PackDamaged, OSError), Pack(path) as pack:
                for one in pack.some(lambda record: ref_of(record) in left):
                    left.discard(ref_of(one.record))
                    yield one

    # --- changing ---

    def sweep(self) -> None:
        """Remove what somebody who was killed has left unfinished."""
        with suppress(OSError):
            names = os.listdir(self.directory)
            for name in names:
                if name.endswith(UNFINISHED):
                    (self.directory / name).unlink(missing_ok=True)
            if may_be_double(names):
                self._drop_doubles()

    def _drop_doubles(self) -> None:
        """Remove packs all of which is in a later one too: a merge was killed before it did."""
        held: dict[Path, set[bytes]] = {}
        for path, _ in self.summaries():
            with suppress(PackDamaged), Pack(path) as pack:
                held[path] = {place.hash for place in pack.places()}
        for path in list(held):
            for other in held.keys() - {path}:
                if held[path] <= held[other] and _is_whole(other):
                    path.unlink(missing_ok=True)
                    del held[path]
                    break
        self._names = None

    def take(self, files: Iterable[ToPack], now: float) -> Iterator[PackedFiles]:
        """Pack files of the store, portion by portion; those of a portion may go when it is given.

        `now` is in epoch seconds. What a line is too long for stays. Raises OSError, and
        PackDamaged if a pack does not read as it was written; then what was given is in.
        """
        left, more = iter(files), True
        known = self._hashes()
        while more:
            done: list[Path] = []
            with PackWriter(self.directory) as writer:
                for one in left:
                    if self._take(one, writer, known):
                        done.append(one.file)
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
        self._tidy()

    def _hashes(self) -> set[bytes]:
        """Of all lines that its packs say to have."""
        found: set[bytes] = set()
        for path in self.packs():
            with suppress(PackDamaged, FileNotFoundError), Pack(path) as pack:
                found.update(place.hash for place in pack.places())
        return found

    def _take(self, one: ToPack, writer: PackWriter, known: set[bytes]) -> bool:
        """Whether a file's line is in the archive, or will be with this pack."""
        try:
            line = read_plain(one.file, LARGEST_LINE)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.warning("Cannot be archived, so it stays", path=str(one.file), problem=str(error))
            return False
        hash_ = hashlib.sha256(line).digest()
        if hash_ in known and (hash_ in writer or self._has(hash_)):
            return True
        try:
            writer.add(line, one.record, hash_)
        except PackFull:
            return False
        known.add(hash_)
        return True

    def _has(self, hash: bytes) -> bool:
        """Whether a line can be read here; raises OSError if that cannot be told now.

        What a damaged pack has lost is packed anew; `mend` makes one of what then is there twice.
        """
        for path in reversed(self.packs()):
            with suppress(PackDamaged):
                if _find(path, f"sha256:{hash.hex()}") is not None:
                    return True
        return False

    def merge(self, span: float | None = None) -> list[Path]:
        """Make one of many small packs, where they are many; returns the new ones.

        Only packs whose times differ by no more than `span` seconds become one, as that has the
        age of its youngest. Raises OSError, PackDamaged; then all is as it was.
        """
        made = []
        for group in self._groups(span):
            merged: list[Path] = []
            with PackWriter(self.directory) as writer:
                try:
                    oldest, newest = self._gather(group, writer, merged)
                except PackFull:  # they stay as they are
                    continue
                if len(merged) < 2:
                    continue
                made.append(writer.finish(oldest, newest))
            for path in merged:  # the last has the time of the new one: see `may_be_double`
                if path != made[-1]:
                    path.unlink(missing_ok=True)
            sync_dir(self.directory)
        self._names = None
        return made

    def _groups(self, span: float | None) -> Iterator[list[Path]]:
        group: list[Path] = []
        began = 0.0
        for path, summary in self.summaries():
            if summary.packed >= _LARGE:
                continue
            if group and span is not None and summary.newest - began > span:
                if len(group) >= _MANY:
                    yield group
                group = []
            began = summary.oldest if not group else min(began, summary.oldest)
            group.append(path)
        if len(group) >= _MANY:
            yield group

    def _gather(
        self, group: list[Path], writer: PackWriter, merged: list[Path]
    ) -> tuple[float, float]:
        """Add what these packs hold, each line once; names those that were whole."""
        oldest, newest = float("inf"), 0.0
        for path in group:
            if not _is_whole(path):  # it stays as it is, for `verify` to tell
                continue
            with Pack(path) as pack:
                for one in pack:
                    writer.add(one.line, one.record, one.hash)
                oldest = min(oldest, pack.summary.oldest)
                newest = max(newest, pack.summary.newest)
            merged.append(path)
        return oldest, newest

    def mend(self, pack: Path) -> Mended:
        """Write the lines of a pack whose index is damaged into a new one, and set it aside.

        Those that others have, too, as they were packed again since, are not kept twice. Raises
        OSError, and PackDamaged if it has none; then all is as it was.
        """
        at = pack.lstat().st_mtime
        found = 0
        others = self._readable(pack)
        made, salvage = None, Salvage(pack)
        with PackWriter(self.directory) as writer:
            for number, line in enumerate(salvage.lines()):
                found += 1
                hash_ = hashlib.sha256(line).digest()
                if hash_ in others:
                    continue
                said = {"file": f"{number:04d}_salvaged.json", "extracted_at": "", "index": number}
                entry = entry_id(parse_kept(line) or {}) or ""
                more = {"keys": [], "sizes_bytes": {}, "size": len(line), "entry_id": entry}
                writer.add(line, said | more, hash_)
            if not found:
                raise PackDamaged(pack, "none of its lines can be read")
            made = writer.finish(at, at) if writer.lines else None
        aside = pack.with_name(f"{pack.name.removesuffix(PACK)}{SET_ASIDE}")
        if made != pack:  # else the new one has the same index, so it lacks nothing
            os.rename(pack, aside)
            sync_dir(self.directory)
        self._names = None
        return Mended(found, aside, whole=salvage.whole)

    def mend_lines(self, pack: Path) -> bool:
        """Make a pack of which lines are lost anew without these, if other packs have them all.

        Raises OSError, PackDamaged; then all is as it was.
        """
        others = self._readable(pack)
        made = None
        with Pack(pack) as old, PackWriter(self.directory) as writer:
            for place, record in zip(_in_order(old), old.records(), strict=True):
                if place.hash in others:
                    continue
                try:
                    writer.add(old.line(place), record, place.hash)
                except PackDamaged:
                    return False
            if writer.lines:
                made = writer.finish(old.summary.oldest, old.summary.newest)
        if made != pack:
            self.remove(pack)
        return True

    def _readable(self, but: Path) -> set[bytes]:
        """The lines of all other packs that can be read; raises OSError."""
        found: set[bytes] = set()
        for path in self.packs():
            if path != but and _is_whole(path):
                with Pack(path) as pack:
                    found.update(place.hash for place in pack.places())
        return found

    def remove(self, pack: Path) -> None:
        """Delete a pack for good; raises OSError."""
        pack.unlink(missing_ok=True)
        self._names = None
        sync_dir(self.directory)
        self._tidy()

    def _tidy(self) -> None:
        with suppress(OSError):  # there are packs, or it was never made
            self.directory.rmdir()


def _in_order(pack: Pack) -> list[PackPlace]:
    return sorted(pack.places(), key=lambda place: place.number)


def may_be_double(names: Iterable[str]) -> bool:
    """Whether, by the names of packs, what one holds may be in another one, too."""
    times = [name.partition("-")[0] for name in names if is_pack(name)]
    return len(times) > len(set(times))


def _is_whole(path: Path) -> bool:
    if problem := why_damaged(path):
        _tell_damaged(path, problem)
    return problem is None


def is_pack(name: str) -> bool:
    """Whether a file of this name is a pack that was finished."""
    return name.endswith(PACK) and not name.startswith(".")


def ref_of(record: Mapping[str, Any]) -> str:
    """The ref that a packed line had in its store."""
    return str(record.get("file", "")).removesuffix(".json")


def packed_line(pack: Path, hash: str) -> bytes | None:
    """The line of a pack with this hash (`sha256:…`); of a damaged one, if it is still there."""
    try:
        return _find(pack, hash)
    except (PackDamaged, OSError) as error:
        _tell_unread(pack, error)
    return None


def _find(pack: Path, hash: str) -> bytes | None:
    """The same; raises OSError, PackDamaged if it was there or may have been."""
    try:
        wanted = bytes.fromhex(hash.removeprefix("sha256:"))
    except ValueError:  # a marker that somebody wrote by hand
        return None
    try:
        with Pack(pack) as opened:
            place = opened.find(wanted)
            return None if place is None else opened.line(place)
    except FileNotFoundError:
        return None  # merged since we looked
    except PackDamaged as problem:
        for hash_, line in salvaged_lines(pack):
            if hash_ == wanted:
                _tell_damaged(pack, problem)
                return line
        raise


def salvaged_lines(pack: Path) -> Iterator[tuple[bytes, bytes]]:
    """What is left in a pack whose index is damaged: SHA-256 and line; raises OSError."""
    for line in salvaged(pack):
        yield hashlib.sha256(line).digest(), line


def _names_in(path: Path) -> Iterator[str]:
    try:
        with Pack(path) as pack:
            yield from map(ref_of, pack.records())
    except (PackDamaged, OSError) as problem:
        _log.debug("A pack does not tell its names", problem=str(problem))


def _tell_unread(pack: Path, error: PackDamaged | OSError) -> str:
    """Log what is wrong with a pack, and say it in words."""
    if isinstance(error, PackDamaged):
        _tell_damaged(pack, error)
        return f"the pack {error}"
    problem = os_problem(error, f"reading the pack {pack}").message
    _log.warning("A pack cannot be read", session=pack.parent.name, problem=problem)
    return problem


_audited: set[Path] = set()


def _tell_damaged(pack: Path, problem: PackDamaged) -> None:
    """Log that a pack is damaged, and audit it once in a process, as a corrupted file is."""
    _log.error(
        "A pack of the archive is damaged",
        session=pack.parent.name,
        problem=str(problem),
        hint="`bsd verify --repair` makes its index anew",
    )
    if pack not in _audited:
        _audited.add(pack)
        AuditLog(Layout(pack.parents[2]).audit_file).record(
            actor="bsd", action="damaged_pack", path=str(pack), problem=str(problem)
        )
