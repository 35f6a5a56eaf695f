"""What the system or another part of bsd refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that fails with this error, whatever it is given."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
