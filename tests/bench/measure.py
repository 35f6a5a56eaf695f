"""The cost of a child process: wall time, CPU time and peak memory, on one core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from bsd.daemon.child import Child
from bsd.sample import session_lines


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and bytes of peak resident memory."""

    wall: float
    cpu: float
    rss: int
    output: bytes


class Failed(Exception):
    """A measured program did not succeed."""


# The peak of a process includes the time before its `exec`, when it is a copy of this process,
# which may have built a session of a gigabyte. So a small process starts the child and notes its
# cost.
_RUN = """
import os, sys, time
began = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
cost = time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
with open(sys.argv[1], "w") as file:
    print(os.waitstatus_to_exitcode(status), *cost, file=file)
"""


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run a program to its end on a single core; raises Failed."""
    core = max(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as noted:
        done = subprocess.run(
            [sys.executable, "-ISc", _RUN, noted.name, "taskset", "-c", str(core), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            env=dict(env or environment()),
        )
        code, wall, cpu, rss = noted.read().split()
    if int(code):
        command = " ".join(argv)[:200]
        raise Failed(f"{command}: {int(code)}\n{done.stderr.decode()[-2000:]}")
    return Cost(float(wall), float(cpu), int(rss), done.stdout)


def environment() -> dict[str, str]:
    """Return this environment with a cache of compiled modules, as in an installed program."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ours = {"PYTHONPYCACHEPREFIX": ".bench/pycache", "XDG_STATE_HOME": ".bench/state"}
    return kept | {name: os.path.abspath(path) for name, path in ours.items()}


def bsd(*arguments: str) -> list[str]:
    """Return the command line of bsd in this environment."""
    return [sys.executable, "-m", "bsd", *arguments]


def settle() -> None:
    """Wait until the disk has finished the writes of earlier steps."""
    os.sync()


def parse(child: Child) -> None:
    """Sample work of a child: a megabyte of lines, a sign of life, and so on."""
    lines = list(session_lines(size=1 << 20))
    while child.ask("goes_on"):
        for line in lines:
            orjson.loads(line)
        child.progress(0)
