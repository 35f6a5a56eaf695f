"""The daemon's answers about its state; `status` defines their fields."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from bsd import __version__
from bsd.core.answers import as_json
from bsd.core.audit import RESTORE_FAILED, AuditLog
from bsd.core.clock import RunTime, check_clock
from bsd.core.config import PruningConfig
from bsd.core.errors import BsdError, os_problem
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.core.pauses import PauseInfo, pauses_of
from bsd.core.sources import Source
from bsd.daemon.children import Children
from bsd.daemon.directories import Trouble, WatchProblem
from bsd.daemon.fleet_report import fleet_report
from bsd.daemon.indexer import Indexer
from bsd.daemon.jobs import JobRunner
from bsd.daemon.loops import Clocks
from bsd.daemon.notices import notices_of
from bsd.daemon.queue import WorkQueue
from bsd.daemon.state import DaemonState
from bsd.daemon.status import DaemonStatus, Health
from bsd.daemon.uploader import Sender
from bsd.daemon.watcher import Watcher, WatchHealth
from bsd.daemon.worker import Workers
from bsd.maintenance.archive_limit import ArchiveOverLimit, archive_use
from bsd.maintenance.daily_sizes import note_sizes
from bsd.maintenance.disk_use import disk_use
from bsd.maintenance.expiry import Forecast, RetentionTarget, forecast
from bsd.maintenance.retention import archive_forecast
from bsd.maintenance.targets import ArchivePacks, ExtractedFiles, TrashedSessions
from bsd.planning.timing import Timing
from bsd.planning.timing_words import rewritten
from bsd.sessions.commit.late import list_orphans
from bsd.sessions.commit.reach import unreached
from bsd.setup.unserved import dismissed, note_dismissed, unserved
from bsd.store.snapshots import NO_COPIES, copies_use
from bsd.transcripts.agents.programs import elsewhere, served_by

# Reading the sizes of all stored files takes at most 1 % of the time: the pause after a run is at
# least 100 times as long as the run.
_LOOKING_SHARE = 100
_LONGEST_PAUSE_SECONDS = 60.0
# Bytes of sessions that one answer reads, until the search index knows their extracted values.
_MARKERS_BUDGET = 64 << 20

# These problems end without an action, or are about single files that bsd leaves alone.
_HARMLESS = {Trouble.AGENTS_MISSING, Trouble.UNWATCHED, Trouble.LINK, Trouble.SYNC_COPY}


class DaemonReport:
    """Builds the answers. `next_retention` returns the time of its next run (epoch seconds)."""

    def __init__(  # noqa: PLR0913 - the parts of a daemon
        self,
        state: DaemonState,
        *,
        watcher: Watcher,
        workers: Workers,
        children: Children,
        jobs: JobRunner,
        indexer: Indexer,
        senders: Sequence[Sender] = (),
        next_retention: Callable[[], float | None],
    ) -> None:
        self._state = state
        self._watcher = watcher
        self._workers = workers
        self._children = children
        self._jobs = jobs
        self._indexer = indexer
        self._senders = senders
        self._next_run = next_retention
        layout, clocks = state.layout, state.clocks
        self._disk_use = _Paced(partial(disk_use, layout, _MARKERS_BUDGET), clocks.wall)
        self._next_retention = _Paced(partial(_retention, layout, clocks), clocks.wall)
        self._unrecognised = _Paced(self._look_for_unrecognised, clocks.wall)
        self._failed_restores = _FailedRestores(layout)

    def health(self) -> dict[str, Any]:
        """Return the fields of `Health`."""
        state = self._state
        late = state.beats.late()
        found = (*self._watcher.health.problems, *state.scan.problems)
        problems = [str(one) for one in found if one.kind not in _HARMLESS]
        if not state.settings.readonly:
            problems += _source_problems(state.layout)
        problems += state.mounts.problems()
        if state.config.problem:
            problems.append(state.config.problem.message)
        forms = [*state.not_understood.unknown_forms(), *self._unrecognised.answer()["found"]]
        well: Literal["ok", "degraded"] = "degraded" if late or problems else "ok"
        health = Health(
            status=well if state.phase == "running" else state.phase,
            version=__version__,
            pid=os.getpid(),
            uptime_seconds=self._uptime(),
            late=late,
            problems=list(dict.fromkeys(problems)),
            not_understood=[f"{each['title']}: {each['text']}" for each in forms],
        )
        return as_json(health)

    def status(self) -> dict[str, Any]:
        """Return the fields of `DaemonStatus`."""
        state = self._state
        config, problem = state.config.current, state.config.problem
        status = DaemonStatus(
            state=state.phase,
            pid=os.getpid(),
            version=__version__,
            root=str(state.layout.root),
            page=state.page,
            started_at=iso_utc(state.started_at),
            uptime_seconds=self._uptime(),
            enabled=config.enabled,
            readonly=state.settings.readonly,
            auto_refresh_ms=state.settings.auto_refresh_ms,
            roots=state.mounts.snapshot(),
            watcher=_watcher(self._watcher.health, state.scan.problems),
            queue={
                **_queue(state.queue, len(state.enqueuer), len(state.savings), state.scan.left),
                "cache_warm": len(state.waiting),
            },
            prompt_cache=_prompt_cache(list(state.waiting.values())),
            workers=self._workers.snapshot(),
            children=self._children.snapshot(),
            totals={"sessions": len(state.scan), **self._totals()},
            left_alone=state.ledger.left_alone(),
            unknown_forms=state.not_understood.unknown_forms(),
            unrecognised=self._unrecognised.answer()["found"],
            exclude=[each.pattern for each in state.layout.exclusions().all],
            pauses=_pauses(state.layout, state.clocks),
            sessions=[],
            orphans=_orphans(state.layout),
            disk=self._disk_use.answer(),
            sources=_sources(state.layout),
            unserved=unserved(state.layout, os.environ),
            not_copied=[
                {"session": str(name), "why": why}
                for name, why in sorted(self._jobs.not_copied.items())
            ],
            room=_room(state.layout),
            notices=[],
            clock=self._jobs.clock_in_doubt,
            search=self._indexer.state(),
            fleet=fleet_report(
                state.layout, state.settings.fleet, self._senders, state.clocks.wall()
            ),
            config={
                "path": str(state.layout.config_file),
                "problem": problem.message if problem else None,
            },
            retention=self._next_retention.answer(config, self._next_run()),
        )
        # The ledger has the results as JSON already; converting them again would take most of the
        # time of this answer.
        document = {**as_json(status), "sessions": state.ledger.sessions()}
        return document | {"notices": self._notices(document)}

    def _notices(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the notices.

        If the problem of a dismissed notice ends, the notice counts as new when it returns.
        """
        state = self._state
        found, known = notices_of(document), dismissed(state.layout)
        over = known - {notice.id for notice in found}
        if over and state.phase == "running" and not state.settings.readonly:
            note_dismissed(state.layout, known - over)
        return [notice.as_json(dismissed=notice.id in known) for notice in found]

    def _look_for_unrecognised(self) -> dict[str, Any]:
        return {"found": self._state.not_understood.unrecognised(self._state.clocks.wall())}

    def note_sizes(self) -> None:
        """Save the disk use of sessions and of bsd, once a day; raises BsdError."""
        layout = self._state.layout
        try:
            note_sizes(layout, self._disk_use.answer, self._state.clocks.wall())
        except OSError as error:
            raise os_problem(error, f"writing {layout.sizes_file}") from error

    def in_short(self) -> str:
        """Return one line for the service manager."""
        health, counts = self._watcher.health, self._state.queue.counts()
        return (
            f"{len(self._state.scan)} sessions, "
            f"{health.watched} of {health.dirs} directories watched, "
            f"{counts.parked} sessions parked"
        )

    def forget_retention(self) -> None:
        """Compute the disk use and the forecast of retention again for the next status."""
        self._next_retention.forget()
        self._disk_use.forget()

    def _uptime(self) -> float:
        return round(self._state.clocks.wall() - self._state.started_at, 3)

    def _totals(self) -> dict[str, Any]:
        totals = self._state.ledger.totals()
        totals["restores_failed"] = self._failed_restores.count()
        totals["crashes"] += sum(loop.crashes for loop in self._state.loops.values())
        return totals


def _watcher(health: WatchHealth, scan_problems: tuple[WatchProblem, ...]) -> dict[str, Any]:
    """Return the watched directories, and the problems with watching."""
    problems = dict.fromkeys((*health.problems, *scan_problems))
    return {
        "directories": health.dirs + health.scan_only,
        "watched": health.watched,
        "scan_only": health.scan_only,
        "problems": [
            {"kind": str(each.kind), "text": each.text, "remedy": each.remedy} for each in problems
        ],
    }


def _queue(work: WorkQueue, debouncing: int, gathering: int, left: int) -> dict[str, Any]:
    """Return the numbers of waiting sessions.

    Args:
        debouncing: sessions that wait for their quiet time.
        gathering: sessions that wait for larger savings.
        left: sessions that are ready, but that the scan has left for later.
    """
    counts = work.counts()
    return {
        "debouncing": debouncing,
        "waiting": counts.waiting,
        "ready": counts.ready + left,
        "working": counts.working,
        "gathering": gathering,
        "refused": counts.refused,
        "retried": counts.retried,
        "parked": [
            {"session": str(each.session), "error": each.error, "failures": each.failures}
            for each in work.parked()
        ],
    }


def _prompt_cache(waits: Sequence[Timing]) -> dict[str, Any]:
    """Return the sums over the sessions that wait for their prompt cache."""
    costs = [wait.dollars for wait in waits if wait.dollars is not None]
    cold = min((wait.cold_at for wait in waits if wait.cold_at is not None), default=None)
    return {
        "sessions": len(waits),
        "tokens_ready": sum(wait.cut.removed for wait in waits),
        "tokens_rewritten": sum(map(rewritten, waits)),
        "cost_now": round(sum(costs), 6) if costs else None,
        "unpriced": len(waits) - len(costs),
        "next_cold": None if cold is None else iso_utc(cold),
    }


def _room(layout: Layout) -> dict[str, int]:
    """Return the free and total bytes of the root's disk; an empty dict if they are unknown."""
    try:
        disk = os.statvfs(layout.root)
    except OSError:
        return {}
    return {"free": disk.f_bavail * disk.f_frsize, "size": disk.f_blocks * disk.f_frsize}


def _pauses(layout: Layout, clocks: Clocks) -> list[dict[str, Any]]:
    """Return the pauses in force; an empty list if their file cannot be read."""
    with suppress(BsdError):
        wall = clocks.wall()
        found = pauses_of(layout, wall, clocks.steady())
        return [as_json(PauseInfo.of(each, wall)) for each in found]
    return []


def _orphans(layout: Layout) -> dict[str, int]:
    """Return the number and size of late lines that a person must handle."""
    found = list_orphans(layout)
    return {"count": len(found), "bytes": sum(orphan.size for orphan in found)}


def _sources(layout: Layout) -> list[dict[str, Any]]:
    """Return the sources, each with the root that serves it, and with problems."""
    return [_source(layout, source) for source in layout.sources]


def _source(layout: Layout, source: Source) -> dict[str, Any]:
    left_alone = elsewhere(layout, source)
    found = None if left_alone else unreached(layout, source)
    return {
        "name": source.name,
        "kind": source.kind,
        "path": str(source.path),
        "served_by": served_by(layout, source),
        "left_alone": left_alone,
        "problem": {"text": found.why, "remedy": found.remedy} if found else None,
    }


def _source_problems(layout: Layout) -> list[str]:
    """Return a sentence with a hint for each source that this root cannot serve."""
    problems = (each["problem"] for each in _sources(layout))
    return [f"{each['text']} (try: {each['remedy']})" for each in problems if each]


class _Paced:
    """A cache for an answer that takes long to compute; it is limited in time, and by `forget`."""

    def __init__(self, look: Callable[..., dict[str, Any]], clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: dict[str, Any] | None = None
        self._asked: tuple[object, ...] = ()
        self._until = 0.0

    def forget(self) -> None:
        """Drop the cached answer."""
        with self._lock:
            self._answer = None

    def answer(self, *asked: object) -> dict[str, Any]:
        """Return the answer of `look` with these arguments, cached if it is recent enough."""
        now = self._clock()
        with self._lock:
            if self._answer is None or self._asked != asked or now >= self._until:
                self._answer = self._look(*asked)
                took = max(0.0, self._clock() - now)
                pause = min(_LOOKING_SHARE * took, _LONGEST_PAUSE_SECONDS)
                self._asked, self._until = asked, now + took + pause
            return self._answer


class _FailedRestores:
    """Counts the restores that have failed since the start, of all processes, by the audit."""

    def __init__(self, layout: Layout) -> None:
        self._audit = AuditLog(layout.audit_file)
        self._lock = threading.Lock()
        self._offset = self._audit.size()
        self._number = 0

    def count(self) -> int:
        with self._lock:
            new, self._offset = self._audit.count(RESTORE_FAILED, self._offset)
            self._number += new
            return self._number


def _retention(
    layout: Layout, clocks: Clocks, config: PruningConfig, next_run: float | None
) -> dict[str, Any]:
    """Return the files that the next run of retention will delete; `next_run` in epoch seconds."""
    run = check_clock(layout, "retention", clocks.wall, clocks.steady)
    if next_run is not None:
        run = replace(run, now=next_run)
    trash = _forecast(TrashedSessions(layout, config.trash_retention), run)
    trash["sessions"] = trash.pop("files")  # each file in the trash is a session
    trash |= _in_trash(layout, config)
    packed_at = run.now if config.archive else None
    return {
        "next_run": None if next_run is None else iso_utc(next_run),
        **_forecast(ExtractedFiles(layout, config.retention, packed_at=packed_at), run),
        "archive": _archive(layout, config, run),
        "copies": {"keep": config.archive_sessions, **_copies(layout)},
        "trash": trash,
    }


def _in_trash(layout: Layout, config: PruningConfig) -> dict[str, int]:
    """Return the number and size of all sessions in the trash, due or not."""
    with suppress(BsdError, OSError):  # it is reported as a problem of the trash
        trash = TrashedSessions(layout, config.trash_retention)
        found = [file.size for place in trash.places() for file in trash.look(place).files]
        return {"all_sessions": len(found), "all_bytes": sum(found)}
    return {"all_sessions": 0, "all_bytes": 0}


def _copies(layout: Layout) -> dict[str, Any]:
    with suppress(BsdError, OSError):  # it is reported as a problem of the archive
        return as_json(copies_use(layout))
    return as_json(NO_COPIES)


def _archive(layout: Layout, config: PruningConfig, run: RunTime) -> dict[str, Any]:
    """Return the content and savings of the archive, and the files that will be deleted."""
    packs = ArchivePacks(layout, config.archive_retention)
    answer = _forecast(packs, run, partial(archive_forecast, layout, config))
    most = config.archive_max_bytes
    answer |= {"on": config.archive, "most_bytes": most, "used_bytes": None, "nearly_full": False}
    with suppress(BsdError, OSError):  # `problem` has it already
        answer |= archive_use(layout).as_json()
        if most:
            limit = ArchiveOverLimit(layout, most)
            answer |= {"used_bytes": limit.used, "nearly_full": limit.is_near}
    return answer


def _forecast(
    target: RetentionTarget,
    run: RunTime,
    foretell: Callable[[RunTime], Forecast] | None = None,
) -> dict[str, Any]:
    """Return the files that a run deletes, and why it holds back others.

    `foretell` replaces `forecast` for the target.
    """
    held = target.why_held(run)
    answer = {"keep": target.keep, "held": held, "files": 0, "bytes": 0, "next_expiry": None}
    try:
        found = foretell(run) if foretell else forecast(target, run)
    except BsdError as problem:
        return {**answer, "problem": problem.message}
    expiry = found.next_expiry
    return {
        **answer,
        "held": found.held,
        "files": len(found.going),
        "bytes": found.bytes,
        "next_expiry": None if expiry is None else iso_utc(expiry),
    }
