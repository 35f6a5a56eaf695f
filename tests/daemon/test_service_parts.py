"""Small parts of the service: one instance, signals, events, the ledger."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from bsd.core.errors import TemporaryFailure
from bsd.core.layout import Layout, SessionName
from bsd.daemon.instance import SingleInstance, holder
from bsd.daemon.service import follow
from bsd.daemon.signals import RELOAD, STOP, Signals, wait_for_end
from bsd.daemon.state import Ledger
from bsd.daemon.status import Events
from bsd.planning.result import SessionResult, Status
from bsd.planning.timing import Cause
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.protocol import CommitOutcome
from tests.loading import load_settings
from tests.logs import capture_logs
from tests.planning.timings import result_with, timing
from tests.waiting import DEADLINE_SECONDS

NAME = SessionName("main", "s1")


class TestSingleInstance:
    def test_the_second_is_told_who_is_there(self, tmp_path: Path) -> None:
        layout = Layout(tmp_path)
        with SingleInstance(layout):
            for _ in range(2):  # an attempt leaves the first one's pid in the file
                with pytest.raises(TemporaryFailure) as refusal:
                    SingleInstance(layout).acquire()
                assert f"process {os.getpid()}" in refusal.value.message
                assert refusal.value.exit_code == 75
        with SingleInstance(layout):
            assert holder(layout.instance_lock) == os.getpid()

    def test_what_a_dead_one_left_is_in_nobodys_way(self, tmp_path: Path) -> None:
        layout = Layout(tmp_path)
        layout.own.mkdir()
        layout.instance_lock.write_text("999999999 and more\n" * 3)
        with SingleInstance(layout):
            assert layout.instance_lock.read_text() == f"{os.getpid()}\n"


class TestSignals:
    def test_they_wait_until_somebody_asks(self) -> None:
        with Signals() as signals:
            assert signals.wait(0) == []
            os.kill(os.getpid(), RELOAD)
            os.kill(os.getpid(), STOP[0])
            heard = signals.wait(DEADLINE_SECONDS)
            while len(heard) < 2:
                heard += signals.wait(DEADLINE_SECONDS)
            assert sorted(heard) == sorted([RELOAD, STOP[0]])

    def test_handlers_are_put_back(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        with Signals():
            assert signal.getsignal(signal.SIGTERM) != before
        assert signal.getsignal(signal.SIGTERM) == before

    def test_the_end_comes_or_the_time_runs_out(self) -> None:
        insisted: list[int] = []
        with Signals() as signals:
            assert not wait_for_end(signals, lambda: False, 0.0, insisted.append)
            ended = threading.Event()

            def end() -> None:
                ended.set()
                signals.end_wait()

            ender = threading.Thread(target=end)
            ender.start()
            assert wait_for_end(signals, ended.is_set, DEADLINE_SECONDS, insisted.append)
            ender.join()
        assert insisted == []

    def test_a_second_one_insists(self) -> None:
        insisted: list[int] = []
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert wait_for_end(signals, lambda: bool(insisted), 30.0, insisted.append)
        assert insisted == [signal.SIGINT]


class TestEvents:
    def test_everybody_hears_what_happens_while_they_listen(self) -> None:
        events = Events(lambda: 0.0)
        events.publish("early")
        one, two = events.subscribe(), events.subscribe()
        events.publish("session", session="main/s1")
        one.close()
        events.publish("job", name="scan")
        assert [each.type for each in iter(one.take, None)] == ["session"]
        heard = [each.as_json() for each in iter(two.take, None)]
        assert heard == [
            {"type": "session", "at": "1970-01-01T00:00:00.000Z", "session": "main/s1"},
            {"type": "job", "at": "1970-01-01T00:00:00.000Z", "name": "scan"},
        ]
        events.close()
        assert two.closed
        assert two.take() is None

    def test_who_does_not_listen_loses_the_oldest_and_knows_it(self) -> None:
        events = Events(lambda: 0.0)
        slow = events.subscribe()
        for number in range(1003):
            events.publish("n", number=number)
        first = slow.take()
        assert first is not None
        assert first.data == {"number": 3}
        assert (slow.take_lost(), slow.take_lost()) == (3, 0)

    def test_a_listener_that_waits_is_woken_once_for_all_that_waits(self) -> None:
        events = Events(lambda: 0.0)
        woken: list[int] = []
        listener = events.subscribe(lambda: woken.append(1))
        events.publish("session")
        events.publish("session")
        assert len(woken) == 1
        while listener.take():
            pass
        events.publish("session")
        assert len(woken) == 2
        events.close()
        assert len(woken) == 3


class TestLedger:
    def test_totals_add_up(self) -> None:
        ledger = Ledger()
        ledger.attempted(CommitOutcome(None, bytes_written=1000))
        ledger.attempted(CommitOutcome(GiveUp.IS_OPEN))
        ledger.attempted(CommitOutcome(GiveUp.IS_OPEN))
        result = SessionResult(
            str(NAME),
            Status.EXTRACTED,
            entries=2,
            values=3,
            bytes_before=900,
            bytes_after=400,
            tokens_saved=77,
        )
        ledger.worked(NAME, result, 5.0)
        ledger.worked(NAME, result_with(timing(Cause.PAYS)), 6.0)
        ledger.worked(NAME, result_with(timing(Cause.WARM)), 7.0)
        totals = ledger.totals()
        assert (totals["cuts"], totals["tokens_rewritten"]) == ({"pays": 1}, 31_000)
        assert totals["commits"] == 1
        assert totals["give_ups"] == {"is_open": 2}
        assert totals["bytes_written"] == 1000
        assert (totals["entries"], totals["values"]) == (2 + 1, 3 + 0)
        assert (totals["bytes_saved"], totals["tokens_saved"]) == (500, 77 + 38_123)

    def test_sessions_are_the_newest_first_and_not_without_end(self) -> None:
        ledger = Ledger()
        for number in range(600):
            name = SessionName("main", f"s{number}")
            ledger.worked(name, SessionResult(str(name), Status.UNCHANGED), float(number))
        ledger.worked(NAME, SessionResult(str(NAME), Status.BUSY), 1000.0)
        sessions = ledger.sessions()
        assert len(sessions) == 500
        assert [each["session"] for each in sessions[:2]] == ["main/s1", "main/s599"]
        assert sessions[0]["at"] == "1970-01-01T00:16:40.000Z"

    def test_left_alone_counts_sessions_and_not_visits(self) -> None:
        ledger = Ledger()
        for _ in range(3):
            ledger.worked(NAME, SessionResult(str(NAME), Status.LEFT_ALONE, reason="foreign"), 0.0)
        ledger.worked(NAME, SessionResult(str(NAME), Status.BUSY), 0.0)
        assert ledger.left_alone() == {"count": 1, "reasons": {"foreign": 1}}
        ledger.worked(NAME, SessionResult(str(NAME), Status.UNCHANGED), 0.0)
        assert ledger.left_alone()["count"] == 0


class TestFollowing:
    def test_what_can_be_followed_is_and_the_rest_is_named(self, tmp_path: Path) -> None:
        old = load_settings(root=tmp_path, environ={})
        wanted = {"BRAINSURGEON_LOG_LEVEL": "debug", "BRAINSURGEON_WORKERS": "7"}
        with capture_logs() as lines:
            now = follow(old, load_settings(root=tmp_path, environ=wanted))
        assert (now.log_level, now.workers) == ("debug", old.workers)
        assert [line["keys"] for line in lines] == [["workers"]]
        with capture_logs() as lines:
            assert follow(now, now) == now
        assert lines == []
