"""The page `/api/metrics` for Prometheus, made of one status; names and helps are a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

Document = Mapping[str, Any]

# Counters since the start: name without `_total` → where in the status, help.
_COUNTERS = {
    "bsd_commits": ("totals.commits", "Session files that were replaced."),
    "bsd_extracted_values": ("totals.values", "Values moved into the store."),
    "bsd_extracted_entries": (
        "totals.entries",
        "Entries of which at least one value was moved.",
    ),
    "bsd_bytes_saved": ("totals.bytes_saved", "Bytes by which session files became smaller."),
    "bsd_tokens_saved": (
        "totals.tokens_saved",
        "Tokens of text, estimated, that are no longer sent; pictures and PDFs count none.",
    ),
    "bsd_bytes_written": (
        "totals.bytes_written",
        "Bytes written; divided by bsd_bytes_saved_total: what saving a byte costs the disk.",
    ),
    "bsd_sessions_busy": (
        "totals.busy",
        "Times that a session was in use and work on it was put off.",
    ),
    "bsd_sessions_failed": ("totals.failed", "Times that work on a session failed."),
    "bsd_children_started": ("totals.children_started", "Child processes that were started."),
    "bsd_children_died": ("totals.children_died", "Child processes that died at work."),
    "bsd_workers_replaced": ("totals.workers_replaced", "Workers that died and were replaced."),
    "bsd_loop_crashes": ("totals.crashes", "Steps of loops that ended with an exception."),
    "bsd_queue_refused": ("queue.refused", "Sessions that found the queue full."),
    "bsd_queue_retried": ("queue.retried", "Jobs that were tried again."),
}
# Gauges: name → where in the status, help.
_GAUGES = {
    "bsd_uptime_seconds": ("uptime_seconds", "Since the start."),
    "bsd_extraction_enabled": ("enabled", "1 unless `enabled` is false."),
    "bsd_sessions": ("totals.sessions", "Sessions that are known."),
    "bsd_sessions_left_alone": ("left_alone.count", "Transcripts not ours to edit."),
    "bsd_disk_saved_bytes": (
        "disk.saved",
        "What left the sessions that are there, by which they are shorter.",
    ),
    "bsd_disk_uncounted_sessions": (
        "disk.uncounted",
        "Sessions of which it is not known yet what left them.",
    ),
    "bsd_disk_kept_bytes": (
        "disk.kept",
        "What bsd takes on disk without copies, trash and replaced versions of whole sessions.",
    ),
    "bsd_disk_net_bytes": ("disk.net", "bsd_disk_saved_bytes less bsd_disk_kept_bytes."),
    "bsd_disk_net_with_copies_bytes": (
        "disk.net_with_copies",
        "bsd_disk_saved_bytes less all that bsd takes on disk.",
    ),
    "bsd_disk_net_when_packed_bytes": (
        "disk.net_when_packed",
        "What bsd_disk_net_bytes will be once the store is packed into the archive.",
    ),
    "bsd_orphan_files": ("orphans.count", "Late lines without a place, kept aside."),
    "bsd_orphan_bytes": ("orphans.bytes", "Their size."),
    "bsd_retention_due_files": (
        "retention.files",
        "Stored files that leave the store with the next run.",
    ),
    "bsd_retention_due_bytes": ("retention.bytes", "Their size."),
    "bsd_trash_sessions": ("retention.trash.all_sessions", "Deleted sessions in the trash."),
    "bsd_archive_lines": ("retention.archive.lines", "Original lines in the archive."),
    "bsd_archive_content_bytes": ("retention.archive.content", "Their size as they were."),
    "bsd_archive_kept_bytes": ("retention.archive.kept", "What they take in the archive."),
}
_COPIES = {  # if there are any
    "bsd_copied_sessions": (
        "retention.copies.sessions",
        "Sessions of which the archive has a copy.",
    ),
    "bsd_gone_sessions": (
        "retention.copies.gone",
        "Those of them that their program has deleted.",
    ),
    "bsd_copied_content_bytes": (
        "retention.copies.content",
        "Size of what was copied, without what was taken out of it.",
    ),
    "bsd_copied_kept_bytes": ("retention.copies.kept", "What the copies take."),
}
# Gauges of moments, if there is one.
_MOMENTS = {
    "bsd_archive_oldest_timestamp_seconds": (
        "retention.archive.oldest",
        "When the oldest of them came into the archive.",
    ),
    "bsd_copied_oldest_timestamp_seconds": (
        "retention.copies.oldest",
        "When the oldest copy was made.",
    ),
}
_PARTS = (
    *("store", "archive", "index", "history", "orphans", "databases", "others", "log"),
    *("copies", "trash"),
)
_QUEUE = ("debouncing", "waiting", "ready", "working", "gathering")


class MetricsPage(Collector):
    """Renders the page. `status`, `jobs` and `health` are asked once for each."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        status: Callable[[], Document],
        jobs: Callable[[], list[dict[str, Any]]],
        health: Callable[[], Document],
    ) -> None:
        self._status, self._jobs, self._health = status, jobs, health
        # Not the global registry, in which libraries put metrics of their own.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(namespace="bsd", registry=self._registry)

    def render(self) -> bytes:
        """Return the page as Prometheus reads it."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Describe nothing: at registration there is no status yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        status = self._status()
        for name, (place, text) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, _find(status, place) or 0)
        copies = _COPIES if _find(status, "retention.copies") else {}
        for name, (place, text) in {**_GAUGES, **copies}.items():
            yield GaugeMetricFamily(name, text, _find(status, place) or 0)
        for name, (place, text) in _MOMENTS.items():
            if moment := _find(status, place):
                yield GaugeMetricFamily(name, text, _epoch(moment))
        yield from _state(status, self._health())
        yield from _work(status)
        yield from _jobs(self._jobs())


def _find(document: Document, place: str) -> Any:
    """Return the member at a place such as `disk.saved`; None if there is none."""
    found: Any = document
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _state(status: Document, health: Document) -> Iterator[Metric]:
    yield _by("version", "bsd_info", "Always 1; says which bsd this is.", {status["version"]: 1})
    yield GaugeMetricFamily(
        "bsd_healthy",
        "1 if no loop is late and no problem is known.",
        health["status"] == "ok",
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
    disk = status["disk"]
    parts = {part: disk[part] for part in _PARTS} | {"in_flight": disk["in_flight"]["bytes"]}
    yield _by("part", "bsd_disk_bytes", "What bsd takes on disk, by what it is for.", parts)


def _work(status: Document) -> Iterator[Metric]:
    yield _by(
        "reason",
        "bsd_commits_given_up",
        "Commits that left a session as it was, since something else happened to it.",
        status["totals"]["give_ups"],
        kind=CounterMetricFamily,
    )
    queue, workers, watcher = status["queue"], status["workers"], status["watcher"]
    yield _by(
        "state",
        "bsd_queue_sessions",
        "Sessions with work: waiting for quiet, for their time, for a worker, at work, "
        "or until enough can be saved.",
        {state: queue[state] for state in _QUEUE},
    )
    busy = sum(worker["session"] is not None for worker in workers)
    for name, text, value in (
        (
            "bsd_parked_sessions",
            "Sessions that kept failing and are left until they change.",
            len(queue["parked"]),
        ),
        ("bsd_workers", "Workers.", len(workers)),
        ("bsd_children", "Child processes.", len(status["children"])),
        ("bsd_workers_busy", "Workers with a session on the table.", busy),
        ("bsd_watch_problems", "Problems of the watcher.", len(watcher["problems"])),
    ):
        yield GaugeMetricFamily(name, text, value)
    unwatched = watcher["directories"] - watcher["watched"] - watcher["scan_only"]
    known = {"watched": watcher["watched"], "scan_only": watcher["scan_only"]}
    yield _by(
        "state",
        "bsd_watch_directories",
        "Session directories by how changes are noticed; unwatched means: for want of watches.",
        {**known, "unwatched": max(unwatched, 0)},
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


def _by(
    label: str,
    name: str,
    text: str,
    values: Mapping[str, float],
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Return a metric with a value for each of the label's."""
    metric = kind(name, text, labels=[label])
    for key, value in values.items():
        # The exposition format wants UTF-8.
        metric.add_metric([str(key).encode(errors="backslashreplace").decode()], value)
    return metric


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
