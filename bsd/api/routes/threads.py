"""Work that may wait, done beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio.to_thread import run_sync

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function on a thread of its own.

    A server that stops does not wait for it: what it does, it does to its end all the same.
    """
    return await run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)
