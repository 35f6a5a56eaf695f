"""The system's facts of a process by its id; and returning our own free memory."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bsd.core.clock import steady

_PARENT_INDEX = 1  # field 4 of /proc/<pid>/stat, counted after the last `)`
_USER_INDEX, _SYSTEM_INDEX = 11, 12  # fields 14 and 15, in clock ticks
_STARTTIME_INDEX = 19  # field 22
_RESIDENT_INDEX = 21  # field 24, in pages
_INTERPRETER = re.compile(r"(?:node|bun|deno|python|ruby|sh|bash)[0-9.]*\Z")
_LONGEST_PROGRAM = 80  # characters


def alive(pid: int) -> bool:
    """Whether a process with this id exists; one that we may not signal does."""
    try:
        os.kill(pid, 0)  # 0 would be all of our own group
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def starttime(pid: int) -> int | None:
    """When the process started, in clock ticks after boot; None where /proc does not tell.

    Together with the id it names one process for as long as the machine runs.
    """
    return _stat(pid, _STARTTIME_INDEX)


def parent(pid: int) -> int | None:
    """The process that started this one, or took it over; None where /proc does not tell."""
    return _stat(pid, _PARENT_INDEX)


def cpu_seconds(pid: int) -> float | None:
    """How many seconds of a core a process has used; None where /proc does not tell."""
    user, system = _stat(pid, _USER_INDEX), _stat(pid, _SYSTEM_INDEX)
    if user is None or system is None:
        return None
    return (user + system) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int | None:
    """How much of a process is in memory; None where /proc does not tell."""
    pages = _stat(pid, _RESIDENT_INDEX)
    return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")


def begun(starttime: int) -> float | None:
    """When a process began, in epoch seconds, by its `starttime`."""
    try:
        since_boot = starttime / os.sysconf("SC_CLK_TCK")
    except (ValueError, OSError):  # a system that does not say how long a tick is
        return None
    return time.time() - (steady() - since_boot)


def directory(pid: int) -> str | None:
    """The working directory of a process, if it lets us look."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def argv(pid: int) -> tuple[str, ...]:
    """The process's command line as others see it; empty where /proc does not tell."""
    text = os.fsdecode(_read_proc(pid, "cmdline"))
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def described(pid: int) -> str:
    """Return a process as users are told of it: `process 812 (node openclaw.mjs)`."""
    words = argv(pid)
    program = os.path.basename(words[0]) if words else ""
    script = words[1] if len(words) > 1 else "-"
    # Of an interpreter, the script says more; other arguments may be secrets.
    if _INTERPRETER.match(program) and not script.startswith("-"):
        program = f"{program} {os.path.basename(script)}"
    program = program or _read_proc(pid, "comm").decode(errors="replace").strip()
    return f"process {pid} ({program[:_LONGEST_PROGRAM]})" if program else f"process {pid}"


def _stat(pid: int, index: int) -> int | None:
    # The second field is the program's name in parentheses and may itself hold any of `) (`.
    fields = _read_proc(pid, "stat").rpartition(b")")[2].split()
    return int(fields[index]) if len(fields) > index else None


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # gone, hidden from us, or a system without /proc: nothing is known
        return b""


@contextmanager
def without_collecting() -> Iterator[None]:
    """Look for no garbage while the block runs.

    For work that makes hundreds of thousands of objects and no cycles: looking for those would take
    a twentieth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def give_back_memory() -> None:
    """Return free memory to the system; worth its milliseconds after much was taken at once.

    glibc keeps free memory between pieces in use, for a long time as much as was ever taken.
    """
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
