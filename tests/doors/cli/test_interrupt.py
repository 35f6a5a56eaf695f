"""A stop is taken where nothing is half done; a second one at once."""

from __future__ import annotations

import signal

import pytest

from bsd.doors.cli.interrupt import Stopped, StopRequest, stop_request


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_first(number: signal.Signals) -> None:
    with stop_request() as request:
        signal.raise_signal(number)
        assert request.number == number
        with pytest.raises(Stopped) as stopped:
            request.check()
    assert stopped.value.exit_code == 128 + number


def test_the_second_signal_does_not_wait() -> None:
    with stop_request() as request:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
        assert request.insisted


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_request():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_waiting_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def signalled(_seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("time.sleep", signalled)
    with stop_request() as request:
        with pytest.raises(Stopped):
            request.sleep(3600)
        assert not request.insisted


def test_no_wait_begins_after_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited"))
    request = StopRequest()
    request.number = signal.SIGINT
    with pytest.raises(Stopped):
        request.sleep(1)


def test_nothing_that_catches_errors_takes_it() -> None:
    assert not issubclass(Stopped, Exception)
