"""Checks whether bsd can do its work on this machine and in this directory (`bsd doctor`).

The checks take no locks and repair no files. A check may create two empty files in bsd's own
directory for a moment, to find out whether the file system can exchange names.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from bsd import __version__
from bsd.core.clock import check_clock
from bsd.core.durations import spell_seconds
from bsd.core.errors import UPDATE_BSD, BsdError, ConfigError
from bsd.core.files import MEND_PLANTED, is_there
from bsd.core.filesystem import MOVE_ELSEWHERE, Strength, strength, without_exchange
from bsd.core.formatting import format_size, iso_utc
from bsd.core.layout import Layout
from bsd.core.processes import described
from bsd.maintenance import catalog
from bsd.maintenance.disk_use import in_flight_use
from bsd.maintenance.file_owners import wrongly_owned
from bsd.maintenance.project_memory import memory_of
from bsd.maintenance.unknown_forms import look
from bsd.maintenance.verify import verify
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.reach import unreached
from bsd.transcripts.agents.program import Free, HeldLock, LockState, Stale
from bsd.transcripts.agents.programs import elsewhere, program_of

_INOTIFY = Path("/proc/sys/fs/inotify")
_LIBRARIES = ("click", "filelock", "orjson", "pydantic", "rich", "structlog", "watchdog")
_FINDINGS_SHOWN = 5
# A commit makes a second copy of the session, and the store keeps the extracted values.
_COPIES_OF_THE_LARGEST = 2
_COMFORTABLE_FREE_BYTES = 1 << 30


class Level(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"  # works, with a limitation
    FAIL = "fail"  # bsd cannot do its work, or content is missing


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    level: Level
    message: str
    hint: str | None = None


def examine(layout: Layout) -> Iterator[Check]:
    """Yield the results of all checks of a root and of this machine."""
    yield versions()
    for check in (
        *(_root, _owners, _privacy, _agents, _sources, _forms, _memory, _mounts, _space),
        *(_watches, _locks, _in_flight, _store),
    ):
        try:
            yield from check(layout)
        except BsdError as error:
            yield Check("access", Level.FAIL, error.message, error.hint)
        except OSError as error:
            message = f"{error.filename}: {error.strerror}"
            yield Check("access", Level.FAIL, message, "run bsd as the owner of these files")


def versions() -> Check:
    """Return the versions of bsd, Python and the libraries, for bug reports."""
    known = []
    for name in _LIBRARIES:
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # a library without metadata works, too
            known.append(f"{name} ?")
    message = (
        f"bsd {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()}; {', '.join(known)}"
    )
    return Check("versions", Level.OK, message)


def _root(layout: Layout) -> Iterator[Check]:
    if not is_there(layout.root):
        message = f"{layout.root} does not exist yet: the first command that writes creates it"
        yield Check("root", Level.OK, message)
        return
    owner, us = layout.root.stat().st_uid, os.geteuid()
    if owner == us:
        yield Check("root", Level.OK, f"{layout.root} belongs to the user who runs bsd")
    elif us == 0:
        message = f"{layout.root} belongs to uid {owner}, and bsd runs as root"
        hint = "run bsd as that user, or the user cannot use the files that root creates"
        # Reached only through the library: commands switch to the owner.
        yield Check("root", Level.WARN, message, hint)
    else:
        message = f"{layout.root} belongs to uid {owner}, and bsd runs as uid {us}"
        hint = "run bsd as the owner: only the owner may hold leases and keep file owners"
        yield Check("root", Level.FAIL, message, hint)
    closed = [
        path for path in _working_directories(layout) if not os.access(path, os.W_OK | os.X_OK)
    ]
    if closed:
        names = ", ".join(map(str, closed))
        yield Check("permissions", Level.FAIL, f"not writable: {names}", "chmod u+wx these")
    else:
        yield Check("permissions", Level.OK, "all directories can be written")


def _owners(layout: Layout) -> Iterator[Check]:
    """Check that all files of bsd belong to the owner of the root."""
    if not is_there(layout.root):
        return
    found = wrongly_owned(layout.root, os.environ)
    if not found:
        yield Check("owners", Level.OK, "all files of bsd belong to the owner of the root")
        return
    shown = ", ".join(f"{path} (uid {uid})" for path, uid in found[:_FINDINGS_SHOWN])
    more = ", …" if len(found) > _FINDINGS_SHOWN else ""
    message = f"{_counted(len(found), 'file')} of bsd not owned by the root's owner: {shown}{more}"
    hint = f"`sudo bsd --root {layout.root} doctor --repair`"
    if any(uid != 0 for _, uid in found):
        hint += " for the files of the superuser; chown for the others"
    yield Check("owners", Level.FAIL, message, hint)


def _working_directories(layout: Layout) -> list[Path]:
    stored = [layout.extracted, layout.archive]
    ours = [layout.root, layout.own, *stored, layout.log_file.parent]
    return [path for path in (*ours, *_session_directories(layout)) if path.is_dir()]


def _session_directories(layout: Layout) -> list[Path]:
    found = []
    for agent in catalog.agents(layout):
        try:
            found.append(layout.sessions_dir(agent.name))
        except BsdError:  # `_agents` reports the problem
            continue
    return [path for path in (*found, *layout.archived_dirs()) if path.is_dir()]


def _privacy(layout: Layout) -> Iterator[Check]:
    ours = (
        layout.own,
        layout.extracted,
        layout.archive,
        layout.own / "audit.jsonl",
        layout.config_file,
    )
    wide = [path for path in ours if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077]
    if wide:
        names = " ".join(map(str, wide))
        message = f"other users may read files of bsd: {names}"
        yield Check("privacy", Level.WARN, message, f"chmod go= {names}")
    else:
        yield Check("privacy", Level.OK, "other users cannot read the files of bsd")


def _agents(layout: Layout) -> Iterator[Check]:
    found = catalog.agents(layout)
    sessions = sum(agent.sessions for agent in found)
    noted = [agent for agent in (*found, *catalog.links(layout)) if agent.note]
    if not found:
        hint = "is this OpenClaw's directory? --root DIR names another one"
        yield Check("agents", Level.WARN, f"no agents under {layout.agents}", hint)
    else:
        yield Check(
            "agents",
            Level.OK,
            f"{_counted(len(found), 'agent')} with {_counted(sessions, 'session')}",
        )
    for agent in noted:
        yield Check("agents", Level.WARN, f"{agent.name}: {agent.note}")


def _sources(layout: Layout) -> Iterator[Check]:
    for source in layout.sources:
        if not source.path.is_dir():
            message = f"there is no {source.path}, the directory of the source {source.name}"
            yield Check("sources", Level.WARN, message, "correct `path` in bsd.toml, [[sources]]")
            continue
        away = source.archived_in
        message = f"{source.name} is {source.path}" + (f", with {away}" if away else "")
        if why := elsewhere(layout, source, look_inside=True):
            hint = f"`bsd sources claim {source.name}` moves it here"
            yield Check("sources", Level.WARN, f"{message}, and only read: {why}", hint)
        if found := unreached(layout, source):
            yield Check("sources", Level.FAIL, found.why, found.remedy)
        else:
            yield Check("sources", Level.OK, message)
        if os.geteuid() == 0 != (owner := source.path.stat().st_uid):
            message = f"{source.name} belongs to uid {owner}, and bsd runs as root"
            hint = "let that user run bsd with a root of their own: the user can rename files there"
            yield Check("sources", Level.WARN, message, hint)
        if (
            source.program_archive
            and (named := source.path.parent / source.program_archive.called).is_symlink()
        ):
            message = f"{named} is a symbolic link, which bsd does not follow"
            hint = "replace it with a directory, so that bsd finds the sessions in it"
            yield Check("sources", Level.WARN, message, hint)


def _forms(layout: Layout) -> Iterator[Check]:
    """Check that bsd understands the newest sessions of each program."""
    found = list(look(layout, time.time()))
    for each in found:
        yield Check("forms", Level.WARN, f"{each.title}: {each}", UPDATE_BSD)
    if not found:
        yield Check("forms", Level.OK, "no session has a form that bsd does not know")


def _memory(layout: Layout) -> Iterator[Check]:
    """Warn about project memories that are not copied because they lie behind a link."""
    linked = []
    with suppress(ConfigError):  # a root without agents
        for agent in catalog.agents(layout):
            with suppress(BsdError):  # `_agents` reports the problem
                place = memory_of(layout, agent.name)
                if place is not None and place.is_symlink():
                    linked.append(str(place))
    if linked:
        message = f"memory behind a symbolic link is not copied: {', '.join(linked)}"
        yield Check("memory", Level.WARN, message, "back up the directory to which the link leads")


def _mounts(layout: Layout) -> Iterator[Check]:
    seen: dict[int, Path] = {}
    for path in _session_directories(layout) or [layout.root]:
        seen.setdefault(path.stat().st_dev, path)
    inflight = InFlight(layout)
    for path in seen.values():
        found = strength(path)
        # The trial writes to a directory of bsd, so it is made only in case of doubt.
        known = inflight.can_exchange(path) if found.level == "weak" else None
        yield _mount(path, without_exchange(found) if known is False else found, tried=bool(known))


def _mount(path: Path, found: Strength, *, tried: bool) -> Check:
    where = f"{path} lies on {found.filesystem}"
    if found.level == "none":
        message = f"none: {where}; {found.why}, so sessions there are left alone"
        return Check("leases", Level.FAIL, message, MOVE_ELSEWHERE)
    if found.level == "strong":
        message = f"strong: {where}; a write lease proves that no program has a session open"
        return Check("leases", Level.OK, message)
    message = (
        f"weak: {where}; {found.why}. bsd waits for "
        f"{found.quiet_seconds:.0f} s of quiet, looks for open files and "
        "watches the replaced file; a program that holds a session open for over a minute and then "
        "writes, writes into the replaced file"
    )
    if not tried:
        message += "; the first change shows whether the file system can exchange names at all"
    hint = "keep the sessions on ext4, xfs, btrfs, f2fs, zfs or tmpfs"
    return Check("leases", Level.WARN, message, hint)


def _space(layout: Layout) -> Iterator[Check]:
    largest = max((stat.st_size for _, stat in catalog.with_stats(layout)), default=0)
    place = layout.root
    while not is_there(place):  # the root will be created below this directory
        place = place.parent
    free = shutil.disk_usage(place).free
    message = f"{free / 2**20:,.0f} MB free; the largest session has {largest / 2**20:,.1f} MB"
    hint = "free some space: a commit copies the session, and the store keeps extracted values"
    if free < _COPIES_OF_THE_LARGEST * largest:
        yield Check("space", Level.FAIL, message, hint)
    elif free < _COMFORTABLE_FREE_BYTES:
        yield Check("space", Level.WARN, message, hint)
    else:
        yield Check("space", Level.OK, message)


def _watches(layout: Layout) -> Iterator[Check]:
    if sys.platform != "linux":
        return
    try:
        limit = int((_INOTIFY / "max_user_watches").read_text())
        instances = int((_INOTIFY / "max_user_instances").read_text())
    except (OSError, ValueError):
        yield Check("inotify", Level.WARN, f"the limits in {_INOTIFY} cannot be read")
        return
    needed = len(_session_directories(layout)) + len(catalog.agents(layout)) + 1
    message = f"{needed} directories to watch; {limit:,} watches and {instances} instances allowed"
    if needed > limit // 2:
        hint = f"sysctl fs.inotify.max_user_watches={max(2 * needed, 2 * limit)}"
        yield Check("inotify", Level.WARN, message, hint)
    else:
        yield Check("inotify", Level.OK, message)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _locks(layout: Layout) -> Iterator[Check]:
    held: list[str] = []
    amiss = False
    for path, state in _lock_files(layout):
        if isinstance(state, HeldLock):
            held.append(f"{path} by {described(state.pid)}, {spell_seconds(state.seconds)} ago")
        elif not isinstance(state, Free):
            amiss = True
            kind = "stale" if isinstance(state, Stale) else "unusable"
            message = f"{kind} lock {path}: {state.reason}"
            yield Check("locks", Level.WARN, message, _LOCK_HINTS[kind])
    if not amiss:
        are = "1 session is" if len(held) == 1 else f"{len(held)} sessions are"
        shown = f": {'; '.join(held[:_FINDINGS_SHOWN])}" if held else ""
        more = "; …" if len(held) > _FINDINGS_SHOWN else ""
        message = f"{are} locked by a living process{shown}{more}"
        yield Check("locks", Level.OK, message)


def _lock_files(layout: Layout) -> Iterator[tuple[Path, LockState]]:
    for agent in catalog.agents(layout):
        with suppress(BsdError):  # `_agents` reports the problem
            yield from program_of(layout, agent.name).lock_files()


_LOCK_HINTS = {
    "stale": "no action needed: the next program that needs the session removes the lock",
    "unusable": "no action needed yet: bsd respects the lock until it is 30 minutes old",
}


def _in_flight(layout: Layout) -> Iterator[Check]:
    found = in_flight_use(layout)
    message = f"{_counted(found.files, 'replaced version')} of sessions in flight"
    if found.due_at is not None and found.due_at < time.time():
        message += f" ({format_size(found.bytes)}), due since {iso_utc(found.due_at)}"
        yield Check("in flight", Level.WARN, message, "`bsd verify` removes those that are due")
    else:
        yield Check("in flight", Level.OK, message)
    for path, why in islice(InFlight(layout).planted(), _FINDINGS_SHOWN):
        message = f"{path} is left alone, it is not bsd's own: {why}"
        yield Check("in flight", Level.WARN, message, MEND_PLANTED.format(path))


def clock(layout: Layout) -> Check:
    """Check whether the next retention run will trust the clock and delete by age."""
    if why := check_clock(layout, "retention").doubt:
        hint = "the next run deletes no files; `bsd retention --trust-clock` if the clock is right"
        return Check("clock", Level.WARN, why, hint)
    return Check("clock", Level.OK, "no reason to doubt it")


def _store(layout: Layout) -> Iterator[Check]:
    found = verify(layout)
    open_findings = [finding for finding in found.findings if finding.is_open]
    placeholders = _counted(found.placeholders, "placeholder")
    summary = f"{placeholders}, {_counted(found.files, 'stored file')}"
    summary += f", {found.expired} expired" if found.expired else ""
    if gone := sum(finding.kind == "no_transcript" for finding in found.findings):
        message = f"{_counted(gone, 'store')} of sessions whose transcripts do not exist"
        yield Check("store", Level.OK, message, "`bsd verify` says where they may be")
    if large := [one.where for one in found.findings if one.kind == "too_large_in_memory"]:
        message = f"{_counted(len(large), 'line')} that would take too much memory: {large[0]}"
        hint = "no action needed: bsd skips only these lines; `bsd verify` lists them"
        yield Check("sessions", Level.WARN, message, hint)
    for finding in found.findings:
        if finding.kind == "elsewhere":
            message = f"{finding.where} is left alone: {finding.message}"
            yield Check("sessions", Level.WARN, message, finding.hint)
    if not open_findings:
        yield Check("store", Level.OK, f"{summary}, all intact")
        return
    hint = "`bsd verify` lists all problems, `bsd verify --repair` repairs those it can"
    yield Check("store", Level.FAIL, f"{summary}, {_counted(len(open_findings), 'problem')}", hint)
    for finding in open_findings[:_FINDINGS_SHOWN]:
        message = f"{finding.kind}: {finding.where}: {finding.message}"
        yield Check("store", Level.FAIL, message, finding.hint)
