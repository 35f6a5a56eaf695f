"""Running a program to its end: limits per process, bounded output, killing its process group."""

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
_LAST_OUTPUT_SECONDS = 1.0  # to read output of processes that have left the process group


@dataclass(frozen=True, slots=True)
class Limits(WorkspaceLimits):
    """The limits of a run; 0 means no limit (for output: none is kept).

    `seconds` of wall-clock time, `cpu_seconds` per process, `processes` at the same time. In bytes:
    `memory_bytes` (address space of each process; with systemd also memory of all processes),
    `file_bytes` (per file), `disk_bytes` (whole workspace), `output_bytes` (kept from stdout, and
    from stderr).
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
    """The beginning of a program's output; further bytes are only counted."""

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
    """The end of a process: its exit code, negative for a signal (as in `subprocess`).

    `stopped`: the reason if it was killed early, except for the time limit.
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
    """Run a program until it ends or its time is over, then kill its process group.

    Args:
        inherited: descriptors that the program inherits.
        objection: called about once a second; if it returns a text, the program is killed for this
            reason.

    Raises:
        OSError: the program cannot be started.
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
                    assert pipe is not None  # noqa: S101 - both are pipes
                    os.set_blocking(pipe.fileno(), False)
                    selector.register(pipe, selectors.EVENT_READ, output)
                timed_out, stopped = _wait(process, selector, limits.seconds, objection)
            finally:  # also after an interrupt
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + _LAST_OUTPUT_SECONDS
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                _read(selector, left)
    seconds = time.monotonic() - began
    return Ended(process.returncode, timed_out, stopped, seconds, *outputs)


def _limited(limits: Limits) -> list[str]:
    """Return the command of a shell that lowers its limits and then executes the program."""
    steps = ["ulimit -c 0"]
    for option, wanted, kind, unit in (
        ("t", limits.cpu_seconds, resource.RLIMIT_CPU, 1),
        ("v", limits.memory_bytes, resource.RLIMIT_AS, 1024),
        ("f", limits.file_bytes, resource.RLIMIT_FSIZE, 512),
    ):
        hard = resource.getrlimit(kind)[1]  # the shell cannot exceed it
        if wanted and (hard == resource.RLIM_INFINITY or wanted < hard):
            steps.append(f"ulimit -{option} {-(-wanted // unit)}")
    return ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh"]


def _wait(
    process: subprocess.Popen[bytes],
    selector: selectors.BaseSelector,
    seconds: float,
    objection: Callable[[], str | None],
) -> tuple[bool, str | None]:
    """Read output until the program must end; return (its time is over, the objection)."""
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
            due = now + max(_WATCH_SECONDS, 20 * took)  # uses at most a twentieth of the time
        _read(selector, _POLL_SECONDS)
    return False, None


def _read(selector: selectors.BaseSelector, seconds: float) -> None:
    """Read the available output, waiting at most `seconds`."""
    for key, _ in selector.select(seconds):
        piece = os.read(key.fd, _PIECE)
        if piece:
            key.data.add(piece)
        else:
            selector.unregister(key.fileobj)
