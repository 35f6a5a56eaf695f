"""Reading what a user names on the command line as a file, `-` for the standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bsd.foundation.errors import Invalid, NotFound, os_problem


def read_text(file: str) -> str:
    """Read a file of UTF-8; raises NotFound, Forbidden, Invalid."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        hint = "name a file that is there, or - for the standard input"
        raise NotFound(f"there is no file {file}", hint=hint) from None
    except IsADirectoryError:
        raise Invalid(f"{file} is a directory", hint="name a file in it") from None
    except OSError as error:
        raise os_problem(error, f"reading {file}") from error
    return decoded(data, _called(file))


def read_json(file: str, example: str) -> Any:
    """Read a file of JSON, of which `example` is one; raises as `read_text` does."""
    text = read_text(file)
    if not text.strip():
        raise Invalid(f"{_called(file)} is empty", hint=f"write JSON into it, as in {example}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{_called(file)} is not JSON: {error}", hint=f"as in {example}") from None


def decoded(data: bytes, what: str = "this") -> str:
    """UTF-8 as text, with or without a byte order mark; raises Invalid."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise Invalid(f"{what} is not UTF-8: {why}", hint="save it as UTF-8") from None


def _called(file: str) -> str:
    return "the standard input" if file == "-" else file
