"""Values of JSON documents on disk, of the type and within the bounds that they should have.

Each function returns the value or raises ValueError or TypeError.
"""

from __future__ import annotations

import hashlib
from typing import Any

_LATEST_SECONDS = 253402300800.0  # the year 10000, which no calendar here has


def whole_number(value: Any, limit: int = 1 << 63, *, least: int = 0) -> int:
    """A whole number of bytes, a time or an id; true and false are none."""
    if type(value) is not int or not least <= value < limit:
        raise ValueError(f"{value!r:.40} is not a number of bytes, a time or an id")
    return value


def moment(value: Any) -> float:
    """A time in epoch seconds that a calendar has."""
    if type(value) not in (int, float) or not 0 <= value < _LATEST_SECONDS:
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def text_or_none(value: Any) -> str | None:
    """A text, or null."""
    return None if value is None else text(value)


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def sha256_in_hex(value: Any) -> bytes:
    """The bytes of a SHA-256 that is written in hexadecimal digits."""
    found = bytes.fromhex(text(value))
    if len(found) != hashlib.sha256().digest_size:
        raise ValueError(f"{value!r:.80} is no hash")
    return found


def path_below(value: Any, directory: str) -> str:
    """A relative path of plain names that leads to a file in a directory of this name."""
    first, *rest = text(value).split("/")
    plain = all(part not in {"", ".", ".."} and "\0" not in part for part in rest)
    if first != directory or not rest or not plain:
        raise ValueError(f"{value!r:.200} does not lie in {directory}")
    return "/".join((first, *rest))
