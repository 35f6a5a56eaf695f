"""npm and browsers, which only tests marked `compat` or `web` may start.

`make test` leaves these tests out, so it needs neither npm nor browsers. In every other test the
programs' names lead to a program that fails. A test that calls it fails, even if the test ignores
the error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ALLOWED = ("compat", "web")  # markers
_NAMES = (
    *("npm", "npx", "corepack", "pnpm", "yarn"),
    *("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "firefox"),
)
_PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >> "${0%/*}/called"
echo "a test that calls ${0##*/} needs the marker compat or web" >&2
exit 1
"""


def put_into(directory: Path) -> None:
    """Make the programs."""
    for name in _NAMES:
        program = directory / name
        program.write_text(_PROGRAM)
        program.chmod(0o755)


@contextmanager
def forbidden(item: pytest.Item, directory: Path) -> Iterator[None]:
    """Put `directory` first on PATH, unless the test may call the real programs."""
    if any(map(item.get_closest_marker, _ALLOWED)):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(directory), prepend=os.pathsep)
        yield


def fail_if_called(directory: Path) -> None:
    """Fail the test that has just ended if a program was called; reset for the next."""
    called = directory / "called"
    if called.exists():
        calls = called.read_text().splitlines()
        called.unlink()
        pytest.fail(f"needs the marker compat or web: it called {calls}", pytrace=False)
