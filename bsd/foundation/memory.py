"""Memory that is free, but that the C library has kept from the system."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Give the system what is free; worth its milliseconds after much was taken at once.

    glibc keeps what stands between pieces in use, for a long time as much as was ever taken.
    """
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
