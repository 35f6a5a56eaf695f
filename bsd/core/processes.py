"""Information about processes by their ids, and control of this process's own memory."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bsd.core.clock import steady

_PARENT_INDEX = 1  # field 4 of /proc/<pid>/stat, counted after the last `)`
_USER_INDEX, _SYSTEM_INDEX = 11, 12  # fields 14 and 15, in clock ticks
_STARTTIME_INDEX = 19  # field 22
_RESIDENT_INDEX = 21  # field 24, in pages
_INTERPRETER = re.compile(r"(?:node|bun|deno|python|ruby|sh|bash)[0-9.]*\Z")
_LONGEST_PROGRAM = 80  # characters


def alive(pid: int) -> bool:
    """Return True if a process with this id exists, also if bsd may not signal it."""
    try:
        os.kill(pid, 0)  # a pid of 0 means the own process group; see the last line
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def running() -> list[int]:
    """Return the ids of all processes that the system shows; empty without /proc."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def starttime(pid: int) -> int | None:
    """Return when the process started, in clock ticks after boot; None without /proc.

    Together with the id it identifies a process until the machine restarts.
    """
    return _stat(pid, _STARTTIME_INDEX)


def parent(pid: int) -> int | None:
    """Return the id of the parent process; None without /proc."""
    return _stat(pid, _PARENT_INDEX)


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time that a process has used, in seconds; None without /proc."""
    user, system = _stat(pid, _USER_INDEX), _stat(pid, _SYSTEM_INDEX)
    if user is None or system is None:
        return None
    return (user + system) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int | None:
    """Return the resident memory of a process in bytes; None without /proc."""
    pages = _stat(pid, _RESIDENT_INDEX)
    return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")


def begun(starttime: int) -> float | None:
    """Convert a `starttime` to epoch seconds; None if the length of a tick is unknown."""
    try:
        since_boot = starttime / os.sysconf("SC_CLK_TCK")
    except (ValueError, OSError):  # the system does not report the length of a tick
        return None
    return time.time() - (steady() - since_boot)


def directory(pid: int) -> str | None:
    """Return the working directory of a process; None if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def argv(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty without /proc."""
    text = os.fsdecode(_read_proc(pid, "cmdline"))
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def described(pid: int) -> str:
    """Describe a process for users: `process 812 (node openclaw.mjs)`."""
    words = argv(pid)
    program = os.path.basename(words[0]) if words else ""
    script = words[1] if len(words) > 1 else "-"
    # For an interpreter, add the script; other arguments may be secrets.
    if _INTERPRETER.match(program) and not script.startswith("-"):
        program = f"{program} {os.path.basename(script)}"
    program = program or _read_proc(pid, "comm").decode(errors="replace").strip()
    return f"process {pid} ({program[:_LONGEST_PROGRAM]})" if program else f"process {pid}"


def _stat(pid: int, index: int) -> int | None:
    # The second field is the program's name in parentheses; the name may contain `)`, `(`, spaces.
    fields = _read_proc(pid, "stat").rpartition(b")")[2].split()
    return int(fields[index]) if len(fields) > index else None


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # the process has ended, is hidden, or the system has no /proc
        return b""


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disable the garbage collector during the block.

    For work that creates hundreds of thousands of objects and no cycles: the collector would use a
    twentieth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def give_back_memory() -> None:
    """Return free memory to the system; takes milliseconds, so only for after a large allocation.

    glibc keeps free memory that lies between pieces in use, possibly the peak amount for long.
    """
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
