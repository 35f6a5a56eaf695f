"""Running one program to its end: limits, bounded output, and its whole process group with it."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO

from bsd.foundation.errors import FieldError, Invalid

_PIECE = 64 * 1024
_LOOK_SECONDS = 0.05  # how often it is asked for its end, where that cannot be waited for
_WATCH_SECONDS = 1.0  # how often somebody may object to its going on
_LAST_WORDS_SECONDS = 1.0  # for output of somebody who left the process group


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use; 0 means no limit (of output: nothing is kept).

    `seconds` on the clock, `cpu_seconds` of each process, `processes` at once; the rest in bytes:
    `memory_bytes` (address space of each process, and memory of all together where the system
    groups them), `file_bytes` (of one file), `disk_bytes` (of the whole workspace),
    `output_bytes` (kept of stdout, and of stderr).
    """

    seconds: float = 60.0
    cpu_seconds: int = 60
    memory_bytes: int = 4 << 30
    processes: int = 512
    file_bytes: int = 256 << 20
    disk_bytes: int = 8 << 30
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        wholes = [one.name for one in fields(self) if one.name != "seconds"]
        errors = [
            FieldError(name, "must be a whole number, 0 or more")
            for name in wholes
            if type(getattr(self, name)) is not int or getattr(self, name) < 0
        ]
        seconds: object = self.seconds
        if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            errors.append(FieldError("seconds", "must be a number of seconds, 0 or more"))
        if errors:
            text = "; ".join(f"{one.field} {one.message}" for one in errors)
            raise Invalid(text, errors=tuple(errors))


@dataclass(slots=True)
class ProcessOutput:
    """The beginning of what a program wrote; the rest is counted."""

    most: int
    kept: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        self.kept += piece[: max(0, self.most - len(self.kept))]

    @property
    def truncated(self) -> bool:
        return self.total > len(self.kept)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, negative for a signal (subprocess's way).

    `stopped` says why it was ended before, other than for its time.
    """

    returncode: int
    timed_out: bool
    stopped: str | None
    seconds: float
    stdout: ProcessOutput
    stderr: ProcessOutput


def run_process(  # noqa: PLR0913 - a process has as many sides
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    limits: Limits,
    stdin: bytes | None = None,
    held: Sequence[int] = (),
    before: Sequence[str] = (),
    objection: Callable[[], str | None] | None = None,
) -> Ended:
    """Run a program until it ends or its time is over; nobody of its process group survives.

    `held` are descriptors that the program inherits; `before` starts it without being limited
    itself; `objection` is asked about once a second, and ends the program by saying why. Raises
    OSError if it cannot be started.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        process = subprocess.Popen(
            [*before, *_limited(limits), *argv],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(held),
        )
    outputs = ProcessOutput(limits.output_bytes), ProcessOutput(limits.output_bytes)
    with process:
        assert process.stdout is not None  # noqa: S101 - as asked for
        assert process.stderr is not None  # noqa: S101
        try:
            with selectors.DefaultSelector() as selector:
                _listen(selector, process.stdout, outputs[0])
                _listen(selector, process.stderr, outputs[1])
                deadline = began + limits.seconds if limits.seconds else None
                with _end_of(process) as end:
                    watch = _Objections(objection)
                    timed_out = not _follow(process, selector, end, deadline, watch)
                _kill_group(process)
                _drain(selector, time.monotonic() + _LAST_WORDS_SECONDS)
        except BaseException:  # an interrupt, too, must not leave it running
            _kill_group(process)
            raise
    seconds = time.monotonic() - began
    return Ended(process.returncode, timed_out, watch.said, seconds, *outputs)


def _limited(limits: Limits) -> list[str]:
    """A shell that lowers its limits and becomes the program: no code of ours after a fork."""
    steps = ["ulimit -c 0"]
    for option, wanted, kind, unit in (
        ("t", limits.cpu_seconds, resource.RLIMIT_CPU, 1),
        ("v", limits.memory_bytes, resource.RLIMIT_AS, 1024),
        ("f", limits.file_bytes, resource.RLIMIT_FSIZE, 512),
    ):
        hard = resource.getrlimit(kind)[1]  # ours, beyond which nothing can be raised
        if wanted and (hard == resource.RLIM_INFINITY or wanted < hard):
            steps.append(f"ulimit -{option} {-(-wanted // unit)}")
    return ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh"]


class _Objections:
    """Asks for objections, and takes at most a twentieth of the time for it."""

    def __init__(self, objection: Callable[[], str | None] | None) -> None:
        self._objection = objection
        self.due = time.monotonic() + _WATCH_SECONDS if objection else None
        self.said: str | None = None

    def objects(self) -> bool:
        began = time.monotonic()
        if self._objection is None or self.due is None or began < self.due:
            return False
        self.said = self._objection()
        ended = time.monotonic()
        self.due = ended + max(_WATCH_SECONDS, 20 * (ended - began))
        return self.said is not None


def _listen(selector: selectors.BaseSelector, pipe: IO[bytes], output: ProcessOutput) -> None:
    os.set_blocking(pipe.fileno(), False)
    selector.register(pipe, selectors.EVENT_READ, output)


@contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """A descriptor that is readable when the process has ended; None where there are none."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _follow(
    process: subprocess.Popen[bytes],
    selector: selectors.BaseSelector,
    end: int | None,
    deadline: float | None,
    watch: _Objections,
) -> bool:
    """Read until the program has ended or somebody objects; False if its time was over before."""
    if end is not None:
        selector.register(end, selectors.EVENT_READ)
    try:
        while not _has_ended(process):
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            if watch.objects():
                break
            times = [deadline, watch.due, None if end is not None else now + _LOOK_SECONDS]
            next_one = min((each for each in times if each is not None), default=None)
            _read(selector, None if next_one is None else max(0.0, next_one - now))
        return True
    finally:
        if end is not None:
            selector.unregister(end)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS
        return process.poll() is not None
    # Not reaped yet: as long as it is not, nobody else can get its process group's number.
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _drain(selector: selectors.BaseSelector, deadline: float) -> None:
    while selector.get_map() and (left := deadline - time.monotonic()) > 0:
        _read(selector, left)


def _read(selector: selectors.BaseSelector, seconds: float | None) -> None:
    for key, _ in selector.select(seconds):
        if key.data is None:  # not output, but the end
            continue
        piece = os.read(key.fd, _PIECE)
        if piece:
            key.data.add(piece)
        else:
            selector.unregister(key.fileobj)
