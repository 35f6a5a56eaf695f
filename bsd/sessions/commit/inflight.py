"""Where files in flight lie (`record` tells what they are), and where names can be exchanged.

Some of these directories lie where agents may write, and bsd may be root. What it has not made
itself, or others could have changed, is no record; and no record speaks of a session that lies
elsewhere than itself.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
    make_private_dir,
    makers,
    sync_dir,
    why_not_our_directory,
    why_not_our_file,
)
from bsd.core.layout import Layout, SessionName, plain_directories
from bsd.core.sources import Source
from bsd.sessions.commit.record import FILE, RECORD, InFlightRecord, read_record
from bsd.transcripts.change import Identity

_PROBE = ".probe"
# What older versions put into session directories, and a crash may have left there.
_PROBE_THERE = ".brainsurgeon-probe"
_OWN = Path(".brainsurgeon") / "inflight"


class InFlight:
    """Finds, for each session directory, an in-flight directory that renames can reach."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._found: dict[Path, Path] = {}
        self._exchanges: dict[int, bool] = {}  # by device: whether names can be exchanged there
        self.own = OwnCommits()

    def read(self, path: Path) -> InFlightRecord | None:
        """Read a record as `read_record` does, and refuse one of a session that lies elsewhere."""
        record = read_record(path)
        if record is not None and (why := self._disagreement(record)):
            raise Conflict(
                f"the record {path} is not believed: {why}",
                hint="was the root moved, or has somebody put it there? its files are left as "
                "they are: look at them, then remove them",
            )
        return record

    def _disagreement(self, record: InFlightRecord) -> str | None:
        """What in a record does not go with where it lies, or with itself."""
        target = Path(os.path.realpath(record.target.parent)) / record.target.name
        home = record.path.parent
        if os.path.realpath(home) != os.path.realpath(self.layout.inflight):
            sessions_or_agent = Path(os.path.realpath(home.parent.parent))
            if sessions_or_agent not in (target.parent, target.parent.parent):
                return f"{record.target} lies elsewhere"
        places = self.layout.places_of(record.session)
        if target in places or not (places or os.path.lexists(record.target)):
            return None  # of a session that has no place any more there is nothing to be changed
        return f"{record.target} is not where session {record.session} lies"

    def directory_for(self, session: Path) -> Path:
        """The in-flight directory on the mount of `session`.

        Only the kernel tells: bind mounts show the same device number and refuse all the same.
        Raises Unavailable, Forbidden, and LeftAlone where names cannot be exchanged.
        """
        sessions = session.parent
        self.refuse_known(sessions)
        found = self._found.get(sessions)
        if found is not None and found.is_dir() and not self._why_not_ours(found):
            return found
        refused = []
        for candidate in self._candidates(sessions):
            try:
                self._refuse_outside(candidate)
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
        if planted := next((error for error in refused if isinstance(error, NotOurRecord)), None):
            return Forbidden(message, hint=MEND_PLANTED.format(planted.filename))
        if codes & {errno.EACCES, errno.EPERM, errno.EROFS}:
            return Forbidden(message, hint=f"make {sessions} writable for the user who runs bsd")
        if codes & {errno.ENOSPC, errno.EDQUOT}:
            return Unavailable(message, hint="free some space on that file system")
        hint = f"bsd needs a directory on the mount of {sessions}, e.g. {sessions.parent / _OWN}"
        return Unavailable(message, hint=hint)

    def refuse_known(self, sessions: Path) -> None:
        """Raise LeftAlone where it has turned out that names cannot be exchanged."""
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
                f"its file system ({found.filesystem}) cannot exchange two names, without which "
                "no file is replaced safely",
                hint=filesystem.MOVE_ELSEWHERE,
            )

    def can_exchange(self, sessions: Path, *, make: bool = False) -> bool | None:
        """Whether names can be exchanged on the mount of `sessions`; None if that is not known.

        Tried once, in a directory of bsd's own; in one that is there, or the root's is made.
        """
        device = sessions.stat().st_dev
        for candidate in self._candidates(sessions):
            with suppress(OSError):
                if device in self._exchanges:
                    break
                if make and candidate == self.layout.inflight:
                    self._refuse_outside(candidate)
                    self._make(candidate)
                if candidate.is_dir() and not self._why_not_ours(candidate):
                    self._prove(candidate, sessions)
        return self._exchanges.get(device)

    def directories(self) -> Iterator[Path]:
        """Every in-flight directory of bsd's own that exists under the root."""
        return (place for place in self._places() if self._why_not_ours(place) is None)

    def records(self) -> Iterator[Path]:
        """Every record of a commit in flight under the root, the oldest first per directory."""
        trusted = makers(self.layout.root)
        for directory in self.directories():
            found = [path for path in directory.glob(f"*{RECORD}") if not _why_none(path, trusted)]
            yield from sorted(found, key=_age)

    def readable(self) -> Iterator[InFlightRecord]:
        """The same, of those that say what they are about; `verify` names the others."""
        for path in self.records():
            with suppress(OSError, BsdError):
                if (record := self.read(path)) is not None:
                    yield record

    def planted(self) -> Iterator[tuple[Path, str]]:
        """What lies where bsd's records do and is none of them, and why; it is left alone."""
        trusted = makers(self.layout.root)
        for place in self._places():
            if why := self._why_not_ours(place):
                yield place, why
                continue
            for path in sorted(place.glob(f"*{RECORD}")):
                if why := _why_none(path, trusted):
                    yield path, why

    def _places(self) -> Iterator[Path]:
        """Where directories for files in flight lie, or something in their place."""
        places = {str(self.layout.inflight)}
        for sessions in self._session_directories():
            places.update((f"{sessions.parent}/{_OWN}", f"{sessions}/{_OWN}"))
        # Hardly any of them exists; so only those that do become paths.
        return iter(sorted(map(Path, filter(os.path.lexists, places))))

    def _why_not_ours(self, directory: Path) -> str | None:
        """What keeps bsd from believing what lies in a directory; None if nothing does."""
        if not self.is_inside(directory):
            return "a symbolic link leads out of the root"
        above = directory.parent
        if directory == self.layout.inflight:  # the root's owner may have put it elsewhere in it
            above, directory = above.resolve(), directory.resolve()
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
        """In-flight files without a record, and probes: garbage once they are not brand-new.

        A record is the first to come and the last to go; only a power cut, which takes names that
        had not reached the disk, can leave a file without one.
        """
        for directory in self.directories():
            yield from directory.glob(f"*{_PROBE}")
            for file in directory.glob(f"*{FILE}"):
                if not file.with_suffix(RECORD).exists():
                    yield file
        in_sources = (directory for _, directory in self.layout.session_dirs())
        away = self.layout.archived_dirs()
        for sessions in (*self._session_directories(), *in_sources, *away):
            if (sessions / _PROBE_THERE).exists():
                yield sessions / _PROBE_THERE

    def _session_directories(self) -> Iterator[Path]:
        agents = Path(os.path.realpath(self.layout.agents))
        inside = self.is_inside(agents)
        for agent in sorted(_subdirectories(self.layout.agents)):
            if self.layout.source_of(agent) is not None:
                continue
            if inside and (plain := plain_directories(agents, agent)):
                yield plain[1]
                continue
            with suppress(BsdError):  # a link that leaves the root, or a name that is none
                yield self.layout.sessions_dir(agent)

    def is_inside(self, directory: Path) -> bool:
        """Tell whether a directory lies under the root, links resolved."""
        real = Path(os.path.realpath(directory))
        return real.is_relative_to(os.path.realpath(self.layout.root))

    def _refuse_outside(self, directory: Path) -> None:
        if not self.is_inside(directory):
            raise OSError(errno.EXDEV, "a symbolic link leads out of the root")

    def _make(self, directory: Path) -> None:
        """Have a directory of bsd's own, durably; raises NotOurs for somebody else's."""
        self._refuse_others(directory)
        _make_durable(directory)
        self._refuse_others(directory)  # who may have been quicker

    def _refuse_others(self, directory: Path) -> None:
        if why := self._why_not_ours(directory):
            raise NotOurRecord(directory, why)

    def _prove(self, candidate: Path, sessions: Path) -> None:
        """See that files can be made here and renamed there; raises OSError if the kernel refuses.

        Nothing is made in the session directory: it is its owner's. Whether two of them can also
        be exchanged is noted; a file system does that everywhere or nowhere.
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
        if self.is_inside(sessions):  # nothing of ours lies in another program's directories
            yield sessions.parent / _OWN
            yield sessions / _OWN


class NotOurRecord(PermissionError):
    """Somebody else's, where a directory of bsd's own should be."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(errno.EPERM, f"{directory} is not bsd's own: {why}", str(directory))


def _why_none(path: Path, trusted: frozenset[int]) -> str | None:
    """What keeps bsd from believing a record; None if nothing does, or if it is gone."""
    with suppress(FileNotFoundError):
        return why_not_our_file(path.lstat(), trusted)
    return None


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.lstat().st_mtime_ns, path.name
    except FileNotFoundError:  # its owner has just finished
        return 0, path.name


def _subdirectories(path: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return [entry.name for entry in entries if os.path.isdir(entry)]
    return []


def _make_durable(directory: Path) -> None:
    """Create it so that a power cut cannot take it, and with it what is displaced into it."""
    if not directory.is_dir():
        make_private_dir(directory)
        for above in (directory.parent, directory.parent.parent):
            sync_dir(above)


# --- what a process remembers of its own commits, and hands to another that works there next ---

# Whoever has forgotten it waits a little longer, and finds late lines with the next look at all
# that is in flight. Of one session: the records that its commits left, each with the displaced file
# as it was when it was last looked at; how we left it, and when others had last written to it
# (epoch ns).
Memory = tuple[dict[Path, Identity | None], tuple[Identity, int] | None]

_MANY = 1000  # sessions; then what is of no use any more is dropped
_USEFUL_NS = 2 * 3600 * 10**9  # no session needs as long a time of quiet


class OwnCommits:
    """What a process remembers of its own commits, by session."""

    def __init__(self) -> None:
        self._look_at = _MANY
        self._left: dict[SessionName, dict[Path, Identity | None]] = {}
        self._own: dict[SessionName, tuple[Identity, int]] = {}

    def hand_over(self, session: SessionName) -> Memory:
        """What is remembered of a session, for another process that will work on it."""
        return self._left.get(session, {}), self._own.get(session)

    def take_over(self, session: SessionName, memory: Memory) -> None:
        """Remember of a session what another process does, and only that."""
        self._left.pop(session, None)
        self._own.pop(session, None)
        self.learn(session, memory)

    def learn(self, session: SessionName, memory: Memory) -> None:
        """Remember of a session what another process does, too."""
        left, own = memory
        if left:
            self._left.setdefault(session, {}).update(left)
        if own is not None:
            self._own[session] = own
            self._tidy(own[0].mtime_ns)

    def _tidy(self, now_ns: int) -> None:
        """Forget what is of no use any more, once there is much."""
        if len(self._own) + len(self._left) < self._look_at:
            return
        own, left = self._own.items(), self._left.items()
        self._own = {name: one for name, one in own if now_ns - one[0].mtime_ns < _USEFUL_NS}
        self._left = {name: records for name, records in left if any(map(_as_it_is, records))}
        self._look_at = max(_MANY, 2 * (len(self._own) + len(self._left)))

    def remember(self, session: SessionName, record: Path) -> None:
        """Note that a commit by this process has left a record."""
        self._left.setdefault(session, {})[record] = None

    def note_own(self, session: SessionName, before: Identity, after: Identity) -> None:
        """Note that what a session is now was written by us, who found it as `before`."""
        used = self.used_before(session, before)
        self._own[session] = after, before.mtime_ns if used is None else used

    def used_before(self, session: SessionName, found: Identity) -> int | None:
        """When others wrote to a session last, if it is as this process left it (epoch ns)."""
        left = self._own.get(session)
        if left is None:
            return None
        was, used_ns = left
        if was.written == found.written:
            return used_ns
        self._own.pop(session, None)
        return None

    def touched(self, session: SessionName) -> dict[Path, Identity | None]:
        """What commits by this process have left for a session and nobody has looked at since.

        Records, the oldest first, whose displaced file has changed since `note_watched`; with that
        file as it is now, None if there is none.
        """
        left = self._left.get(session)
        if left is None:
            return {}
        for record in [record for record in left if _as_it_is(record) is None]:
            del left[record]
        if not left:
            del self._left[session]
        now = {record: _as_it_is(record.with_suffix(FILE)) for record in left}
        return {record: file for record, file in now.items() if not file or file != left[record]}

    def note_watched(self, session: SessionName, record: Path, file: Identity | None) -> None:
        """Note that nothing was to be done about a displaced file as it was then."""
        self._left.get(session, {})[record] = file


def _as_it_is(path: Path) -> Identity | None:
    try:
        return Identity.of(path.lstat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise os_problem(error, f"looking for {path}") from error


# --- whether sessions of a source can be exchanged from this root, and what to do otherwise ---

# Files in flight lie in the root, since nothing of ours lies in other programs' directories; the
# kernel exchanges files within one mount only. A unit's ReadWritePaths makes a mount of each path
# that it names, of one file system though they are.
_CGROUPS = Path("/proc/self/cgroup")
_UNIT = re.compile(r"/system\.slice/(?:.*/)?([^/]+\.service)$", re.MULTILINE)
# Nobody should open so much for writing: `/`, `/home`.
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Unreached:
    """Why no session of a source can be exchanged, and what somebody can do about it."""

    why: str
    remedy: str


def unreached(layout: Layout, source: Source) -> Unreached | None:
    """Say why sessions in a source cannot be exchanged; None if nothing is known to be amiss.

    Only looks; a source that is not there is for others to tell.
    """
    try:
        _look(layout, source.path)
        if source.archived_in is not None:
            _look(layout, source.archived_in)
    except FileNotFoundError:
        return None
    except OSError as error:
        # What only its mode closes may hold directories that are open.
        if error.errno == errno.EACCES:
            if not _is_read_only(source.path):
                return None
            error = OSError(errno.EROFS, os.strerror(errno.EROFS))
        message = f"sessions of {source.name} cannot be exchanged in {source.path}"
        return Unreached(f"{message}: {error.strerror}", remedy(layout, source))
    return None


def remedy(layout: Layout, source: Source) -> str:
    """What brings a source and the root together, in the words of what keeps them apart."""
    root, there = os.path.realpath(layout.root), os.path.realpath(source.path)
    with suppress(OSError):
        if os.stat(root).st_dev != os.stat(there).st_dev:
            return f"put bsd's root on the file system of {there}: files are exchanged within one"
    common = os.path.commonpath([root, there])
    unit = _unit()
    if len(Path(common).parts) < _LEAST_STEPS:
        return f"put bsd's root beside {there}, below one path that is mounted as a whole"
    if unit is None:
        return f"mount {common} as a whole: root and source must lie on one mount"
    path = common.replace("%", "%%")
    path = f'"{path}"' if re.search(r"\s", path) else path
    return (
        f"`systemctl edit {unit}`: [Service] ReadWritePaths= ReadWritePaths={path}, each on a line "
        f"of its own, then `systemctl restart {unit}`: each path in ReadWritePaths becomes a "
        "mount, and root and source must lie on one"
    )


def source_around(layout: Layout, directory: Path) -> Source | None:
    """The source in which a directory of sessions lies."""
    real = Path(os.path.realpath(directory))
    for source in layout.sources:
        if any(real.is_relative_to(os.path.realpath(top)) for top in _tops(source)):
            return source
    return None


def _tops(source: Source) -> Iterator[Path]:
    yield source.path
    if source.archived_in is not None:
        yield source.archived_in


def _look(layout: Layout, directory: Path) -> None:
    """Raise OSError unless a rename could lead from the root's files in flight to a directory."""
    places = (layout.inflight, layout.own, layout.root)
    place = next((each for each in places if each.is_dir()), layout.root)
    filesystem.refuse_unless_reached(place / f"{secrets.token_hex(8)}.probe", directory)


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _unit() -> str | None:
    """The system's unit in which we run, if we do."""
    try:
        found = _UNIT.search(_CGROUPS.read_text(encoding="utf-8", errors="replace"))
    except OSError:  # not Linux
        return None
    return found[1] if found else None
