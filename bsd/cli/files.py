"""Reading what a user names on the command line as a file, `-` for the standard input."""

from __future__ import annotations

import sys
from pathlib import Path


def read_text(file: str) -> str:
    """Read a file of UTF-8; raises NotFound, Forbidden, Invalid."""
    from bsd.foundation.errors import os_problem

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise os_problem(error, f"reading {file}") from error
    return decoded(data)


def decoded(data: bytes) -> str:
    """UTF-8 as text, with or without a byte order mark; raises Invalid."""
    from bsd.foundation.errors import Invalid

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"this is not UTF-8: {error.reason} at byte {error.start}") from None
