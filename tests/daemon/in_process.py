"""Children without processes: their tasks run here, by the test's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.daemon.child import BEGAN, CallsInSession, Child, ChildSetup
from bsd.sessions.idle import RetryBudget

_A = TypeVar("_A")
_Handlers = Mapping[str, Callable[..., Any]]


class Here(Child):
    """Runs tasks in this process."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        caller: Any = None,
        calls_in: Callable[..., CallsInSession | None] | None = None,
        quiet_seconds: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(ChildSetup(layout, quiet_seconds, in_band=None), cast(Any, None))
        self.config = config
        self.clock = clock
        self.coming: Iterator[SessionName] = iter(())  # sessions that the task is to begin
        self.handlers: _Handlers = {}
        if caller is not None:
            self.extract = caller.extract  # type: ignore[method-assign]
        if calls_in is not None:
            self.calls_in = calls_in  # type: ignore[method-assign]

    def budget(self, wait: float) -> RetryBudget:
        return RetryBudget(wait, self._setup.quiet_seconds, clock=self.clock)

    def live(self) -> None:
        self.say("alive")  # and this process never ends early

    def check(self) -> None:
        self.say("checked")

    def say(self, kind: str, *about: Any) -> None:
        self.ask(kind, *about)

    def ask(self, kind: str, *about: Any) -> Any:
        handler: Callable[..., Any] = self.handlers.get(kind, lambda *_: None)
        return handler(*about)

    def begin(self) -> None:
        """Report the next session."""
        self.say(BEGAN, next(self.coming))


class ChildrenHere:
    """Stands in for `Children`."""

    def __init__(self, child: Here, handlers: _Handlers | None = None) -> None:
        self.child = child
        self.handlers = handlers or {}

    def call(
        self,
        task: Callable[..., _A],
        *arguments: Any,
        several: Mapping[SessionName, int] | None = None,
        handlers: _Handlers | None = None,
        **_: Any,
    ) -> _A:
        self.child.handlers = {**self.handlers, **(handlers or {})}
        self.child.coming = iter(several or {})
        return task(self.child, *arguments)

    def step(self, now: float) -> None:
        """No process is idle."""

    def stop(self) -> None:
        """No process is busy."""

    def join(self, deadline: float) -> bool:
        return True

    def snapshot(self) -> list[dict[str, Any]]:
        return []
