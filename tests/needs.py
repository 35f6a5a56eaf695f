"""What some tests need of the machine: without it they are skipped, but in CI they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import NoReturn

import pytest

NOBODY = 65534


def require_program(name: str) -> str:
    """The path of a program, or no test."""
    path = shutil.which(name)
    return path or _without(f"the program `{name}`")


def require_node() -> str:
    """The path of Node, in which the gateway is written."""
    return require_program("node")


def require_linux() -> None:
    """/proc and what else only Linux has."""
    if not sys.platform.startswith("linux"):
        _without("Linux")


def as_ordinary_user() -> list[str]:
    """What to put before a command line to run it as a user who is not root."""
    if os.geteuid() != 0:
        return []
    prefix = [
        require_program("setpriv"),
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
    ]
    if not _runs_python(tuple(prefix)):
        _without("a Python and a checkout that every user may read")
    return prefix


@cache
def _runs_python(prefix: tuple[str, ...]) -> bool:
    answer = subprocess.run(
        [*prefix, sys.executable, "-c", "import subprocess, bsd, orjson"],
        check=False,
        capture_output=True,
    )
    return answer.returncode == 0


def _without(what: str) -> NoReturn:
    reason = f"needs {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, which CI must provide", pytrace=False)
    pytest.skip(reason)
