"""Writers that never rest, surgeons that never rest: every line arrives once and in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from bsd.foundation.layout import SessionName
from bsd.session.commit.exchangers import DirectExchanger, HelperExchanger
from tests.needs import require_linux
from tests.session.commit.arena import SECONDS, StoppingExchanger, arena, storm
from tests.session.commit.chaos_report import Report
from tests.session.commit.writers import NodeWriter, missing_doubled_disordered

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

_TOP = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def on_linux() -> None:
    require_linux()  # elsewhere nothing proves that nobody writes, and 30 s of quiet are needed


def test_three_writers_against_continuous_extraction_and_restoration() -> None:
    with (
        NodeWriter("first", "reopen") as first,
        NodeWriter("second", "reopen") as second,
        NodeWriter("holder", "hold") as holder,
        HelperExchanger() as exchanger,
        arena("three writers") as place,
    ):
        wanted = 100 * min(1.0, SECONDS / 30)
        problems = storm(
            place,
            exchanger,
            [first, second, holder],
            SECONDS,
            enough=lambda report: report.commits >= wanted,
        )
        report = place.report
    assert problems == [], "\n".join(problems[:20])
    assert report.commits >= wanted, report
    assert report.lines > 5 * wanted, report


def test_stopped_between_the_steps() -> None:
    """Drained lines, undoings and late bytes, each of them really had."""
    stopping = StoppingExchanger(DirectExchanger(), seed=1)
    with (
        NodeWriter("first", "reopen") as first,
        NodeWriter("second", "reopen") as second,
        arena("stopped between the steps") as place,
    ):
        problems = storm(
            place, stopping, [first, second], SECONDS / 3, stopping.written, enough=_all_kinds
        )
        report = place.report
    assert problems == [], "\n".join(problems[:20])
    assert _all_kinds(report), report


def _all_kinds(report: Report) -> bool:
    return bool(report.drained_lines and report.late_lines and report.give_ups["drain_timeout"])


def test_a_permanent_holder_gives_no_commits_and_intact_lines() -> None:
    with NodeWriter("appender", "reopen") as appender, arena("a permanent holder") as place:
        name = SessionName("main", "chat0")
        path = place.new_session(name)
        before = path.read_bytes()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        written = [_line(number) for number in range(60)]
        surgeon = place.surgeon(DirectExchanger())
        appender.begin(path)
        try:
            for data in written:
                os.write(fd, data)
                surgeon.extract(name)
        finally:
            os.close(fd)
        lines = appender.end()
        ids = [json.loads(data)["id"] for data in written]
        assert place.report.commits == 0
        assert place.report.give_ups
        assert path.read_bytes().startswith(before)
        assert missing_doubled_disordered(path, [lines, ids]) == []


def _line(number: int) -> bytes:
    return (
        json.dumps({"type": "message", "id": f"holding-{number}", "message": {}}).encode() + b"\n"
    )


_OTHER = """
import sys, time
from pathlib import Path
from bsd.foundation.layout import SessionName
from bsd.session.commit.exchangers import DirectExchanger
from tests.session.commit.arena import Arena, _operate
from tests.session.commit.chaos_report import Report

root, name, seconds = sys.argv[1:]
place = Arena(Path(root), Report("the other"))
exchanger = DirectExchanger()
surgeon = place.surgeon(exchanger)
end = time.monotonic() + float(seconds)
latest = end + 60
problems = []
while (now := time.monotonic()) < end or (now < latest and not place.report.commits):
    problems += _operate(surgeon, SessionName.parse(name))
    place.recover(exchanger)
print(place.report.commits, problems)
"""


def test_two_bsd_at_once_on_one_session() -> None:
    how_long = SECONDS / 6
    with NodeWriter("appender", "reopen") as appender, arena("two bsd") as place:
        name = SessionName("main", "chat0")
        path = place.new_session(name)
        appender.begin(path)
        others = [
            subprocess.Popen(
                [sys.executable, "-c", _OTHER, str(place.layout.root), str(name), str(how_long)],
                cwd=_TOP,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        # A slow machine may never be done between two lines, the less the longer the session is.
        with suppress(subprocess.TimeoutExpired):
            for other in others:
                other.wait(2 * how_long + 5)
        written = appender.end()
        said = [other.communicate()[0].strip() for other in others]
        place.report.lines = len(written)
        place.settle(DirectExchanger())
        assert [text.partition(" ")[2] for text in said] == ["[]", "[]"], said
        place.report.commits = sum(int(text.partition(" ")[0]) for text in said)
        assert place.report.commits, said
        assert missing_doubled_disordered(path, [written]) == []


def test_leases_are_short_beside_threads_that_parse() -> None:
    """The figure is in the report (10 ms is the target); a loaded machine is no defect."""
    stop = threading.Event()
    threads = [threading.Thread(target=_parse, args=[stop]) for _ in range(2)]
    with (
        NodeWriter("appender", "reopen") as appender,
        HelperExchanger() as exchanger,
        arena("two parsing threads beside it") as place,
    ):
        exchanger.start()
        for thread in threads:
            thread.start()
        try:
            problems = storm(place, exchanger, [appender], SECONDS / 6)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        report = place.report
    assert problems == [], "\n".join(problems[:20])
    assert report.commits, report
    assert report.longest_lease_ms > 0


def _parse(stop: threading.Event) -> None:
    document = orjson.dumps([{"text": "x" * 1000, "number": n} for n in range(500)])
    while not stop.is_set():
        orjson.loads(document)
