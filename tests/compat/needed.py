"""Finds installed programs for tests, which are skipped without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.compat.install import NotInstalled, find_other
from tests.needs import without

_T = TypeVar("_T")


def needed(what: str, find: Callable[[], _T]) -> _T:
    """Return the installed program that `find` finds, or skip the test; with CI=true, fail it."""
    try:
        return find()
    except NotInstalled as reason:
        without(f"{what}, which `make test-all` installs: {reason}")


def node_modules(what: str, name: str) -> Path:
    """Return the node_modules directory of a program of `OTHERS`, as `needed`."""
    return needed(what, lambda: find_other(name))
