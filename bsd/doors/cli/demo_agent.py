"""The agent of `bsd demo`: a program of its own that appends to a session as the gateway does.

`python -m bsd.doors.cli.demo_agent SESSION SCRIPT LINE_PAUSE TURN_PAUSE`: each file in the
directory SCRIPT is a turn, appended line by line, every line by an open, a write and a close of
its own.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(session: Path, script: Path, line_pause: float, turn_pause: float) -> None:
    """Write all turns; pauses are seconds."""
    for turn in sorted(script.iterdir()):
        for line in turn.read_bytes().splitlines(keepends=True):
            _append(session, line)
            time.sleep(line_pause)
        time.sleep(turn_pause)


def _append(session: Path, line: bytes) -> None:
    # Never created: if it is not there, something is wrong, and the demo shall say so.
    descriptor = os.open(session, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(f"a line of {session} was written in part only")
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
