"""Sends new data to the bucket, the catalogue and the Parquet files, every `push_seconds`.

Each of the three is sent by a process of its own, `bsd archive push` for example, in a thread of
its own: neither a bucket that hangs nor a database that is gone delays the daemon or another of
them. After a failure a sender waits, longer each time. A process that is killed loses nothing: the
next one goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

import bsd
from bsd.bucket.objects import backoff
from bsd.core import clock
from bsd.core.fleet_settings import FleetSettings
from bsd.core.settings import Settings

_log = structlog.stdlib.get_logger(module="fleet")

_DAY_SECONDS = 24 * 3600.0
LONGEST_RUN_SECONDS = 6 * 3600.0  # a process that takes longer is killed; the next one goes on
_POLL_SECONDS = 0.5
_NICE = 10
_TERM_SECONDS = 3.0  # between SIGTERM and SIGKILL
_LONGEST_MESSAGE = 500
# -I -S: the environment must not decide which code runs, as in the daemon's other processes.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    " from bsd.__main__ import main; sys.exit(main())"
)


@dataclass(slots=True)
class Sending:
    """The state of a sender. Times are epoch seconds; `errors` counts from the daemon's start."""

    last_success: float | None = None
    last_error: str | None = None
    failures: int = 0  # since the last success
    errors: int = 0  # since the start of the daemon


class Sender:
    """Runs one command again and again. `step` is called by a loop of its own.

    Args:
        name: for log and status: `bucket`, `catalogue` or `parquet`.
        command: the arguments of `bsd`.
        every: seconds between the end of a run and the next one.
        wall: the clock, in epoch seconds.
        steady: the clock of the loop.
        program: the Python program that is run; for tests.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        every: float,
        wall: Callable[[], float] = time.time,
        *,
        steady: Callable[[], float] = clock.steady,
        program: str = _PROGRAM,
    ) -> None:
        self.name = name
        self.state = Sending()
        self._command = command
        self._every = every
        self._wall = wall
        self._steady = steady
        self._program = program
        self._stopping = threading.Event()

    def step(self, _now: float) -> float | None:
        """Run the command once; return the time of the next run."""
        problem = self._run()
        if self._stopping.is_set():
            return None
        state = self.state
        if problem is None:
            if state.failures:
                _log.info("Sending works again", to=self.name)
            state.last_success, state.last_error, state.failures = self._wall(), None, 0
            return self._steady() + self._every
        state.errors += 1
        if problem != state.last_error:
            _log.warning("Sending has failed", to=self.name, problem=problem)
        state.last_error = problem
        wait = backoff(state.failures)
        state.failures += 1
        return self._steady() + wait

    def stop(self) -> None:
        """Have the process end that runs, and begin no other; does not wait."""
        self._stopping.set()

    def _run(self) -> str | None:
        """Run the command to its end; return why it failed, or None."""
        home = str(Path(bsd.__file__).parents[1])
        path = [*dict.fromkeys([*filter(None, sys.path), home])]
        argv = [sys.executable, "-I", "-S", "-c", self._program, orjson.dumps(path).decode()]
        try:
            process = subprocess.Popen(
                [*argv, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                process_group=0,  # without the signals of the terminal
            )
        except OSError as error:
            return f"a process cannot be started: {error.strerror}"
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return self._outcome(process)

    def _outcome(self, process: subprocess.Popen[bytes]) -> str | None:
        """Wait for the end of the process; return why it failed, or None."""
        until = self._steady() + LONGEST_RUN_SECONDS
        killed_at: float | None = None
        while True:
            try:
                _, errors = process.communicate(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                now = self._steady()
            if killed_at is None and (self._stopping.is_set() or now > until):
                process.terminate()
                killed_at = now + _TERM_SECONDS
            elif killed_at is not None and now > killed_at:
                process.kill()
        if process.returncode == 0:
            return None
        told = errors.decode("utf-8", "replace").strip()
        return told[-_LONGEST_MESSAGE:] or f"the process ended with {process.returncode}"


def senders(settings: Settings) -> list[Sender]:
    """Return the senders that the settings ask for; none if this host shares nothing."""
    return [Sender(*each) for each in _wanted(settings)]


def _wanted(settings: Settings) -> Iterator[tuple[str, list[str], float]]:
    fleet: FleetSettings = settings.fleet
    if settings.readonly:
        return
    here = ["--config", str(settings.config_file), "--root", str(settings.root)]
    if fleet.bucket is not None:
        yield "bucket", [*here, "archive", "push"], fleet.push_seconds
    if fleet.database is not None:
        yield "catalogue", [*here, "fleet", "update"], fleet.push_seconds
    if fleet.parquet and fleet.bucket is not None and not fleet.encrypt_to:
        yield "parquet", [*here, "fleet", "export"], _DAY_SECONDS
