"""The cost of one append to a large session for the daemon's caller.

`python -m tests.bench.daemon_append ROOT MEGABYTES ROUNDS` makes a session, extracts it once, and
then appends a turn in every round. It prints JSON. The rounds in which the file stays as it is
(`kept`) and the rounds in which it is rewritten (`written`) each have: seconds, bytes read, bytes
appended, and the seconds that the same work takes with a small session (`small`). `copy` is the
seconds of a kernel copy of the same file with fsync.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.planning.result import Status
from bsd.sample import session_lines
from bsd.sessions.editor import Worth
from bsd.sessions.idle import RetryBudget
from bsd.store.state import StateDb
from tests.actions.performed import Caller

_NAME = SessionName("main", "session")
_SMALL, _SMALL_TURNS = SessionName("main", "small"), 3
_REST_SECONDS = 2.2  # bsd plans no operation on a file that was just written
_TURN = b'"message":{"role":"user"'


def main(root: Path, size: int, rounds: int) -> None:
    path = Layout(root).agents / "main" / "sessions" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.with_stem(_SMALL.session).write_bytes(b"".join(session_lines(turns=_SMALL_TURNS)))
    turns = _turns()
    with path.open("wb") as file:
        while file.tell() < size * 3 // 2:  # a third of it will leave
            file.write(next(turns))
    config = ConfigService(Layout(root).config_file)
    # Most of the session must stay, or it would no longer be a large session.
    config.update({"trigger_types": ["thinking"], "retention": "never"})
    caller = Caller(
        layout=Layout(root),
        config=config,
        actor="daemon",
        budget=RetryBudget(wait=0.0),
        state=StateDb(Layout(root).state_db),
    )
    time.sleep(_REST_SECONDS)
    first = caller.extract(_NAME)
    assert first.status is Status.EXTRACTED, first
    time.sleep(_REST_SECONDS)
    caller.extract(_NAME)
    found: dict[str, list[dict[str, float]]] = {"kept": [], "written": [], "copy": []}
    for _ in range(rounds):
        for kind, worth in (("kept", lambda _: False), ("written", lambda _: True)):
            found[kind].append(_round(caller, path, next(turns), worth))
        found["copy"].append({"seconds": _copy(path)})
    print(json.dumps({"size": path.stat().st_size, **found}))


def _turns() -> Iterator[bytes]:
    """Yield turns of one session, endlessly."""
    turn = b""
    for line in session_lines(size=1 << 50):
        if _TURN in line and turn:
            yield turn
            turn = b""
        turn += line


def _round(caller: Caller, path: Path, turn: bytes, worth: Worth) -> dict[str, float]:
    asked: list[bool] = []
    for appended in (path, path.with_stem(_SMALL.session)):
        with appended.open("ab") as file:
            file.write(turn)
    time.sleep(_REST_SECONDS)
    os.sync()
    before, began = _bytes_read(), time.perf_counter()
    result = caller.extract(_NAME, worth=lambda plan: _note(asked, bool(plan.edits), worth, plan))
    seconds = time.perf_counter() - began
    read = _bytes_read() - before
    began = time.perf_counter()
    beside = caller.extract(_SMALL, worth=worth)
    small = time.perf_counter() - began
    for each in (result, beside):
        assert each.status in {Status.EXTRACTED, Status.UNCHANGED}, each
    return {
        "seconds": seconds,
        "small": small,
        "read": read,
        "appended": len(turn),
        "something": any(asked),
    }


def _note(asked: list[bool], something: bool, worth: Worth, plan: Any) -> bool:
    asked.append(something)
    return worth(plan)


def _bytes_read() -> int:
    """Return the bytes of this process's read calls; a kernel copy by the process counts, too."""
    return _of_io("rchar")


def _of_io(key: str) -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _copy(path: Path) -> float:
    target = path.with_suffix(".copy")
    os.sync()
    began = time.perf_counter()
    with path.open("rb") as old, target.open("xb") as new:
        while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
            pass
        os.fsync(new.fileno())
    seconds = time.perf_counter() - began
    target.unlink()
    return seconds


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) << 20, int(sys.argv[3]))
