"""Writes sessions, calls, usage and savings of this host as Parquet files, without any text.

One file for each kind and day, in partitions as Hive names them:
`calls/host=NAME/date=2026-11-27/part-ID.parquet`. They lie in this host's directory of the bucket,
or in a directory of the user's choice. A day whose rows have not changed is not written again; a
changed day is replaced as a whole. Days are those of UTC: of a session the day on which it began,
of a call its time, of savings the time at which the values left.

A session has rows as long as bsd has the session: in its place, in the trash, or in the archive.
What is deleted or forgotten for good is gone from the files after the next export.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from bsd.bucket.objects import Bucket, open_bucket
from bsd.core.errors import BsdError, ConfigError, LeftAlone, NotFound, os_problem
from bsd.core.file_lock import file_locked
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.prices import PriceTable
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.parquet_rows import KINDS, ParquetRows, has_row, open_rows
from bsd.fleet.rows import EntryFacts
from bsd.fleet.session_rows import SessionRows
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted
from bsd.maintenance.trashed import transcripts
from bsd.transcripts.change import Written

_DATE = re.compile(r"/date=(\d{4}-\d{2}-\d{2})/")


@dataclass(frozen=True, slots=True)
class ParquetExport:
    """The outcome of an export."""

    to: str  # the directory, or the URL of the bucket with this host's directory
    written: int  # files
    unchanged: int
    deleted: int
    sessions: int  # that were read, because they had changed
    failed: tuple[str, ...]  # sessions that could not be read, with the reason
    complete: bool  # False: it was stopped, and the next export goes on


class ParquetTarget(ABC):
    """Where files are written; names are relative to it, with `/`."""

    name: str  # as users know it
    base: str  # what the database of rows calls it
    prefix: str  # before the names of this host's present files

    @abstractmethod
    def present(self, names: Iterable[str]) -> set[str]:
        """Return the names that exist: of those given, and others of this host's own."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Create or replace a file."""

    @abstractmethod
    def delete(self, names: list[str]) -> None:
        """Delete files; one that does not exist is no error."""


class _InBucket(ParquetTarget):
    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self._bucket = bucket
        self.base = bucket.url
        self.prefix = f"{prefix}/"
        self.name = f"{bucket.url}/{prefix}"

    def present(self, names: Iterable[str]) -> set[str]:  # noqa: ARG002 - one list has them all
        return {found.key for found in self._bucket.list_keys(self.prefix.rstrip("/"))}

    def put(self, name: str, data: bytes) -> None:
        self._bucket.put(name, data)

    def delete(self, names: list[str]) -> None:
        self._bucket.delete(names)


class _InDirectory(ParquetTarget):
    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self.base = self.name = str(self._directory)
        self.prefix = ""

    def present(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if (self._directory / name).exists()}

    def put(self, name: str, data: bytes) -> None:
        path = self._directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_name(f"{path.name}.new")  # readers see a whole file or none
            made.write_bytes(data)
            os.replace(made, path)
        except OSError as error:
            raise os_problem(error, f"writing {path}") from error

    def delete(self, names: list[str]) -> None:
        for name in names:
            path = self._directory / name
            try:
                path.unlink(missing_ok=True)
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise os_problem(error, f"deleting {path}") from error


def export_parquet(
    layout: Layout,
    settings: FleetSettings,
    *,
    prices: PriceTable,
    to: Path | None = None,
    since: date | None = None,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> ParquetExport:
    """Bring the Parquet files of this host up to date.

    Args:
        layout: the root.
        settings: name the host, and the bucket.
        prices: for calls of which the program records no cost.
        to: a directory; None: this host's directory in the bucket.
        since: leave files of earlier days as they are, and read no session that has not changed
            since then.
        stopping: returns True if the export should end soon.
        progress: called with the number of sessions that were looked at, and of all.

    Raises:
        Unavailable: DuckDB is not installed, or it failed.
        ConfigError: there is no bucket, or it is encrypted, and `to` names no directory.
        Busy: another export of this root is running.
        BucketUnreachable, BucketRefused, NoBucket: errors of the bucket.
        BsdError: a file cannot be written.
    """
    target = _target(layout, settings, to)
    with file_locked(layout.fleet / "parquet"), open_rows(layout.fleet) as rows:
        read, failed = _read_sessions(layout, rows, prices, since, stopping, progress)
        host = this_host(layout, settings)
        written, unchanged, deleted = _write_files(rows, target, host, since, stopping)
    return ParquetExport(
        to=target.name,
        written=written,
        unchanged=unchanged,
        deleted=deleted,
        sessions=read,
        failed=tuple(failed),
        complete=not stopping(),
    )


def _write_files(
    rows: ParquetRows,
    target: ParquetTarget,
    host: HostDirectory,
    since: date | None,
    stopping: Callable[[], bool],
) -> tuple[int, int, int]:
    """Bring the files up to date; return how many were written, up to date, and deleted."""
    file = f"part-{host.id}.parquet"
    expected = {
        f"{target.prefix}{kind}/host={host.host}/date={day}/{file}": (kind, day, digest)
        for kind in KINDS
        for day, digest in rows.days(kind, since).items()
    }
    noted = rows.written(target.base)
    present = target.present({*expected, *noted})
    written = unchanged = 0
    for name, (kind, day, digest) in expected.items():
        if name in present and noted.get(name) == digest:
            unchanged += 1
            continue
        if stopping():
            return written, unchanged, 0
        target.put(name, rows.parquet(kind, day))
        rows.note_written(target.base, name, digest)
        written += 1
    # If this root was cloned, the files with another id belong to the other machine.
    gone = [
        name
        for name in {*present, *noted} - {*expected}
        if name.endswith(f"/{file}") and (since is None or _is_of(name, since))
    ]
    target.delete(gone)
    for name in gone:
        rows.note_written(target.base, name, None)
    return written, unchanged, len(gone)


def _target(layout: Layout, settings: FleetSettings, to: Path | None) -> ParquetTarget:
    if to is not None:
        return _InDirectory(to)
    if settings.bucket is None:
        raise ConfigError(
            "there is no bucket to export to",
            hint="bsd fleet export --to DIR, or set `bucket` under [fleet] in bsd.toml",
        )
    if settings.encrypt_to:  # nothing could read the files, or they would tell what is encrypted
        raise ConfigError(
            "everything in the bucket is encrypted, and programs could not read encrypted files",
            hint="bsd fleet export --to DIR",
        )
    return _InBucket(open_bucket(settings), this_host(layout, settings).parquet)


def _is_of(name: str, since: date) -> bool:
    """Return True if a file is of this day or later."""
    found = _DATE.search(name)
    return found is not None and found[1] >= since.isoformat()


# --- reading ---


def _read_sessions(
    layout: Layout,
    rows: ParquetRows,
    prices: PriceTable,
    since: date | None,
    stopping: Callable[[], bool],
    progress: Callable[[int, int], None],
) -> tuple[int, list[str]]:
    """Bring the rows up to date; return how many sessions were read, and which could not be."""
    known = rows.versions()
    costs = _hash_of(prices)
    earliest = datetime(since.year, since.month, since.day, tzinfo=UTC).timestamp() if since else 0
    here = {name: Written.of(stat) for name, stat in catalog.with_stats(layout)}
    copies = {
        copy.name: copy for copy in reversed(deleted_sessions(layout)) if copy.name not in here
    }
    files = here | {name: copy.transcript.was.written for name, copy in copies.items()}
    read, failed = 0, []
    for number, (name, file) in enumerate(files.items()):
        if stopping():
            break
        progress(number, len(files))
        copy = copies.get(name)
        version = f"{costs} {copy.origin if copy else ''} {tuple(file)}"
        if known.get(name) == version or (name not in known and file.mtime_ns < earliest * 1e9):
            continue
        try:
            if copy is None:
                source = SessionRows.of(layout, name, prices=prices)
            else:
                source = SessionRows.of_copy(layout, copy, prices=prices)
            entries = _entries(source)
            rows.replace(source.facts(), entries, version)
            read += 1
        except (NotFound, LeftAlone):
            continue  # it vanished, or bsd does not know its form
        except BsdError as problem:
            failed.append(f"{name}: {problem.message}")
    rows.flush()
    rows.drop(_gone(layout, known.keys() - files.keys()))
    return read, failed


def _hash_of(prices: PriceTable) -> str:
    """Return a hash of all prices: with others, all sessions are read again."""
    listed = prices.price_list.listed if prices.price_list else None
    return hashlib.sha256(repr((prices.rows, listed, prices.shipped)).encode()).hexdigest()[:16]


def _entries(source: SessionRows) -> list[EntryFacts]:
    """Return the rows of a session that the files need."""
    entries = list[EntryFacts]()
    for part in source.parts():
        if part.first == 0:  # again: the session was replaced while it was read
            entries.clear()
        entries += filter(has_row, part.rows)
    return entries


def _gone(layout: Layout, names: Iterable[SessionName]) -> list[SessionName]:
    """Return the sessions that bsd has no longer; an error, or a missing disk, is no absence."""
    trashed = {name for name, _ in transcripts(layout)}
    return [
        name
        for name in names
        if layout.excluded(name) or (name not in trashed and is_deleted(layout, name))
    ]
