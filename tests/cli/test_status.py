"""The status as people see it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.cli import client
from bsd.cli.status_lines import disk_lines, spell_when, status_lines
from bsd.core.durations import spell_seconds
from bsd.core.errors import Unavailable
from tests.http.fake_daemon import sample_result, sample_status


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    return short_path


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A socket on which no process answers, and whose queue of connections is full."""
    path = tmp_path / "s"
    with ExitStack() as held:
        listening = held.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(os.path.relpath(path))
        listening.listen(0)
        while True:
            waiting = held.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            try:
                waiting.connect(os.path.relpath(path))
            except BlockingIOError:
                break
        yield Path(os.path.relpath(path)), listening


def test_a_daemon_that_lets_nobody_in_does_not_answer(
    full: tuple[Path, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(Unavailable, match="does not answer"):
        client.Client(full[0]).get("/api/status")


# --- the status as people see it ---

NOW = datetime.fromisoformat("2026-11-22T11:00:00Z").timestamp()
COLD = f"{datetime.fromisoformat('2026-11-22T11:25:00Z').astimezone():%H:%M}"


def shown(status: dict[str, Any]) -> str:
    return "\n".join(status_lines(status, NOW))


@pytest.mark.parametrize(
    "line",
    [
        "bsd 0.2.0 is running: process 4711, up 1 d 2 h",
        "root       /home/ada/.openclaw",
        "guarantee  strong on ext4",
        "watching   1,234 sessions; 9 of 12 directories by events, 2 by scans only",
        "queue      1 at work, 1 ready, 2 waiting for quiet, 3 waiting for their time, 4 waiting",
        "           worker-1: main/a",
        f"cache      3 sessions waiting, 120k tokens ready; next cold at {COLD}",
        "           cuts now would rewrite 90k cached tokens (about $0.40, without 1 of",
        "           5 cuts since the start (4 cold cache, 1 pays); 31k cached tokens rewritten",
        "saved      149.0 MB: 200.0 MB left the sessions, bsd keeps 51.0 MB",
        "           once the store is packed: 177.0 MB",
        "           with 15.0 MB of whole sessions (copies, trash, replaced versions): 134.0 MB",
        "disk       66.0 MB: store 40.0 MB, archive 6.0 MB, copies 9.0 MB, search index 1.0 MB, hi",
        "           2 replaced versions of sessions (6.0 MB), removable in 40 s by the daemon or",
        "this run   117.7 MB, about 30,864,197 tokens of text: 789 values of 345 entries",
        "retention  extracted content is kept 24h in the store, then for 90d in the archive; 4",
        "archive    812 values (41.0 MB) in 6.0 MB, the oldest came 2 d ago; the next is deleted",
        "! watching 1 of 12 directories are not watched (try: sudo sysctl fs.inotify.",
        "! parked   main/bad was given up after 5 failures: disk full (try: `bsd extract",
        "! orphans  1 file of late lines without a place (try: `bsd verify`)",
        "left alone 2 sessions: the transcript is of version 1",
        "58 min ago  main/a  extracted 12 values, 4.8 MB saved, because the cache was cold",
        "58 min ago  main/bad  failed: disk full",
    ],
)
def test_everything_that_matters_is_there(line: str) -> None:
    assert line in shown(sample_status())


def test_more_taken_than_saved_is_said_in_words() -> None:
    disk = sample_status()["disk"]
    disk |= {"saved": 2 << 20, "net": -(49 << 20), "net_when_packed": -(1 << 20)}
    lines = [line for _, line in disk_lines(disk, NOW)]
    more = "more than it has saved so far"
    assert lines[0] == f"bsd takes 49.0 MB {more}: 2.0 MB left the sessions, bsd keeps 51.0 MB"
    assert lines[1] == f"once the store is packed: bsd takes 1.0 MB {more}"


def test_a_quiet_daemon_has_little_to_say() -> None:
    status = sample_status()
    status["watcher"] = {"directories": 1, "watched": 1, "scan_only": 0, "problems": []}
    status["queue"] = dict.fromkeys(status["queue"], 0) | {"parked": []}
    status["totals"] = dict.fromkeys(status["totals"], 0) | {"give_ups": {}, "cuts": {}}
    status["prompt_cache"] = {"sessions": 0}
    status["orphans"] = {"count": 0, "bytes": 0}
    status["left_alone"] = {"count": 0, "reasons": {}}
    status["sessions"] = [
        sample_result("main/idle", "unchanged"),
        sample_result("main/idle-too", "left_alone", reason="version 1"),
    ]
    status["workers"] = [{"name": "worker-1", "session": None, "since": None}]
    status["retention"] |= {"keep": "never", "next_run": None}
    text = shown(status)
    assert "!" not in text
    assert "main/idle" not in text
    assert "queue      empty" in text
    assert "cache" not in text
    assert "no extraction since the start of the daemon" in text
    assert "kept for ever" in text


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        ({}, "kept 24h in the store, then for 90d in the archive;"),
        ({"keep": "never"}, "kept 24h in the store, then for ever in the archive;"),
        (
            {"most_bytes": 5 << 20},
            "kept 24h in the store, then for 90d in the archive, up to 5.0 MB;",
        ),
        ({"on": False}, "kept 24h, then deleted;"),
    ],
)
def test_the_archive_counts_in_how_long_content_is_kept(
    archive: dict[str, Any], words: str
) -> None:
    status = sample_status()
    status["retention"]["archive"] |= archive
    assert words in " ".join(shown(status).split())


def test_switches_are_told() -> None:
    status = sample_status()
    status["enabled"], status["readonly"] = False, True
    status["config"]["problem"] = "not valid JSON"
    text = shown(status)
    assert "switched off" in text
    assert "read-only" in text
    assert (
        "! config   the settings file is broken; the last valid settings apply: not valid JSON"
        in text
    )


def test_a_clock_in_doubt_is_told_with_the_way_out() -> None:
    status = sample_status()
    status["clock"] = "the clock was put forward by 1d 6h"
    text = shown(status)
    assert (
        "! clock    the clock was put forward by 1d 6h (try: `bsd retention --trust-clock`" in text
    )


def test_a_long_list_is_cut_and_says_so() -> None:
    status = sample_status()
    status["sessions"] = [sample_result(f"main/s{n}", "busy") for n in range(14)]
    text = shown(status)
    assert "main/s9 " in text
    assert "main/s10" not in text
    assert "… 4 more in --json" in text


def test_texts_of_others_stay_on_their_line() -> None:
    status = sample_status()
    status["queue"]["parked"][0]["error"] = "two\nlines \x1b[2J"
    assert "! parked   main/bad was given up after 5 failures: two lines \\x1b[2J" in shown(status)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.6, "1 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (86_400 + 59 * 60, "1 d"),
        (200_000, "2 d 7 h"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert spell_seconds(seconds) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-11-22T11:00:00.4Z", "now"),
        ("2026-11-22T11:00:05Z", "in 5 s"),
        ("2026-11-22T10:30:00Z", "30 min ago"),
        ("2026-11-22T12:30:00+01:00", "in 30 min"),
    ],
)
def test_moments(moment: str, text: str) -> None:
    assert spell_when(moment, NOW) == text


def test_the_trash_is_told_of_if_there_is_something_in_it() -> None:
    status = sample_status()
    empty = {"keep": "14d", "sessions": 0, "bytes": 0, "next_expiry": None}
    status["retention"]["trash"] = empty
    assert "deleted sessions" not in shown(status)
    status["retention"]["trash"] = empty | {"sessions": 2, "bytes": 4096}
    text = shown(status)
    assert "sessions are kept 14d; 2 sessions (4.0 KB) will be deleted in 1 h" in text


def test_an_archive_that_is_nearly_full_or_loses_something_is_told() -> None:
    status = sample_status()
    archive = status["retention"]["archive"]
    assert "! archive" not in shown(status)
    archive |= {"most_bytes": 1 << 20, "used_bytes": 1 << 19, "nearly_full": True}
    assert "! archive  packs and copies take 512.0 KB of 1.0 MB (archive_max_bytes)" in shown(
        status
    )
    archive |= {"files": 1, "bytes": 1024, "problem": "reading /a/archive: Not a directory"}
    assert "! archive  reading /a/archive: Not a directory" in shown(status)
    assert "; 1 pack or copy (1.0 KB) will be deleted in 1 h" in shown(status)
    del status["retention"]["archive"]
    assert "files (4.0 KB) will be deleted in 1 h" in shown(status)
