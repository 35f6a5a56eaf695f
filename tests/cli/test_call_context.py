"""The context that a command makes for an action: log, signals, waiting."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bsd.cli.call import Call
from bsd.cli.stopping import Stopped
from bsd.core.errors import Forbidden
from bsd.core.logs import close_logs


@pytest.fixture
def call(root: Path, clean_environment: Path) -> Call:
    call = Call()
    call.root = str(root)
    return call


def test_a_signal_stops_an_action_that_changes_something_at_its_next_progress(call: Call) -> None:
    with call.context(changes=True) as context:
        context.progress(1)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            context.progress(2)
    close_logs()
    assert call.stop_code == 128 + signal.SIGTERM


def test_an_action_may_end_early_with_its_answer(call: Call) -> None:
    with call.context(changes=False, ends_early=True) as context:
        assert not context.stopping()
        signal.raise_signal(signal.SIGINT)
        context.progress(1)
        assert context.stopping()
    assert call.stop_code == 128 + signal.SIGINT


def test_an_action_that_only_looks_is_interrupted_as_usual(call: Call) -> None:
    # A shell without job control starts programs in the background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), call.context(changes=False):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert call.stop_code == 0


def test_nothing_begins_where_the_settings_allow_only_reading(
    call: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAINSURGEON_READONLY", "true")
    with pytest.raises(Forbidden), call.context(changes=True):
        pytest.fail("it began")
    with call.context(changes=False):
        pass
    assert not (root / ".brainsurgeon").exists()


def test_a_long_wait_is_announced_once_on_a_terminal(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("time.sleep", slept.append)
    with call.context(changes=True, wait=5.0) as context:
        assert context.budget.wait == 5.0
        for seconds in (0.1, 2.0, 2.0):
            context.budget.sleep(seconds)
    close_logs()
    assert slept == [0.1, 2.0, 2.0]
    assert capsys.readouterr().err.count("Ctrl-C ends it") == 1
