"""Ways in which a file belongs to another user, or another user may change it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.needs import NOBODY


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else as well")
    os.chown(path, NOBODY, NOBODY)


def _by_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".else"))
    path.symlink_to(path.with_suffix(".else"))


WAYS: dict[str, Callable[[Path], None]] = {
    "another's": _given_away,
    "writable for a group": lambda path: path.chmod(path.stat().st_mode | 0o060),
    "writable for all": lambda path: path.chmod(path.stat().st_mode | 0o006),
    "link": _by_a_link,
    "of two names": lambda path: path.with_suffix(".else").hardlink_to(path),
}
