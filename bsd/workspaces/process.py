"""Running one program to its end: limits, bounded output, and its whole process group with it."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bsd.foundation.errors import FieldError, Invalid

_PIECE = 64 * 1024
_LOOK_SECONDS = 0.05  # how often it is asked for its end, where that cannot be waited for
_LAST_WORDS_SECONDS = 1.0  # for output of somebody who left the process group


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. Memory is address space, of each process; 0 means no limit.

    `seconds` on the clock, `cpu_seconds` of each process; the rest in bytes: `memory_bytes`,
    `file_bytes` (of one file), `output_bytes` (kept of stdout, and of stderr).
    """

    seconds: float = 60.0
    cpu_seconds: int = 60
    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        wholes = ("cpu_seconds", "memory_bytes", "file_bytes", "output_bytes")
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
class Output:
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
    """How a process ended: its exit code, negative for a signal (subprocess's way)."""

    returncode: int
    timed_out: bool
    seconds: float
    stdout: Output
    stderr: Output


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    limits: Limits,
    stdin: bytes | None = None,
    held: Sequence[int] = (),
) -> Ended:
    """Run a program until it ends or its time is over; nobody of its process group survives.

    `held` are descriptors that the program inherits. Raises OSError if it cannot be started.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        process = subprocess.Popen(
            [*_limited(limits), *argv],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(held),
        )
    outputs = Output(limits.output_bytes), Output(limits.output_bytes)
    with process:
        assert process.stdout is not None  # noqa: S101 - as asked for
        assert process.stderr is not None  # noqa: S101
        try:
            with selectors.DefaultSelector() as selector:
                _listen(selector, process.stdout, outputs[0])
                _listen(selector, process.stderr, outputs[1])
                deadline = began + limits.seconds if limits.seconds else None
                with _end_of(process) as end:
                    timed_out = not _follow(process, selector, end, deadline)
                _kill_group(process)
                _drain(selector, time.monotonic() + _LAST_WORDS_SECONDS)
        except BaseException:  # an interrupt, too, must not leave it running
            _kill_group(process)
            raise
    return Ended(process.returncode, timed_out, time.monotonic() - began, *outputs)


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


def _listen(selector: selectors.BaseSelector, pipe: IO[bytes], output: Output) -> None:
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
) -> bool:
    """Read until the program has ended; False if its time was over before."""
    if end is not None:
        selector.register(end, selectors.EVENT_READ)
    try:
        while not _has_ended(process):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            if end is None:
                left = min(left or _LOOK_SECONDS, _LOOK_SECONDS)
            _read(selector, left)
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
