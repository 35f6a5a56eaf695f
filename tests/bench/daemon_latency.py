"""Time from an append until the session is in the queue, beyond the debounce.

`python -m tests.bench.daemon_latency ROOT SECONDS LOAD [BSD.TOML]`: a daemon in this
process, with all its threads, over a root whose sessions another process appends to, each once.
LOAD is the number of its children that parse session lines meanwhile, as workers' children do.
Prints the delays (seconds) as JSON. `sleeper` are the delays of a process that only sleeps
meanwhile: on this machine no daemon can be sooner.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bsd.core.layout import SessionName
from bsd.daemon.service import Daemon
from tests.bench.measure import parse
from tests.loading import load_settings

_DEBOUNCE_SECONDS = 0.2
_WAIT_SECONDS = 20.0

_APPENDER = """
import sys, time
pause = float(sys.argv[1])
for path in sys.argv[2:]:
    with open(path, "ab", buffering=0) as file:
        file.write(b"\\n")
    print(time.monotonic_ns(), flush=True)
    time.sleep(pause)
"""

_SLEEPER = """
import signal, time
late = []
signal.signal(signal.SIGTERM, lambda *_: (print(*late), exit()))
while True:
    due = time.monotonic() + 0.01
    time.sleep(0.01)
    late.append(time.monotonic() - due)
"""


def main(root: Path, seconds: float, load: int, config: Path | None = None) -> None:
    sessions = sorted(root.glob("agents/*/sessions/*.jsonl"))
    queued: dict[SessionName, int] = {}
    with tempfile.TemporaryDirectory() as place:
        socket = f"{place}/bsd.sock"
        daemon = Daemon(
            load_settings(
                config,
                root,
                environ={
                    "HOME": place,
                    "BRAINSURGEON_SOCKET": socket,
                    "BRAINSURGEON_DEBOUNCE_SECONDS": str(_DEBOUNCE_SECONDS),
                    "BRAINSURGEON_LOG_LEVEL": "error",
                },
            )
        )
        put = daemon.state.queue.put

        def noted(session: SessionName, *given: Any, **named: Any) -> bool:
            queued.setdefault(session, time.monotonic_ns())
            return put(session, *given, **named)

        daemon.start()
        daemon.ready()
        try:
            while not _is_idle(daemon.report.status()):
                time.sleep(0.1)
            time.sleep(1.0)
            queued.clear()
            daemon.state.queue.put = noted  # type: ignore[method-assign]
            appended, sleeper = _append(daemon, sessions, seconds / len(sessions), load)
            deadline = time.monotonic() + _WAIT_SECONDS
            while len(queued) < len(sessions) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            daemon.stop()
    delays = [
        (queued[name] - at) / 1e9 - _DEBOUNCE_SECONDS
        for path, at in zip(sessions, appended, strict=True)
        if (name := SessionName(path.parts[-3], path.stem)) in queued
    ]
    lost = len(sessions) - len(delays)
    print(json.dumps({"delays": delays, "lost": lost, "sleeper": sleeper}))


def _is_idle(status: dict[str, Any]) -> bool:
    queue = status["queue"]
    return not queue["working"] and not queue["ready"] and bool(status["search"]["complete"])


def _append(
    daemon: Daemon, sessions: list[Path], pause: float, load: int
) -> tuple[list[int], list[float]]:
    """Append to each session; return the times (monotonic nanoseconds), and `sleeper`."""
    over = threading.Event()
    threads = [threading.Thread(target=_parse, args=(daemon, over)) for _ in range(load)]
    for thread in threads:
        thread.start()
    sleeper = subprocess.Popen([sys.executable, "-c", _SLEEPER], stdout=subprocess.PIPE, text=True)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _APPENDER, str(pause), *map(str, sessions)],
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        time.sleep(_DEBOUNCE_SECONDS)
        over.set()
        for thread in threads:
            thread.join()
        sleeper.terminate()
        late = sleeper.communicate()[0]
    return [int(line) for line in done.stdout.split()], [float(each) for each in late.split()]


def _parse(daemon: Daemon, over: threading.Event) -> None:
    daemon.children.call(
        parse,
        background=True,
        handlers={"goes_on": lambda: not over.is_set(), "alive": lambda: None},
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *map(Path, sys.argv[4:]))
