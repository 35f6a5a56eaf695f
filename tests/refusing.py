"""Refusals by the system or by another part of bsd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that fails with this error for any arguments."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
