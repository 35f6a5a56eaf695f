"""The senders of the daemon: processes that run again and again, fail, hang and are stopped."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bsd.core.clock import steady
from bsd.daemon.uploader import Sender, senders
from tests.loading import load_settings
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

_FAILS = "import sys; print('Error: no route', file=sys.stderr); sys.exit(75)"
_SUCCEEDS = "import sys; assert sys.argv[-2:] == ['archive', 'push']"


def sender(program: str) -> Sender:
    return Sender("bucket", ["archive", "push"], 300.0, lambda: 1000.0, program=program)


def counted(one: Sender) -> tuple[str | None, int, int]:
    return one.state.last_error, one.state.failures, one.state.errors


def test_a_run_that_succeeds_comes_again_after_the_interval() -> None:
    one = sender(_SUCCEEDS)
    before = steady()
    again = one.step(before)
    assert again is not None
    assert again >= before + 300
    assert (one.state.last_success, one.state.last_error, one.state.errors) == (1000.0, None, 0)


def test_failures_wait_longer_and_are_told_until_a_success() -> None:
    one = sender(_FAILS)
    waits = []
    for _ in range(4):
        again = one.step(0.0)
        assert again is not None
        waits.append(again - steady())
    assert all(0 < wait <= 2.0**number for number, wait in enumerate(waits))
    assert waits[3] > 3.5
    told = counted(one)
    assert told == ("Error: no route", 4, 4)
    one._program = _SUCCEEDS
    one.step(0.0)
    assert counted(one) == (None, 0, 4)


def test_a_process_that_hangs_is_ended_by_a_stop(tmp_path: Path) -> None:
    mark = tmp_path / "began"
    one = sender(
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f" pathlib.Path({str(mark)!r}).touch(); time.sleep(3600)"
    )
    answers = []
    thread = threading.Thread(target=lambda: answers.append(one.step(0.0)))
    thread.start()
    wait_for(mark.exists)
    began = time.monotonic()
    one.stop()
    assert time.monotonic() - began < 1  # it does not wait
    thread.join()
    assert answers == [None]
    assert one.state.errors == 0


def test_only_what_the_settings_name_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "bsd.toml"
    environ = {"HOME": str(tmp_path)}
    names = {}
    for text in (
        "",
        '[fleet]\nbucket = "s3://b"',
        '[fleet]\ndatabase = "postgresql://db/bsd"',
        '[fleet]\nbucket = "s3://b"\ndatabase = "postgresql://db/bsd"\nparquet = true',
        'readonly = true\n[fleet]\nbucket = "s3://b"',
    ):
        file.write_text(text)
        names[text] = [each.name for each in senders(load_settings(file, environ=environ))]
    assert list(names.values()) == [
        [],
        ["bucket"],
        ["catalogue"],
        ["bucket", "catalogue", "parquet"],
        [],
    ]
