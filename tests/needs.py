"""Requirements of tests on the machine: without them tests are skipped, but in CI they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import click
import pytest

import bsd

NOBODY = 65534
_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def require_program(name: str) -> str:
    """Return the path of a program, or skip the test."""
    path = shutil.which(name)
    return path or without(f"the program `{name}`")


def require_node() -> str:
    """Return the path of Node, in which the gateway is written, or skip the test."""
    return require_program("node")


def require_linux() -> None:
    """Skip without /proc and the other features that only Linux has."""
    if not sys.platform.startswith("linux"):
        without("Linux")


def as_ordinary_user() -> list[str]:
    """Return the words before a command line that run it as a user other than root."""
    if os.geteuid() != 0:
        return []
    require_program("setpriv")
    prefix = list(_NOBODY)
    if not _runs_python(tuple(prefix)):
        without("a Python and a checkout that every user may read")
    return prefix


@cache
def python_for_all() -> tuple[str, str]:
    """Return a Python that every user may read, and the PYTHONPATH with which it finds bsd."""
    require_program("setpriv")
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    beside = [str(Path(module.__file__ or "").parents[1]) for module in (bsd, click)]
    for each in (sys.executable, python):
        top = os.pathsep.join(beside)
        asked = [*_NOBODY, each, "-c", f"open({each!r}); import bsd, click; open(click.__file__)"]
        answer = subprocess.run(
            asked, check=False, capture_output=True, env=os.environ | {"PYTHONPATH": top}
        )
        if answer.returncode == 0:
            return each, top
    pytest.skip("there is no Python here that every user may read")


@cache
def _runs_python(prefix: tuple[str, ...]) -> bool:
    answer = subprocess.run(
        [*prefix, sys.executable, "-c", "import subprocess, bsd, orjson"],
        check=False,
        capture_output=True,
    )
    return answer.returncode == 0


def without(what: str) -> NoReturn:
    """Skip the test that needs it; in CI, fail."""
    reason = f"needs {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, which CI must provide", pytrace=False)
    pytest.skip(reason)
