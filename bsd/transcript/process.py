"""What the system tells about a process by its id."""

from __future__ import annotations

import os

_STARTTIME_INDEX = 19  # field 22 of /proc/<pid>/stat, counted after the last `)`


def alive(pid: int) -> bool:
    """Whether a process with this id (> 0) exists; one that we may not signal does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def starttime(pid: int) -> int | None:
    """When the process started, in clock ticks after boot; None where /proc does not tell.

    Together with the id it names one process for as long as the machine runs.
    """
    stat = _read_proc(pid, "stat")
    # The second field is the program's name in parentheses and may itself hold any of `) (`.
    fields = stat.rpartition(b")")[2].split()
    return int(fields[_STARTTIME_INDEX]) if len(fields) > _STARTTIME_INDEX else None


def argv(pid: int) -> tuple[str, ...]:
    """The process's command line as others see it; empty where /proc does not tell."""
    text = os.fsdecode(_read_proc(pid, "cmdline"))
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # gone, hidden from us, or a system without /proc: nothing is known
        return b""
