"""Work that may wait, done beside the event loop, by a few threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Threads:
    """At most `most` threads for one kind of work; who comes later waits for his turn."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._limiter = RunVar[CapacityLimiter](f"bsd-{name}")  # one for each event loop

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function on a thread of its own.

        A server that stops does not wait for it: what it does, it does to its end all the same.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._most)
            self._limiter.set(limiter)
        call = partial(function, *args, **kwargs)
        return await run_sync(call, abandon_on_cancel=True, limiter=limiter)


# Apart, so that somebody who waits for a busy session keeps nobody from reading, and somebody who
# reads a huge one keeps nobody from asking how the daemon is.
in_thread = Threads("answers", 4).run
reading = Threads("reading", 4).run
changing = Threads("changing", 4).run
