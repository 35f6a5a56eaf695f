"""A daemon to measure, and the figures that /proc has about it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bsd.cli.client import Client, NotRunning
from bsd.core.errors import BsdError
from tests.bench.measure import Failed, bsd, environment

_PAUSE_SECONDS = 0.02
_DEADLINE_SECONDS = 3600.0
_SAMPLE_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Used:
    """Resources that a process and its children have used so far, ended children included."""

    at: float
    cpu: float  # seconds
    wakeups: int  # voluntary context switches of the live processes: each begins with a wake-up

    def share_until(self, later: Used) -> float:
        """CPU time as a share of one core's time."""
        return (later.cpu - self.cpu) / (later.at - self.at)

    def wakeups_until(self, later: Used) -> float:
        """Wake-ups per second."""
        return (later.wakeups - self.wakeups) / (later.at - self.at)


class Daemon:
    """`bsd run` over a root, on these cores or on all; the block begins when it answers.

    `http`: the address at which it listens beside its socket.
    """

    def __init__(self, root: Path, cores: Collection[int] = (), http: str | None = None) -> None:
        self._root = root
        self._options = ["--http", http] if http else []
        self._pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        # Not under the root, whose path may be too long for a socket.
        self._place = Path(tempfile.mkdtemp(prefix="bsd-bench-"))
        self.env = environment() | {"BRAINSURGEON_SOCKET": str(self._place / "bsd.sock")}
        self.client = self.another_client()
        self.seconds_until_ready = self.seconds_until_loaded = 0.0

    def __enter__(self) -> Self:
        began = time.perf_counter()
        with (self._place / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*self._pinned, *bsd("--root", str(self._root), "run", *self._options)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=self.env,
            )
        self.wait(self._is_ready, "to be ready")
        self.seconds_until_ready = time.perf_counter() - began
        self.client.get("/api/jobs")  # waits until the routes are loaded
        self.seconds_until_loaded = time.perf_counter() - began
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._place)

    def another_client(self) -> Client:
        """Return a client for another thread."""
        return Client(self._place / "bsd.sock")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/api/status")
        return found

    def wait(self, look: Callable[[], object], what: str) -> None:
        """Wait for a condition; raises Failed."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not look():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._place / "said").read_text(errors="replace")
                raise Failed(f"waited in vain for the daemon {what}:\n{said[-2000:]}")
            time.sleep(_PAUSE_SECONDS)

    def wait_until_idle(self) -> float:
        """Wait until the queue is empty; return the CPU seconds that the daemon used."""

        def idle() -> bool:
            time.sleep(0.2)  # each request is work, too
            queue = self.status()["queue"]
            return not any(queue[key] for key in ("debouncing", "ready", "working", "waiting"))

        self.wait(idle, "to have nothing to do")
        return self.used().cpu

    def wait_until_indexed(self) -> float:
        """Wait until the index of words is up to date; return the daemon's CPU seconds."""

        def indexed() -> bool:
            time.sleep(0.5)
            return bool(self.status()["search"]["complete"])

        self.wait(indexed, "to have read everything for the search")
        return self.used().cpu

    def wait_until_alone(self) -> None:
        """Wait until the daemon's child processes have ended: half a minute without work."""
        self.wait(lambda: len(self._tree()) == 1, "to have no children")

    def used(self) -> Used:
        """Return the use of the daemon and its children so far; wake-ups are the daemon's alone."""
        ticks = wakeups = 0
        seconds = 0.0
        for pid in self._tree():
            with suppress(OSError):  # it has ended: its parent's figures include it
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[13:15]))  # of children that it waited for
                seconds += _cpu(pid)
                if pid != self._process.pid:
                    continue  # the use of a child that ends meanwhile would be missing
                for status in Path(f"/proc/{pid}/task").glob("*/status"):
                    lines = status.read_text().splitlines()
                    wakeups += sum(int(x.split()[1]) for x in lines if x.startswith("voluntary"))
        return Used(time.monotonic(), seconds + ticks / _TICKS, wakeups)

    def rss(self) -> int:
        """Resident memory of the daemon itself, in bytes."""
        return _rss(self._process.pid)

    def rss_of_all(self) -> int:
        """Return the sum over all its processes; shared memory counts in each process."""
        return sum(map(_rss, self._tree()))

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """Yield the largest memory of all its processes together in the block, sampled often."""
        found, over = Peak(), threading.Event()

        def look() -> None:
            while not over.wait(_SAMPLE_SECONDS):
                found.rss = max(found.rss, self.rss_of_all())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()

    def over(self, seconds: float) -> tuple[float, float]:
        """Return the share of a core's time and the wake-ups a second in the next seconds."""
        before = self.used()
        time.sleep(seconds)
        after = self.used()
        return before.share_until(after), before.wakeups_until(after)

    def _tree(self) -> list[int]:
        """Return the processes of the daemon and its descendants."""
        pids = [self._process.pid]
        for pid in pids:  # grows meanwhile
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(FileNotFoundError, ProcessLookupError):
                    pids += map(int, path.read_text().split())
        return pids

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/api/health")["status"] in {"ok", "degraded"}
        except (NotRunning, BsdError, http.client.HTTPException):
            return False


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process by its own clock (clock_getcpuclockid(3)).

    /proc counts in ticks, and an idle daemon may use little more than one tick a minute.
    """
    return time.clock_gettime(~pid << 3 | 2)


@dataclass(slots=True)
class Peak:
    """The largest number of bytes."""

    rss: int = 0


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0


def configure(root: Path, **fields: Any) -> None:
    """Write config.json; a running daemon applies it at once."""
    own = root / ".brainsurgeon"
    own.mkdir(mode=0o700, exist_ok=True)
    new = own / "config.json.new"
    new.write_text(json.dumps(fields))
    new.replace(own / "config.json")
