"""The page for Prometheus, parsed by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bsd.http.metrics import MetricsPage
from tests.http.fake_daemon import FakeDaemon, app_over, ask

Families = dict[str, Any]


def page(daemon: FakeDaemon) -> str:
    return MetricsPage(daemon.status, daemon.scheduler.status, daemon.health).render().decode()


def families(daemon: FakeDaemon) -> Families:
    return {family.name: family for family in text_string_to_metric_families(page(daemon))}


def value(found: Families, name: str, **labels: str) -> float:
    samples = [one for family in found.values() for one in family.samples]
    [only] = [one.value for one in samples if one.name == name and one.labels == labels]
    return float(only)


def test_all_names_are_ours_and_explained() -> None:
    found = families(FakeDaemon())
    assert all(name.startswith("bsd_") for name in found)
    assert [name for name, family in found.items() if not family.documentation.strip()] == []
    assert all(family.type in {"gauge", "counter"} for family in found.values())


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("bsd_bytes_saved_total", {}, 123_456_789),
        ("bsd_bytes_written_total", {}, 23_456_789),
        ("bsd_tokens_saved_total", {}, 30_864_197),
        ("bsd_commits_given_up_total", {"reason": "in use"}, 3),
        ("bsd_cache_waiting_sessions", {}, 3),
        ("bsd_cache_waiting_tokens", {}, 120_400),
        ("bsd_cache_tokens_rewritten_total", {}, 31_400),
        ("bsd_cuts_total", {"reason": "cold"}, 4),
        ("bsd_cuts_total", {"reason": "step"}, 0),
        ("bsd_sessions", {}, 1234),
        ("bsd_healthy", {}, 1),
        ("bsd_info", {"version": "0.2.0"}, 1),
        ("bsd_queue_sessions", {"state": "waiting"}, 3),
        ("bsd_parked_sessions", {}, 1),
        ("bsd_workers", {}, 2),
        ("bsd_workers_busy", {}, 1),
        ("bsd_watch_directories", {"state": "watched"}, 9),
        ("bsd_watch_directories", {"state": "scan_only"}, 2),
        ("bsd_watch_directories", {"state": "unwatched"}, 1),
        ("bsd_watch_problems", {}, 1),
        ("bsd_root_guarantee_strong", {"root": "/home/ada/.openclaw"}, 1),
        ("bsd_source_served", {"source": "claude"}, 1),
        ("bsd_source_unrecognised", {"source": "claude"}, 0),
        ("bsd_sessions_unknown_form", {"source": "openclaw"}, 0),
        ("bsd_config_valid", {}, 1),
        ("bsd_extraction_enabled", {}, 1),
        ("bsd_orphan_files", {}, 1),
        ("bsd_retention_due_bytes", {}, 4096),
        ("bsd_disk_bytes", {"part": "copies"}, 9 * 1024**2),
        ("bsd_disk_bytes", {"part": "in_flight"}, 6 * 1024**2),
        ("bsd_disk_saved_bytes", {}, 200 * 1024**2),
        ("bsd_disk_kept_bytes", {}, 51 * 1024**2),
        ("bsd_disk_net_bytes", {}, 149 * 1024**2),
        ("bsd_disk_net_with_copies_bytes", {}, 134 * 1024**2),
        ("bsd_disk_net_when_packed_bytes", {}, 177 * 1024**2),
        ("bsd_archive_lines", {}, 812),
        ("bsd_archive_content_bytes", {}, 41 * 1024**2),
        ("bsd_archive_kept_bytes", {}, 6 * 1024**2),
        ("bsd_archive_oldest_timestamp_seconds", {}, 1_795_172_400),
        ("bsd_job_last_run_timestamp_seconds", {"job": "retention"}, 1_795_327_200),
        ("bsd_job_last_success", {"job": "retention"}, 1),
        ("bsd_job_running", {"job": "auto"}, 0),
    ],
)
def test_numbers_are_the_statuss(name: str, labels: dict[str, str], expected: float) -> None:
    assert value(families(FakeDaemon()), name, **labels) == expected


def test_trouble_shows() -> None:
    daemon = FakeDaemon(health_status="degraded")
    daemon.document["config"]["problem"] = "not valid JSON"
    daemon.document["roots"][0]["level"] = "weak"
    daemon.document["unknown_forms"] = [{"source": "claude", "sessions": 3}]
    daemon.document["unrecognised"] = [{"source": "claude"}]
    daemon.document["sources"][0]["problem"] = {"text": "two mounts", "remedy": "make them one"}
    found = families(daemon)
    assert value(found, "bsd_healthy") == 0
    assert value(found, "bsd_config_valid") == 0
    assert value(found, "bsd_source_served", source="claude") == 0
    assert value(found, "bsd_sessions_unknown_form", source="claude") == 3
    assert value(found, "bsd_source_unrecognised", source="claude") == 1
    assert value(found, "bsd_root_guarantee_strong", root="/home/ada/.openclaw") == 0


def test_any_text_may_be_a_label() -> None:
    daemon = FakeDaemon()
    daemon.document["totals"]["give_ups"] = {'a "quoted"\nline\\ \udcff': 2}
    escaped = 'a "quoted"\nline\\ \\udcff'
    assert value(families(daemon), "bsd_commits_given_up_total", reason=escaped) == 2


def test_the_page_says_what_it_is(tmp_path: Path) -> None:
    reply = ask(app_over(tmp_path), "GET", "/api/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert list(text_string_to_metric_families(reply.body.decode()))
