"""The page `/api/metrics` for Prometheus, made from the status; metric names are an interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from bsd.planning.timing_words import SHORT_REASONS
from bsd.transcripts.agents.programs import ROOT_KIND

Document = Mapping[str, Any]

# Counters since the start: name without `_total` → path in the status, help text.
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
    "bsd_cache_tokens_rewritten": (
        "totals.tokens_rewritten",
        "Tokens of warm prompt caches, estimated, that providers wrote again because of bsd.",
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
    "bsd_restores_failed": (
        "totals.restores_failed",
        "Entries whose values did not come back, in all processes of bsd.",
    ),
    "bsd_children_started": ("totals.children_started", "Child processes that were started."),
    "bsd_children_died": ("totals.children_died", "Child processes that died at work."),
    "bsd_workers_replaced": ("totals.workers_replaced", "Failures of workers, which went on."),
    "bsd_loop_crashes": ("totals.crashes", "Steps of loops that ended with an exception."),
    "bsd_queue_refused": ("queue.refused", "Sessions that found the queue full."),
    "bsd_queue_retried": ("queue.retried", "Jobs that were tried again."),
}
# Gauges: name → path in the status, help text.
_GAUGES = {
    "bsd_uptime_seconds": ("uptime_seconds", "Since the start."),
    "bsd_extraction_enabled": ("enabled", "1 unless `enabled` is false."),
    "bsd_sessions": ("totals.sessions", "Sessions that are known."),
    "bsd_sessions_left_alone": ("left_alone.count", "Transcripts that bsd does not edit."),
    "bsd_cache_waiting_sessions": (
        "prompt_cache.sessions",
        "Sessions that wait for their prompt cache to get cold.",
    ),
    "bsd_cache_waiting_tokens": (
        "prompt_cache.tokens_ready",
        "Tokens of text, estimated, that leave these sessions then.",
    ),
    "bsd_disk_saved_bytes": (
        "disk.saved",
        "Bytes by which extraction has made the existing sessions shorter.",
    ),
    "bsd_disk_uncounted_sessions": (
        "disk.uncounted",
        "Sessions whose saved bytes are not counted yet.",
    ),
    "bsd_disk_kept_bytes": (
        "disk.kept",
        "Disk use of bsd without copies, trash and replaced versions of whole sessions.",
    ),
    "bsd_disk_net_bytes": ("disk.net", "bsd_disk_saved_bytes less bsd_disk_kept_bytes."),
    "bsd_disk_net_with_copies_bytes": (
        "disk.net_with_copies",
        "bsd_disk_saved_bytes less the whole disk use of bsd.",
    ),
    "bsd_disk_net_when_packed_bytes": (
        "disk.net_when_packed",
        "The value of bsd_disk_net_bytes once the store is packed into the archive.",
    ),
    "bsd_orphan_files": ("orphans.count", "Files with late lines that fit into no session."),
    "bsd_orphan_bytes": ("orphans.bytes", "Their size."),
    "bsd_retention_due_files": (
        "retention.files",
        "Stored files that leave the store with the next run.",
    ),
    "bsd_retention_due_bytes": ("retention.bytes", "Their size."),
    "bsd_trash_sessions": ("retention.trash.all_sessions", "Deleted sessions in the trash."),
    "bsd_archive_lines": ("retention.archive.lines", "Original lines in the archive."),
    "bsd_archive_content_bytes": ("retention.archive.content", "Their size as they were."),
    "bsd_archive_kept_bytes": ("retention.archive.kept", "Their size in the archive."),
}
_COPIES = {  # only if the archive has copies
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
        "Size of the copied sessions, without the values extracted from them.",
    ),
    "bsd_copied_kept_bytes": ("retention.copies.kept", "Disk use of the copies."),
}
# Gauges whose value is a time; omitted if the status has none.
_MOMENTS = {
    "bsd_archive_oldest_timestamp_seconds": (
        "retention.archive.oldest",
        "When the oldest original line was archived.",
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
    """Renders the page; calls `status`, `jobs` and `health` once per rendering."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        status: Callable[[], Document],
        jobs: Callable[[], list[dict[str, Any]]],
        health: Callable[[], Document],
    ) -> None:
        self._status, self._jobs, self._health = status, jobs, health
        # Not the global registry, to which libraries add their own metrics.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(namespace="bsd", registry=self._registry)

    def render(self) -> bytes:
        """Return the page in the text format of Prometheus."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return no descriptions, since no status exists at registration."""
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
        if status.get("fleet"):
            yield from _fleet(status["fleet"])
        yield from _work(status)
        yield from _jobs(self._jobs())


def _find(document: Document, place: str) -> Any:
    """Return the member at a path such as `disk.saved`; None if it does not exist."""
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
        "1 if bsd can prove that no process has a session open, 0 if it must wait instead.",
        {root["path"]: root["level"] == "strong" for root in status["roots"]},
    )
    yield _by(
        "source",
        "bsd_source_served",
        "0 if sessions of the source cannot be exchanged, or another root serves it.",
        {one["name"]: not one["problem"] and not one["left_alone"] for one in status["sources"]},
    )
    forms = {one["source"]: one["sessions"] for one in status["unknown_forms"]}
    unrecognised = {one["source"] for one in status["unrecognised"]}
    sources = [one["name"] for one in status["sources"]]
    yield _by(
        "source",
        "bsd_sessions_unknown_form",
        "Sessions in a form that bsd does not know; it leaves them alone.",
        {**dict.fromkeys((ROOT_KIND, *sources), 0), **forms},
    )
    yield _by(
        "source",
        "bsd_source_unrecognised",
        "1 if files of the source grew during the last day without a session that bsd recognises.",
        {name: name in unrecognised for name in sources},
    )
    yield GaugeMetricFamily(
        "bsd_config_valid",
        "0 while config.json is broken and the last good settings hold.",
        status["config"]["problem"] is None,
    )
    disk = status["disk"]
    parts = {part: disk[part] for part in _PARTS} | {"in_flight": disk["in_flight"]["bytes"]}
    yield _by("part", "bsd_disk_bytes", "Disk use of bsd, by purpose.", parts)


def _fleet(fleet: Document) -> Iterator[Metric]:
    """Return the metrics of a host that shares something."""
    yield GaugeMetricFamily(
        "bsd_fleet_upload_behind_seconds",
        "Since when files have been waiting for the bucket; 0: none waits.",
        fleet["behind_seconds"] or 0,
    )
    yield GaugeMetricFamily(
        "bsd_fleet_upload_behind_files", "Files that wait for the bucket.", fleet["behind_files"]
    )
    yield GaugeMetricFamily("bsd_fleet_upload_behind_bytes", "Their bytes.", fleet["behind_bytes"])
    yield CounterMetricFamily(
        "bsd_fleet_errors", "Pushes to the bucket that have failed.", fleet["errors"]
    )
    if fleet["last_success"]:
        yield GaugeMetricFamily(
            "bsd_fleet_last_success_timestamp",
            "When everything was last in the bucket, in epoch seconds.",
            _epoch(fleet["last_success"]),
        )
    yield _by(
        "to",
        "bsd_fleet_sender_failures",
        "Runs in a row that have failed: to the bucket, the catalogue, Parquet files.",
        {sender["name"]: sender["failures"] for sender in fleet["senders"]},
    )


def _work(status: Document) -> Iterator[Metric]:
    yield _by(
        "reason",
        "bsd_commits_given_up",
        "Commits given up because the session changed or was in use; it stays unchanged.",
        status["totals"]["give_ups"],
        kind=CounterMetricFamily,
    )
    yield _by(
        "reason",
        "bsd_cuts",
        "Extractions of values that the model sees, by the reason for which they did not wait.",
        {cause: status["totals"]["cuts"].get(cause, 0) for cause in SHORT_REASONS},
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
        ("bsd_workers_busy", "Workers that are processing a session.", busy),
        ("bsd_watch_problems", "Problems of the watcher.", len(watcher["problems"])),
    ):
        yield GaugeMetricFamily(name, text, value)
    unwatched = watcher["directories"] - watcher["watched"] - watcher["scan_only"]
    known = {"watched": watcher["watched"], "scan_only": watcher["scan_only"]}
    yield _by(
        "state",
        "bsd_watch_directories",
        "Session directories by how changes are noticed; unwatched: the system has no free watch.",
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
    """Return a metric with one sample per value of the label."""
    metric = kind(name, text, labels=[label])
    for key, value in values.items():
        # The exposition format requires UTF-8; a path may contain other bytes.
        metric.add_metric([str(key).encode(errors="backslashreplace").decode()], value)
    return metric


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
