"""The processes that hold the locks of Codex's threads, or have a thread's file open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bsd.transcripts.agents.program_locks import held_by, place_of


def locked_by(pid: int, locks: Path) -> set[str]:
    """Return the threads that a process has locked, according to the system's list of locks."""
    with suppress(OSError):
        locked = held_by(pid)
        with os.scandir(locks) as found:
            return {
                each.name.removesuffix(".lock")
                for each in found
                if place_of(each.stat(follow_symlinks=False)) in locked
            }
    return set()


def open_files(pid: int) -> list[Path]:
    """Return the files that a process has open; empty if bsd has no permission to see them."""
    found: dict[Path, None] = {}  # without duplicates, in the order of their descriptors
    with suppress(OSError):
        for number in sorted(os.listdir(f"/proc/{pid}/fd"), key=int):
            with suppress(OSError):
                found[Path(os.readlink(f"/proc/{pid}/fd/{number}"))] = None
    return list(found)
