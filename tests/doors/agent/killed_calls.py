"""Looks at a session that are killed at one of their disk calls, each in a root of its own.

`python -m tests.doors.agent.killed_calls DIRECTORY EVERY` makes `DIRECTORY/1`, `DIRECTORY/2`, …
from `DIRECTORY/0`, kills a look at every EVERYth disk call, and prints at which ones, until one
look comes through alive.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bsd.foundation.layout import Layout
from tests.doors.agent.conftest import Desk
from tests.session.commit.disk_calls import DiskCalls


def _is_killed_at(number: int, root: Path) -> bool:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return True
        assert status == 0, status
        return False
    DiskCalls(die_at=number).install()
    Desk(Layout(root)).look()
    os._exit(0)


def main(directory: str, every: str) -> None:
    number = 1
    while True:
        root = Path(directory) / str(number)
        shutil.copytree(Path(directory) / "0", root, copy_function=shutil.copy2)
        if not _is_killed_at(number, root):
            break
        print(number)  # noqa: T201 - the answer
        number += int(every)


if __name__ == "__main__":
    main(*sys.argv[1:])
