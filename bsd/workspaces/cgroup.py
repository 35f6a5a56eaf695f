"""Limits of all processes of a run together: a cgroup (v2) of its own, where one can be had.

From systemd where that runs, as a scope; else in a cgroup that was delegated to us, as containers
and supervisors do it. Nothing is believed: systemd accepts limits without holding them where a
controller is missing, so a first scope is asked what the kernel knows of it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bsd.workspaces.process import Limits

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
