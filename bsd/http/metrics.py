"""What `/api/metrics` tells Prometheus, taken from one status; names and helps are a contract.

Loaded when it is asked for the first time: many a daemon never is, and it takes a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

Document = Mapping[str, Any]

# Counters since the start: status' `totals` → name without `_total`, help.
_TOTALS = {
    "commits": ("bsd_commits", "Session files that were replaced."),
    "values": ("bsd_extracted_values", "Values moved into the store."),
    "entries": ("bsd_extracted_entries", "Entries of which at least one value was moved."),
    "bytes_saved": ("bsd_bytes_saved", "Bytes by which session files became smaller."),
    "tokens_saved": (
        "bsd_tokens_saved",
        "Tokens of text, estimated, that are no longer sent; pictures and PDFs count none.",
    ),
    "bytes_written": (
        "bsd_bytes_written",
        "Bytes written; divided by bsd_bytes_saved_total: what saving a byte costs the disk.",
    ),
    "busy": ("bsd_sessions_busy", "Times that a session was in use and work on it was put off."),
    "failed": ("bsd_sessions_failed", "Times that work on a session failed."),
    "children_started": ("bsd_children_started", "Child processes that were started."),
    "children_died": ("bsd_children_died", "Child processes that died at work."),
    "workers_replaced": ("bsd_workers_replaced", "Workers that died and were replaced."),
    "crashes": ("bsd_loop_crashes", "Steps of loops that ended with an exception."),
}
_PARTS = (
    *("store", "archive", "index", "history", "orphans", "databases", "others", "log"),
    *("copies", "trash"),
)
_QUEUE = ("debouncing", "waiting", "ready", "working", "gathering")


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
        yield from _queue(status["queue"], status["workers"], status["children"])
        yield from _watcher(status["watcher"])
        yield from _disk(status["disk"])
        yield from _stock(status)
        yield from _jobs(self._jobs())


def _state(status: Document, health: Document) -> Iterator[Metric]:
    yield _by("version", "bsd_info", "Always 1; says which bsd this is.", {status["version"]: 1})
    yield from _gauges(
        (
            "bsd_healthy",
            "1 if no loop is late and no problem is known.",
            health["status"] == "ok",
        ),
        ("bsd_uptime_seconds", "Since the start.", status["uptime_seconds"]),
        ("bsd_extraction_enabled", "1 unless `enabled` is false.", status["enabled"]),
    )
    yield _by(
        "root",
        "bsd_root_guarantee_strong",
        "1 if the file system lets bsd prove that nobody has a session open, 0 if it must wait.",
        {root["path"]: root["level"] == "strong" for root in status["roots"]},
    )
    yield _by(
        "source",
        "bsd_source_served",
        "0 if sessions of the source cannot be exchanged, or another root serves it.",
        {one["name"]: not one["problem"] and not one["left_alone"] for one in status["sources"]},
    )
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


def _queue(queue: Document, workers: list[Document], children: list[Document]) -> Iterator[Metric]:
    yield _by(
        "state",
        "bsd_queue_sessions",
        "Sessions with work: waiting for quiet, for their time, for a worker, at work, "
        "or until enough can be saved.",
        {state: queue[state] for state in _QUEUE},
    )
    yield CounterMetricFamily(
        "bsd_queue_refused", "Sessions that found the queue full.", queue["refused"]
    )
    yield CounterMetricFamily("bsd_queue_retried", "Jobs that were tried again.", queue["retried"])
    busy = sum(worker["session"] is not None for worker in workers)
    yield from _gauges(
        (
            "bsd_parked_sessions",
            "Sessions that kept failing and are left until they change.",
            len(queue["parked"]),
        ),
        ("bsd_workers", "Workers.", len(workers)),
        ("bsd_children", "Child processes.", len(children)),
        ("bsd_workers_busy", "Workers with a session on the table.", busy),
    )


def _watcher(watcher: Document) -> Iterator[Metric]:
    unwatched = watcher["directories"] - watcher["watched"] - watcher["scan_only"]
    known = {"watched": watcher["watched"], "scan_only": watcher["scan_only"]}
    yield _by(
        "state",
        "bsd_watch_directories",
        "Session directories by how changes are noticed; unwatched means: for want of watches.",
        {**known, "unwatched": max(unwatched, 0)},
    )
    problems = len(watcher["problems"])
    yield GaugeMetricFamily("bsd_watch_problems", "Problems of the watcher.", problems)


def _disk(disk: Document) -> Iterator[Metric]:
    parts = {part: disk[part] for part in _PARTS} | {"in_flight": disk["in_flight"]["bytes"]}
    yield _by("part", "bsd_disk_bytes", "What bsd takes on disk, by what it is for.", parts)
    yield from _gauges(
        (
            "bsd_disk_saved_bytes",
            "What left the sessions that are there, by which they are shorter.",
            disk["saved"],
        ),
        (
            "bsd_disk_uncounted_sessions",
            "Sessions of which it is not known yet what left them.",
            disk["uncounted"],
        ),
        (
            "bsd_disk_kept_bytes",
            "What bsd takes on disk without copies, trash and replaced versions of whole sessions.",
            disk["kept"],
        ),
        (
            "bsd_disk_net_bytes",
            "bsd_disk_saved_bytes less bsd_disk_kept_bytes.",
            disk["net"],
        ),
        (
            "bsd_disk_net_with_copies_bytes",
            "bsd_disk_saved_bytes less all that bsd takes on disk.",
            disk["net_with_copies"],
        ),
        (
            "bsd_disk_net_when_packed_bytes",
            "What bsd_disk_net_bytes will be once the store is packed into the archive.",
            disk["net_when_packed"],
        ),
    )


def _stock(status: Document) -> Iterator[Metric]:
    orphans, retention = status["orphans"], status["retention"]
    archive = retention.get("archive", {})
    yield from _gauges(
        ("bsd_sessions_left_alone", "Transcripts not ours to edit.", status["left_alone"]["count"]),
        ("bsd_orphan_files", "Late lines without a place, kept aside.", orphans["count"]),
        ("bsd_orphan_bytes", "Their size.", orphans["bytes"]),
        (
            "bsd_retention_due_files",
            "Stored files that leave the store with the next run.",
            retention["files"],
        ),
        ("bsd_retention_due_bytes", "Their size.", retention["bytes"]),
        (
            "bsd_trash_sessions",
            "Deleted sessions in the trash.",
            retention.get("trash", {}).get("all_sessions", 0),
        ),
        ("bsd_archive_lines", "Original lines in the archive.", archive.get("lines", 0)),
        ("bsd_archive_content_bytes", "Their size as they were.", archive.get("content", 0)),
        ("bsd_archive_kept_bytes", "What they take in the archive.", archive.get("kept", 0)),
    )
    if archive.get("oldest"):
        yield GaugeMetricFamily(
            "bsd_archive_oldest_timestamp_seconds",
            "When the oldest of them came into the archive.",
            _epoch(archive["oldest"]),
        )
    if copies := retention.get("copies"):
        yield from _copies(copies)


def _copies(copies: Document) -> Iterator[Metric]:
    of_what = "Size of what was copied, without what was taken out of it."
    yield from _gauges(
        (
            "bsd_copied_sessions",
            "Sessions of which the archive has a copy.",
            copies["sessions"],
        ),
        ("bsd_gone_sessions", "Those of them that their program has deleted.", copies["gone"]),
        ("bsd_copied_content_bytes", of_what, copies["content"]),
        ("bsd_copied_kept_bytes", "What the copies take.", copies["kept"]),
    )
    if copies["oldest"]:
        yield GaugeMetricFamily(
            "bsd_copied_oldest_timestamp_seconds",
            "When the oldest copy was made.",
            _epoch(copies["oldest"]),
        )


def _jobs(jobs: list[dict[str, Any]]) -> Iterator[Metric]:
    begun = {job["name"]: _epoch(job["last_run"]) for job in jobs if job["last_run"] is not None}
    ended = {job["name"]: job["last_result"] for job in jobs if job["last_result"] is not None}
    running = {job["name"]: job["running"] for job in jobs}
    yield _by("job", "bsd_job_running", "1 while the job runs.", running)
    yield _by("job", "bsd_job_last_run_timestamp_seconds", "When it began last.", begun)
    yield _by(
        "job",
        "bsd_job_last_success",
        "1 if the last run succeeded.",
        {name: result["ok"] for name, result in ended.items()},
    )
    yield _by(
        "job",
        "bsd_job_last_duration_seconds",
        "How long the last run took.",
        {name: result["seconds"] for name, result in ended.items()},
    )


def _gauges(*rows: tuple[str, str, float]) -> Iterator[Metric]:
    """A gauge for each: name, help, value."""
    for name, text, value in rows:
        yield GaugeMetricFamily(name, text, value)


def _by(label: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
    """One gauge with a value for each of the label's."""
    gauge = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        gauge.add_metric([_label(key)], value)
    return gauge


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _label(value: object) -> str:
    """A label's value in UTF-8, which the exposition format wants."""
    return str(value).encode(errors="backslashreplace").decode()
