"""Looks at a session that are killed at one of their disk calls, each in a root of its own.

`python -m tests.mcp.killed_calls DIRECTORY EVERY` makes `DIRECTORY/1`, `DIRECTORY/2`, … from
`DIRECTORY/0`, kills a look at every EVERYth disk call, and prints the numbers of these calls,
until a look ends without being killed.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from bsd.core.layout import Layout
from tests.mcp.conftest import Desk
from tests.sessions.commit.disk_calls import DiskCalls, was_killed


def _look(number: int, root: Path) -> None:
    DiskCalls(die_at=number).install()
    Desk(Layout(root)).look()


def main(directory: str, every: str) -> None:
    number = 1
    while True:
        root = Path(directory) / str(number)
        shutil.copytree(Path(directory) / "0", root, copy_function=shutil.copy2)
        if not was_killed(partial(_look, number, root)):
            break
        print(number)  # noqa: T201 - the answer
        number += int(every)


if __name__ == "__main__":
    main(*sys.argv[1:])
