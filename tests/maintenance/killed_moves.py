"""Processes that are killed after each step of a delete or a restore, each in a root of its own.

`python -m tests.maintenance.killed_moves ACT DIRECTORY [MOST]` makes `DIRECTORY/1`, `DIRECTORY/2`,
… from `DIRECTORY/0` until a process comes through alive, or MOST of them, and prints how many were
killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
from tests.sessions.commit.disk_calls import was_killed

NAME = SessionName("main", "s1")


def act(what: str, trash: Trash) -> None:
    """Run the action under test."""
    match what:
        case "delete":
            trash.delete(NAME)
        case "permanent":
            trash.delete(NAME, permanent=True)
        case "restore":
            trash.restore(str(NAME))
        case "remove":
            trash.remove(str(NAME))


def _dying_after(step: int, what: str, root: Path) -> None:
    left = [step]

    def after_step(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    act(what, Trash(Layout(root), "14d", after_step=after_step, budget=RetryBudget(wait=0.0)))


def main(what: str, directory: str, most: str = "1000") -> None:
    killed = 0
    for step in range(1, int(most) + 1):
        root = Path(directory) / str(step)
        shutil.copytree(Path(directory) / "0", root, copy_function=shutil.copy2)
        if not was_killed(partial(_dying_after, step, what, root)):
            break
        killed = step
    print(killed)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
