"""Checks the types and ranges of values from JSON documents on disk.

Each function returns the value, or raises ValueError or TypeError.
"""

from __future__ import annotations

import hashlib
from typing import Any

_LATEST_SECONDS = 253402300800.0  # year 10000, beyond the range of datetime


def whole_number(value: Any, limit: int = 1 << 63, *, least: int = 0) -> int:
    """Return an integer in `[least, limit)`; true and false are not integers."""
    if type(value) is not int or not least <= value < limit:
        raise ValueError(f"{value!r:.40} is not a number of bytes, a time or an id")
    return value


def moment(value: Any) -> float:
    """Return a time in epoch seconds, from 1970 to the year 9999."""
    if type(value) not in (int, float) or not 0 <= value < _LATEST_SECONDS:
        raise ValueError(f"{value!r:.40} is not a time")
    return float(value)


def text(value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def text_or_none(value: Any) -> str | None:
    """Return a string or None."""
    return None if value is None else text(value)


def truth(value: Any) -> bool:
    """Return a Boolean."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def sha256_in_hex(value: Any) -> bytes:
    """Return the bytes of a SHA-256 in hexadecimal digits."""
    found = bytes.fromhex(text(value))
    if len(found) != hashlib.sha256().digest_size:
        raise ValueError(f"{value!r:.80} is not a hash")
    return found


def relative_path(value: Any) -> str:
    """Return a relative path whose parts are plain names, without `..`."""
    path = text(value)
    if any(part in {"", ".", ".."} or "\0" in part for part in path.split("/")):
        raise ValueError(f"{path!r:.200} is not a relative path of plain names")
    return path


def path_below(value: Any, directory: str) -> str:
    """Return a relative path to a file in `directory`; its parts are plain names, without `..`."""
    path = relative_path(value)
    if not path.startswith(f"{directory}/"):
        raise ValueError(f"{path!r:.200} does not lie in {directory}")
    return path
