"""Running one program to its end: limits of each process, bounded output, its process group."""

import os
import resource
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from bsd.core.errors import FieldError, Invalid
from bsd.core.settings import WorkspaceLimits

_PIECE = 64 * 1024  # bytes
_POLL_SECONDS = 0.05
_WATCH_SECONDS = 1.0  # between two calls of `objection`
_LAST_OUTPUT_SECONDS = 1.0  # for output of a process that has left the process group


@dataclass(frozen=True, slots=True)
class Limits(WorkspaceLimits):
    """The limits of one run; 0 means no limit (of output: nothing is kept).

    `seconds` on the clock, `cpu_seconds` of each process, `processes` at once; the rest in bytes:
    `memory_bytes` (address space of each process, and memory of all together where systemd limits
    them), `file_bytes` (of one file), `disk_bytes` (of the whole workspace), `output_bytes` (kept
    of stdout, and of stderr).
    """

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
    """The beginning of a program's output; the rest is only counted."""

    most: int
    kept: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        self.kept += piece[: max(0, self.most - len(self.kept))]

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        return self.total > len(self.kept)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, negative for a signal (as `subprocess` has it).

    `stopped`: why it was ended early, other than for its time limit.
    """

    returncode: int
    timed_out: bool
    stopped: str | None
    seconds: float
    stdout: ProcessOutput
    stderr: ProcessOutput


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    limits: Limits,
    stdin: bytes | None = None,
    inherited: Sequence[int] = (),
    objection: Callable[[], str | None] = lambda: None,
) -> Ended:
    """Run a program until it ends or its time is over; then its process group is killed.

    Args:
        inherited: descriptors that the program inherits.
        objection: asked about once a second; a text ends the program, and says why.

    Raises:
        OSError: it cannot be started.
    """
    began = time.monotonic()
    outputs = ProcessOutput(limits.output_bytes), ProcessOutput(limits.output_bytes)
    with tempfile.TemporaryFile() as given, selectors.DefaultSelector() as selector:
        given.write(stdin or b"")
        given.seek(0)
        with subprocess.Popen(
            [*_limited(limits), *argv],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(inherited),
        ) as process:
            try:
                for pipe, output in zip((process.stdout, process.stderr), outputs, strict=True):
                    assert pipe is not None  # noqa: S101 - as asked for
                    os.set_blocking(pipe.fileno(), False)
                    selector.register(pipe, selectors.EVENT_READ, output)
                timed_out, stopped = _wait(process, selector, limits.seconds, objection)
            finally:  # after an interrupt too
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + _LAST_OUTPUT_SECONDS
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                _read(selector, left)
    seconds = time.monotonic() - began
    return Ended(process.returncode, timed_out, stopped, seconds, *outputs)


def _limited(limits: Limits) -> list[str]:
    """Return a shell that lowers its limits and becomes the program."""
    steps = ["ulimit -c 0"]
    for option, wanted, kind, unit in (
        ("t", limits.cpu_seconds, resource.RLIMIT_CPU, 1),
        ("v", limits.memory_bytes, resource.RLIMIT_AS, 1024),
        ("f", limits.file_bytes, resource.RLIMIT_FSIZE, 512),
    ):
        hard = resource.getrlimit(kind)[1]  # beyond which nothing can be raised
        if wanted and (hard == resource.RLIM_INFINITY or wanted < hard):
            steps.append(f"ulimit -{option} {-(-wanted // unit)}")
    return ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh"]


def _wait(
    process: subprocess.Popen[bytes],
    selector: selectors.BaseSelector,
    seconds: float,
    objection: Callable[[], str | None],
) -> tuple[bool, str | None]:
    """Read output until the program ends; returns whether its time was over, and an objection."""
    began = now = time.monotonic()
    due = began + _WATCH_SECONDS
    while process.poll() is None:
        now = time.monotonic()
        if seconds and now - began >= seconds:
            return True, None
        if now >= due:
            if reason := objection():
                return False, reason
            took = time.monotonic() - now
            due = now + max(_WATCH_SECONDS, 20 * took)  # a twentieth of the time at most
        _read(selector, _POLL_SECONDS)
    return False, None


def _read(selector: selectors.BaseSelector, seconds: float) -> None:
    """Read the available output, waiting `seconds` at most."""
    for key, _ in selector.select(seconds):
        piece = os.read(key.fd, _PIECE)
        if piece:
            key.data.add(piece)
        else:
            selector.unregister(key.fileobj)
