"""Children that are no processes: what they are asked to do is done here, by the test's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.daemon.child import CallsInSession, Child, Setup
from bsd.sessions.idle import RetryBudget

_A = TypeVar("_A")
_Heard = Mapping[str, Callable[..., Any]]


class Here(Child):
    """Does tasks in this process."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        surgeon: Any = None,
        calls_in: Callable[[SessionName], CallsInSession | None] | None = None,
        quiet_seconds: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(Setup(layout, quiet_seconds, in_band=None), cast(Any, None))
        self.config = config
        self.clock = clock
        self.heard: _Heard = {}
        if surgeon is not None:
            self.extract = surgeon.extract  # type: ignore[method-assign]
        if calls_in is not None:
            self.calls_in = calls_in  # type: ignore[assignment,method-assign]

    def budget(self, wait: float) -> RetryBudget:
        return RetryBudget(wait, self._given.quiet_seconds, clock=self.clock)

    def live(self) -> None:
        self.say("alive")  # and nothing ends this process

    def check(self) -> None:
        self.say("checked")

    def say(self, what: str, *about: Any) -> None:
        self.ask(what, *about)

    def ask(self, what: str, *about: Any) -> Any:
        hear: Callable[..., Any] = self.heard.get(what, lambda *_: None)
        return hear(*about)


class ChildrenHere:
    """Stands in for `Children`."""

    def __init__(self, child: Here, heard: _Heard | None = None) -> None:
        self.child = child
        self.heard = heard or {}

    def call(
        self, task: Callable[..., _A], *arguments: Any, heard: _Heard | None = None, **_: Any
    ) -> _A:
        self.child.heard = {**self.heard, **(heard or {})}
        return task(self.child, *arguments)

    def step(self, now: float) -> None:
        """Nobody gets tired."""

    def stop(self) -> None:
        """Nobody is at work."""

    def join(self, deadline: float) -> bool:
        return True

    def snapshot(self) -> list[dict[str, Any]]:
        return []
