"""Running one program to its end: limits, bounded output, and its whole process group with it."""

from __future__ import annotations

import errno
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import IO

from bsd.core.errors import FieldError, Invalid
from bsd.core.settings import WorkspaceLimits

_PIECE = 64 * 1024
_LOOK_SECONDS = 0.05  # how often it is asked for its end, where that cannot be waited for
_WATCH_SECONDS = 1.0  # how often somebody may object to its going on
_LAST_WORDS_SECONDS = 1.0  # for output of somebody who left the process group


@dataclass(frozen=True, slots=True)
class Limits(WorkspaceLimits):
    """What one run may use; 0 means no limit (of output: nothing is kept).

    `seconds` on the clock, `cpu_seconds` of each process, `processes` at once; the rest in bytes:
    `memory_bytes` (address space of each process, and memory of all together where the system
    groups them), `file_bytes` (of one file), `disk_bytes` (of the whole workspace),
    `output_bytes` (kept of stdout, and of stderr).
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
    process = _started([*before, *_limited(limits), *argv], cwd, environment, stdin, held)
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


def _started(
    argv: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stdin: bytes | None,
    held: Sequence[int],
) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        return subprocess.Popen(
            argv,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(held),
        )


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


# --- limits of all processes of a run together: a cgroup (v2), where one can be had ---
#
# From systemd where that runs, as a scope; else in a cgroup that was delegated to us, as containers
# and supervisors do it. Nothing is believed: systemd accepts limits without holding them where a
# controller is missing, so a first scope is asked what the kernel knows of it.

_PROBE_SECONDS = 10.0
_END_SECONDS = 2.0  # for killed processes to leave their group
_PROBED = 67_108_864, 64
_SYSTEMD = Path("/run/systemd/system")  # there as long as systemd is in charge
_NEEDED = {"memory", "pids"}
# What systemd-run finds the user's own systemd by.
_BUS = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_ASK = (
    "p=$(sed -n s/^0:://p /proc/self/cgroup)\n"
    'for d in /sys/fs/cgroup /sys/fs/cgroup/unified; do cat "$d$p/memory.max" "$d$p/pids.max"; done'
)
_JOIN = 'echo $$ > "$1/cgroup.procs" || exit 126; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Group:
    """How a program gets into its cgroup: what to put before its argv, and into its environment.

    `missing` says why there is none; None if there is one.
    """

    before: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    missing: str | None = None
    directory: Path | None = None

    def complaint(self, limits: Limits) -> str | None:
        """Which limit somebody in it ran into, as the kernel counted; None if nobody did."""
        if self.directory is None:
            return None
        if _count(self.directory / "memory.events", "oom_kill"):
            return f"killed: its processes used more than {limits.memory_bytes:,} bytes together"
        if _count(self.directory / "pids.events", "max"):
            return f"it wanted more than {limits.processes} processes at once"
        return None


@contextmanager
def group(limits: Limits) -> Iterator[Group]:
    """Offer a cgroup with these limits, and end whoever is left in it afterwards."""
    if not (limits.memory_bytes or limits.processes):
        yield Group(missing="nothing is to be limited")
        return
    if _SYSTEMD.is_dir():
        missing = why_no_scope(os.geteuid())
        yield Group(missing=missing) if missing else _scope(limits)
        return
    parent = delegated()
    if isinstance(parent, str):
        yield Group(missing=parent)
        return
    directory = parent / f"bsd-run-{uuid.uuid4().hex}"
    try:
        _make(directory, limits)
    except OSError as error:
        with suppress(OSError):
            directory.rmdir()
        yield Group(missing=f"making a cgroup in {parent}: {error.strerror}")
        return
    try:
        yield Group(("/bin/sh", "-c", _JOIN, "sh", str(directory)), directory=directory)
    finally:
        _end(directory)


# --- from systemd ---


@cache
def why_no_scope(_user: int) -> str | None:
    """Why systemd makes no scope that limits; None if it does."""
    if shutil.which("systemd-run") is None:
        return "systemd-run is not installed"
    memory, processes = _PROBED
    wanted = _scope(Limits(memory_bytes=memory, processes=processes))
    try:
        done = subprocess.run(
            [*wanted.before, "/bin/sh", "-c", _ASK],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"systemd-run does not work here: {error}"
    if done.returncode != 0 and not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        return f"systemd-run does not work here: {said or f'exit code {done.returncode}'}"
    if done.stdout.split() != [str(memory).encode(), str(processes).encode()]:
        return "systemd is not given control of memory and processes (cgroup v2) here"
    return None


def _scope(limits: Limits) -> Group:
    # By its path: the program's own PATH must not decide what is run before it.
    words = [shutil.which("systemd-run") or "systemd-run", "--scope", "--quiet", "--collect"]
    environment: tuple[tuple[str, str], ...] = ()
    if os.geteuid() != 0:
        words.append("--user")
        environment = tuple((name, os.environ[name]) for name in _BUS if name in os.environ)
    if limits.memory_bytes:
        words += ["-p", f"MemoryMax={limits.memory_bytes}", "-p", "MemorySwapMax=0"]
    if limits.processes:
        words += ["-p", f"TasksMax={limits.processes}"]
    return Group((*words, "--"), environment)


# --- from whoever delegated one ---


def delegated(
    own: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo")
) -> Path | str:
    """Return a cgroup in which we may make others that limit; else why there is none, in words."""
    mount = _mount(mounts)
    try:
        found = re.search(r"^0::(/.*)$", own.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if mount is None or found is None:
        return "there is no cgroup v2 here"
    here = mount / found[1].lstrip("/")
    for candidate in (here, here.parent) if here != mount else (here,):
        if _is_ours(candidate):
            return candidate
    return "no cgroup that could limit memory and processes is delegated to bsd"


def _mount(mounts: Path) -> Path | None:
    """Where the cgroups (v2) are to be seen."""
    with suppress(OSError):
        for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
            place, _, source = line.partition(" - ")
            if source.startswith("cgroup2 "):
                return Path(place.split()[4])
    return None


def _is_ours(directory: Path) -> bool:
    try:
        given = set((directory / "cgroup.subtree_control").read_text(encoding="ascii").split())
    except OSError:
        return False
    joinable = os.access(directory / "cgroup.procs", os.W_OK)
    return given >= _NEEDED and joinable and os.access(directory, os.W_OK)


def _make(directory: Path, limits: Limits) -> None:
    directory.mkdir()
    if limits.memory_bytes:
        (directory / "memory.max").write_text(f"{limits.memory_bytes}\n")
        with suppress(FileNotFoundError):  # a kernel without swap
            (directory / "memory.swap.max").write_text("0\n")
    if limits.processes:
        (directory / "pids.max").write_text(f"{limits.processes}\n")


def _end(directory: Path) -> None:
    """Kill whoever is left, and let the group go; at worst an empty one stays."""
    with suppress(OSError):  # kernels before 5.14 have no such file
        (directory / "cgroup.kill").write_text("1\n")
    deadline = time.monotonic() + _END_SECONDS
    while True:
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                return
            time.sleep(0.01)
        else:
            return


def _count(file: Path, name: str) -> int:
    try:
        found = re.search(rf"^{name} (\d+)$", file.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
