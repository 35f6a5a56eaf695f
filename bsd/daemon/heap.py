"""How the C library hands out memory to the daemon's threads."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENAS = -8  # M_ARENA_MAX of glibc's malloc.h


def share_heap() -> None:
    """Let all threads share one heap: each of their own would hold on to what was freed in it.

    Threads that wait for Python's lock do not wait for this one. Nothing happens without glibc.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENAS, 1)
