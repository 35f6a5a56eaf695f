"""How the daemon is, and what it does: health, status, jobs, what was saved, its settings.

`/api/metrics` tells Prometheus the same in numbers; their names and helps are a contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from bsd.care.disk_use import SavedByHour, Savings
from bsd.daemon.status import DaemonStatus, Health, Job, Jobs, Service
from bsd.doors.http import early
from bsd.doors.http.answer import JsonAnswer, changing, in_thread
from bsd.doors.http.route import ApiRoute, actor_of, json_object
from bsd.foundation.definition import Body
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.pruning_fields import SETTINGS

Document = Mapping[str, Any]

# Counters since the start: status' `totals` → name without `_total`, help.
_TOTALS = {
    "commits": ("bsd_commits", "Session files that were replaced."),
    "values": ("bsd_extracted_values", "Values moved into the store."),
    "entries": ("bsd_extracted_entries", "Entries of which at least one value was moved."),
    "bytes_saved": ("bsd_bytes_saved", "Bytes by which session files became smaller."),
    "tokens_saved": ("bsd_tokens_saved", "Tokens, estimated, that are no longer sent."),
    "bytes_written": (
        "bsd_bytes_written",
        "Bytes written; divided by bsd_bytes_saved_total: what saving a byte costs the disk.",
    ),
    "busy": ("bsd_sessions_busy", "Times that a session was in use and work on it was put off."),
    "failed": ("bsd_sessions_failed", "Times that work on a session failed."),
    "helpers_replaced": ("bsd_helpers_replaced", "Exchange helpers that died and were replaced."),
    "workers_replaced": ("bsd_workers_replaced", "Workers that died and were replaced."),
    "crashes": ("bsd_loop_crashes", "Steps of loops that ended with an exception."),
}
_PAGE = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_QUEUE = ("debouncing", "waiting", "ready", "working", "gathering")


def routes(daemon: Service, audit_file: Path) -> list[ApiRoute]:
    saved = SavedByHour(audit_file)
    page = MetricsPage(daemon.status, daemon.jobs, daemon.health)

    async def health(_: Request) -> Response:
        """Whether all is well. 503 before the start is complete and while it stops."""
        return await in_thread(early.health, daemon)

    async def status(_: Request) -> Response:
        """Everything at a glance."""
        return await in_thread(early.status, daemon)

    async def metrics(_: Request) -> Response:
        """The same in numbers, for Prometheus."""
        return Response(await in_thread(page.render), headers={"content-type": page.content_type})

    async def jobs(_: Request) -> Response:
        """All jobs, by name, with their last and next runs."""
        return JsonAnswer({"jobs": await in_thread(daemon.jobs)})

    async def run(request: Request) -> Response:
        """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
        return JsonAnswer(await changing(daemon.run_job, request.path_params["name"]))

    async def savings(_: Request) -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return JsonAnswer((await in_thread(saved.savings)).as_json())

    return [
        ApiRoute.of("GET /api/health", health, "state", Health, statuses={503: "Not ready"}),
        ApiRoute.of("GET /api/status", status, "state", DaemonStatus),
        ApiRoute.of("GET /api/metrics", metrics, "state", _PAGE),
        ApiRoute.of("GET /api/jobs", jobs, "jobs", Jobs),
        ApiRoute.of("POST /api/jobs/{name}/run", run, "jobs", Job),
        ApiRoute.of("GET /api/savings", savings, "state", Savings),
    ]


def config_routes(config: ConfigService, changed: Callable[[], None]) -> list[ApiRoute]:
    """The runtime settings; `changed` is called when some were."""

    async def show(_: Request) -> Response:
        """All runtime settings; needs no API key."""
        return JsonAnswer((await in_thread(lambda: config.current)).as_json())

    async def change(request: Request) -> Response:
        """Change some; they are in force when this answers. 400 names every bad field.

        `last_*` are ignored.
        """
        wanted = await json_object(request)
        new = await in_thread(config.update, wanted, actor=actor_of(request))
        changed()
        return JsonAnswer(new.as_json())

    some = Body(read=dict, settings=tuple(SETTINGS))
    return [
        ApiRoute.of("GET /api/config", show, "config", "RuntimeConfig"),
        ApiRoute.of("POST /api/config", change, "config", "RuntimeConfig", body=some),
    ]


class MetricsPage:
    """Renders the page. `status`, `jobs` and `health` are asked once for each."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        status: Callable[[], Document],
        jobs: Callable[[], list[dict[str, Any]]],
        health: Callable[[], Document],
    ) -> None:
        # Not the global registry: what some library puts there is none of ours.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Daemon(status, jobs, health))
        ProcessCollector(namespace="bsd", registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _Daemon(Collector):
    def __init__(
        self,
        status: Callable[[], Document],
        jobs: Callable[[], list[dict[str, Any]]],
        health: Callable[[], Document],
    ) -> None:
        self._status, self._jobs, self._health = status, jobs, health

    def describe(self) -> list[Metric]:
        return []  # asked at registration, before there is a status

    def collect(self) -> Iterator[Metric]:
        status, health = self._status(), self._health()
        yield from _state(status, health)
        yield from _totals(status["totals"])
        yield from _queue(status["queue"], status["workers"])
        yield from _watcher(status["watcher"])
        yield from _stock(status)
        yield from _jobs(self._jobs())


def _state(status: Document, health: Document) -> Iterator[Metric]:
    info = GaugeMetricFamily("bsd_info", "Always 1; says which bsd this is.", labels=["version"])
    info.add_metric([str(status["version"])], 1)
    yield info
    yield GaugeMetricFamily(
        "bsd_healthy", "1 if no loop is late and no problem is known.", health["status"] == "ok"
    )
    yield GaugeMetricFamily("bsd_uptime_seconds", "Since the start.", status["uptime_seconds"])
    yield GaugeMetricFamily(
        "bsd_extraction_enabled", "1 unless `enabled` is false.", status["enabled"]
    )
    level = GaugeMetricFamily(
        "bsd_root_guarantee_strong",
        "1 if the file system lets bsd prove that nobody has a session open, 0 if it must wait.",
        labels=["root"],
    )
    for root in status["roots"]:
        level.add_metric([_label(root["path"])], root["level"] == "strong")
    yield level
    served = GaugeMetricFamily(
        "bsd_source_served",
        "0 if sessions of the source cannot be exchanged, or another root serves it.",
        labels=["source"],
    )
    for source in status["sources"]:
        is_served = not source["problem"] and not source["left_alone"]
        served.add_metric([_label(source["name"])], is_served)
    yield served
    yield GaugeMetricFamily(
        "bsd_config_valid",
        "0 while config.json is broken and the last good settings hold.",
        status["config"]["problem"] is None,
    )


def _totals(totals: Document) -> Iterator[Metric]:
    for key, (name, text) in _TOTALS.items():
        yield CounterMetricFamily(name, text, totals[key])
    given_up = CounterMetricFamily(
        "bsd_commits_given_up",
        "Commits that left a session as it was, since something else happened to it.",
        labels=["reason"],
    )
    for reason, count in totals["give_ups"].items():
        given_up.add_metric([_label(reason)], count)
    yield given_up
    yield GaugeMetricFamily("bsd_sessions", "Sessions that are known.", totals["sessions"])


def _queue(queue: Document, workers: list[Document]) -> Iterator[Metric]:
    sessions = GaugeMetricFamily(
        "bsd_queue_sessions",
        "Sessions with work: waiting for quiet, for their time, for a worker, at work, "
        "or until enough can be saved.",
        labels=["state"],
    )
    for state in _QUEUE:
        sessions.add_metric([state], queue[state])
    yield sessions
    yield CounterMetricFamily(
        "bsd_queue_refused", "Sessions that found the queue full.", queue["refused"]
    )
    yield CounterMetricFamily("bsd_queue_retried", "Jobs that were tried again.", queue["retried"])
    yield GaugeMetricFamily(
        "bsd_parked_sessions",
        "Sessions that kept failing and are left until they change.",
        len(queue["parked"]),
    )
    yield GaugeMetricFamily("bsd_workers", "Workers.", len(workers))
    busy = sum(worker["session"] is not None for worker in workers)
    yield GaugeMetricFamily("bsd_workers_busy", "Workers with a session on the table.", busy)


def _watcher(watcher: Document) -> Iterator[Metric]:
    directories = GaugeMetricFamily(
        "bsd_watch_directories",
        "Session directories by how changes are noticed; unwatched means: for want of watches.",
        labels=["state"],
    )
    unwatched = watcher["directories"] - watcher["watched"] - watcher["scan_only"]
    directories.add_metric(["watched"], watcher["watched"])
    directories.add_metric(["scan_only"], watcher["scan_only"])
    directories.add_metric(["unwatched"], max(unwatched, 0))
    yield directories
    yield GaugeMetricFamily(
        "bsd_watch_problems", "Problems of the watcher.", len(watcher["problems"])
    )


def _stock(status: Document) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "bsd_sessions_left_alone", "Transcripts not ours to edit.", status["left_alone"]["count"]
    )
    orphans = status["orphans"]
    yield GaugeMetricFamily(
        "bsd_orphan_files", "Late lines without a place, kept aside.", orphans["count"]
    )
    yield GaugeMetricFamily("bsd_orphan_bytes", "Their size.", orphans["bytes"])
    retention = status["retention"]
    yield GaugeMetricFamily(
        "bsd_retention_due_files",
        "Stored files that leave the store with the next run.",
        retention["files"],
    )
    yield GaugeMetricFamily("bsd_retention_due_bytes", "Their size.", retention["bytes"])
    archive = retention.get("archive", {})
    yield GaugeMetricFamily(
        "bsd_archive_lines", "Original lines in the archive.", archive.get("lines", 0)
    )
    yield GaugeMetricFamily(
        "bsd_archive_content_bytes", "Their size as they were.", archive.get("content", 0)
    )
    yield GaugeMetricFamily(
        "bsd_archive_kept_bytes", "What they take in the archive.", archive.get("kept", 0)
    )
    if archive.get("oldest"):
        yield GaugeMetricFamily(
            "bsd_archive_oldest_timestamp_seconds",
            "When the oldest of them came into the archive.",
            datetime.fromisoformat(archive["oldest"]).timestamp(),
        )
    if copies := retention.get("copies"):
        yield from _copies(copies)


def _copies(copies: Document) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "bsd_copied_sessions", "Sessions of which the archive has a copy.", copies["sessions"]
    )
    yield GaugeMetricFamily(
        "bsd_gone_sessions", "Those of them that their program has deleted.", copies["gone"]
    )
    yield GaugeMetricFamily(
        "bsd_copied_content_bytes",
        "Size of what was copied, without what was taken out of it.",
        copies["content"],
    )
    yield GaugeMetricFamily("bsd_copied_kept_bytes", "What the copies take.", copies["kept"])
    if copies["oldest"]:
        yield GaugeMetricFamily(
            "bsd_copied_oldest_timestamp_seconds",
            "When the oldest copy was made.",
            datetime.fromisoformat(copies["oldest"]).timestamp(),
        )


def _jobs(jobs: list[dict[str, Any]]) -> Iterator[Metric]:
    running = GaugeMetricFamily("bsd_job_running", "1 while the job runs.", labels=["job"])
    last = GaugeMetricFamily(
        "bsd_job_last_run_timestamp_seconds", "When it began last.", labels=["job"]
    )
    succeeded = GaugeMetricFamily(
        "bsd_job_last_success", "1 if the last run succeeded.", labels=["job"]
    )
    took = GaugeMetricFamily(
        "bsd_job_last_duration_seconds", "How long the last run took.", labels=["job"]
    )
    for job in jobs:
        name = [_label(job["name"])]
        running.add_metric(name, job["running"])
        if job["last_run"] is not None:
            last.add_metric(name, datetime.fromisoformat(job["last_run"]).timestamp())
        if job["last_result"] is not None:
            succeeded.add_metric(name, job["last_result"]["ok"])
            took.add_metric(name, job["last_result"]["seconds"])
    yield from (running, last, succeeded, took)


def _label(value: object) -> str:
    """A label's value in UTF-8, which the exposition format wants."""
    return str(value).encode(errors="backslashreplace").decode()
