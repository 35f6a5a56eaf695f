"""Finds the directories of files in flight (see `record`), where names can be exchanged.

Some of these directories are writable for agents, and bsd may run as root. So a file does not count
as a record if bsd has not made it, or if another user could have changed it. A record is accepted
only if its session lies where the record does.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bsd.core import filesystem
from bsd.core.errors import (
    BsdError,
    Conflict,
    Forbidden,
    LeftAlone,
    Unavailable,
    os_problem,
)
from bsd.core.files import (
    MEND_PLANTED,
    UntrustedFile,
    make_private_dir,
    makers,
    sync_dir,
    why_not_our_directory,
    why_not_our_file,
)
from bsd.core.layout import Layout, plain_directories
from bsd.sessions.commit.own_commits import OwnCommits
from bsd.sessions.commit.reach import remedy, source_around
from bsd.sessions.commit.record import FILE, RECORD, InFlightRecord, read_record

_PROBE = ".probe"
_OWN = Path(".brainsurgeon") / "inflight"


class InFlight:
    """Finds, for each session directory, an in-flight directory on the same mount."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._root = os.path.realpath(layout.root)
        self._found: dict[Path, Path] = {}
        self._exchanges: dict[int, bool] = {}  # device → whether names can be exchanged there
        self.own = OwnCommits()

    def read(self, path: Path) -> InFlightRecord | None:
        """Read a record like `read_record`; raise Conflict if its session lies elsewhere."""
        record = read_record(path)
        if record is not None and (why := self._disagreement(record)):
            raise Conflict(
                f"the record {path} is refused: {why}",
                hint="look at its files, then remove them: the root may have been moved, or "
                "another user may have put the record there",
            )
        return record

    def _disagreement(self, record: InFlightRecord) -> str | None:
        """Return how a record contradicts itself or its own place; None if it does not."""
        target = Path(os.path.realpath(record.target.parent)) / record.target.name
        home = record.path.parent
        own = self.layout.inflight
        if home != own and os.path.realpath(home) != os.path.realpath(own):
            sessions_or_agent = Path(os.path.realpath(home.parent.parent))
            if sessions_or_agent not in (target.parent, target.parent.parent):
                return f"{record.target} lies elsewhere"
        places = self.layout.places_of(record.session)
        if target in places or not (places or os.path.lexists(record.target)):
            return None  # or the session is gone, so there is no file to change
        return f"{record.target} is not where session {record.session} lies"

    def directory_for(self, session: Path) -> Path:
        """Return the in-flight directory on the mount of `session`.

        Only a trial rename finds it: bind mounts have the same device number and refuse the rename.

        Raises:
            LeftAlone: the file system cannot exchange names.
            Unavailable, Forbidden: no directory can be used.
        """
        sessions = session.parent
        self.refuse_known(sessions)
        found = self._found.get(sessions)
        if found is not None and found.is_dir() and not self._why_not_ours(found):
            return found
        refused = []
        for candidate in self._candidates(sessions):
            try:
                self._make(candidate)
                self._prove(candidate, sessions)
            except OSError as error:
                refused.append(error)
                continue
            self.refuse_known(sessions)
            self._found[sessions] = candidate
            return candidate
        raise self._nowhere(sessions, refused)

    def _nowhere(self, sessions: Path, refused: list[OSError]) -> BsdError:
        reasons = "; ".join(sorted({str(error.strerror) for error in refused}))
        codes = {error.errno for error in refused}
        source = source_around(self.layout, sessions)
        if source is not None and codes & {errno.EXDEV, errno.EROFS}:
            message = f"sessions of {source.name} cannot be exchanged in {sessions}: {reasons}"
            return Unavailable(message, hint=remedy(self.layout, source))
        message = f"no directory for files in flight can be used for {sessions}: {reasons}"
        if planted := next((error for error in refused if isinstance(error, UntrustedFile)), None):
            return Forbidden(message, hint=MEND_PLANTED.format(planted.filename))
        if codes & {errno.EACCES, errno.EPERM, errno.EROFS}:
            return Forbidden(message, hint=f"make {sessions} writable for the user who runs bsd")
        if codes & {errno.ENOSPC, errno.EDQUOT}:
            return Unavailable(message, hint="free some space on that file system")
        hint = f"bsd needs a directory on the mount of {sessions}, e.g. {sessions.parent / _OWN}"
        return Unavailable(message, hint=hint)

    def refuse_known(self, sessions: Path) -> None:
        """Raise LeftAlone if the file system is known to be unable to exchange names."""
        try:
            if self._exchanges.get(sessions.stat().st_dev, True):
                return
            found = filesystem.strength(sessions)
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_problem(error, f"looking at {sessions}") from error
        else:
            raise LeftAlone(
                f"its file system ({found.filesystem}) cannot exchange two names, which bsd "
                "needs to replace a file safely",
                hint=filesystem.MOVE_ELSEWHERE,
            )

    def can_exchange(self, sessions: Path, *, make: bool = False) -> bool | None:
        """Return whether names can be exchanged on the mount of `sessions`; None if unknown.

        Tried once, in an existing directory of bsd's own. `make`: create the root's directory for
        this.
        """
        device = sessions.stat().st_dev
        for candidate in self._candidates(sessions):
            with suppress(OSError):
                if device in self._exchanges:
                    break
                if make and candidate == self.layout.inflight:
                    self._make(candidate)
                if candidate.is_dir() and not self._why_not_ours(candidate):
                    self._prove(candidate, sessions)
        return self._exchanges.get(device)

    def directories(self) -> Iterator[Path]:
        """Yield the trusted in-flight directories that exist under the root."""
        return (place for place in self._places() if self._why_not_ours(place) is None)

    def records(self) -> Iterator[Path]:
        """Yield the records of all commits in flight under the root.

        In each directory, the oldest come first.
        """
        trusted = makers(self.layout.root)
        for directory in self.directories():
            found = [path for path in directory.glob(f"*{RECORD}") if not _why_none(path, trusted)]
            yield from sorted(found, key=_age)

    def readable(self) -> Iterator[InFlightRecord]:
        """Yield the records that can be read; `verify` names the others."""
        for path in self.records():
            with suppress(OSError, BsdError):
                if (record := self.read(path)) is not None:
                    yield record

    def planted(self) -> Iterator[tuple[Path, str]]:
        """Yield files in place of records that bsd does not trust, with the reason.

        They are left alone.
        """
        trusted = makers(self.layout.root)
        for place in self._places():
            if why := self._why_not_ours(place):
                yield place, why
                continue
            for path in sorted(place.glob(f"*{RECORD}")):
                if why := _why_none(path, trusted):
                    yield path, why

    def _places(self) -> Iterator[Path]:
        """Return the existing paths for in-flight directories."""
        places = {str(self.layout.inflight)}
        for sessions in self._session_directories():
            places.update((f"{sessions.parent}/{_OWN}", f"{sessions}/{_OWN}"))
        # Hardly any of them exists, so make paths only of those that do.
        return iter(sorted(map(Path, filter(os.path.lexists, places))))

    def _why_not_ours(self, directory: Path) -> str | None:
        """Return why bsd does not trust the files in a directory; None if it does."""
        real = Path(os.path.realpath(directory))
        if not real.is_relative_to(self._root):
            return "a symbolic link leads out of the root"
        above = directory.parent
        if directory == self.layout.inflight:  # it may be a link to another place in the root
            above, directory = Path(os.path.realpath(above)), real
        trusted = makers(self.layout.root)
        for path in (above, directory):
            try:
                why = why_not_our_directory(path.lstat(), trusted)
            except FileNotFoundError:
                continue
            except OSError as error:
                why = f"it cannot be looked at: {error.strerror}"
            if why:
                return why if path == directory else f"{path}: {why}"
        return None

    def strays(self) -> Iterator[Path]:
        """Yield probes and in-flight files without a record: garbage, unless they are new.

        A record is created first and removed last. Only a power cut can leave a file without a
        record, if the record's name had not reached the disk.
        """
        for directory in self.directories():
            yield from directory.glob(f"*{_PROBE}")
            for file in directory.glob(f"*{FILE}"):
                if not file.with_suffix(RECORD).exists():
                    yield file

    def _session_directories(self) -> Iterator[Path]:
        agents = Path(os.path.realpath(self.layout.agents))
        inside = agents.is_relative_to(self._root)
        for agent in sorted(_subdirectories(self.layout.agents)):
            if self.layout.source_of(agent) is not None:
                continue
            if inside and (plain := plain_directories(agents, agent)):
                yield plain[1]
                continue
            with suppress(BsdError):  # a link out of the root, or an invalid name
                yield self.layout.sessions_dir(agent)

    def is_inside(self, directory: Path) -> bool:
        """Return whether a directory lies under the root, with links resolved."""
        return Path(os.path.realpath(directory)).is_relative_to(self._root)

    def _make(self, directory: Path) -> None:
        """Create a directory of bsd's own, durably; raises OSError, UntrustedFile."""
        if not self.is_inside(directory):
            raise OSError(errno.EXDEV, "a symbolic link leads out of the root")
        self._refuse_others(directory)
        if not directory.is_dir():
            # Durable, since a power cut that removed it would remove the displaced file in it.
            make_private_dir(directory)
            for above in (directory.parent, directory.parent.parent):
                sync_dir(above)
        self._refuse_others(directory)  # another process may have created it first

    def _refuse_others(self, directory: Path) -> None:
        if why := self._why_not_ours(directory):
            raise UntrustedFile(directory, why)

    def _prove(self, candidate: Path, sessions: Path) -> None:
        """Test that files can be created here and renamed to `sessions`; raises OSError if not.

        No file is created in the session directory, which belongs to another program. The test also
        notes whether two files can be exchanged, which a file system supports everywhere or
        nowhere.
        """
        device = sessions.stat().st_dev
        probes = [candidate / f"{secrets.token_hex(8)}{_PROBE}" for _ in range(2)]
        try:
            for probe in probes if device not in self._exchanges else probes[:1]:
                os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            filesystem.refuse_unless_reached(probes[0], sessions)
            if device not in self._exchanges:
                self._exchanges[device] = filesystem.exchanges(*probes)
        finally:
            for probe in probes:
                probe.unlink(missing_ok=True)

    def _candidates(self, sessions: Path) -> Iterator[Path]:
        yield self.layout.inflight
        if self.is_inside(sessions):  # bsd puts no files into another program's directories
            yield sessions.parent / _OWN
            yield sessions / _OWN


def _why_none(path: Path, trusted: frozenset[int]) -> str | None:
    """Return why bsd does not trust a record; None if it does, or if the record is gone."""
    with suppress(FileNotFoundError):
        return why_not_our_file(path.lstat(), trusted)
    return None


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.lstat().st_mtime_ns, path.name
    except FileNotFoundError:  # its process has just finished
        return 0, path.name


def _subdirectories(path: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return [entry.name for entry in entries if os.path.isdir(entry)]
    return []
