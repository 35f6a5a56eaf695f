"""The daemon's exchange helper, and how often it had to be replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from bsd.foundation.logs import get_logger
from bsd.session.commit.exchangers import HelperExchanger, Step

if TYPE_CHECKING:
    from bsd.session.commit.exchange import Request, Result

_log = get_logger("exchange")


class WatchedHelper:
    """A helper process that starts anew whenever it is gone; `replaced` is told each time."""

    def __init__(self, replaced: Callable[[], None], helper: HelperExchanger | None = None) -> None:
        self._helper = helper or HelperExchanger()
        self._replaced = replaced
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        return self._helper.pid

    def start(self) -> None:
        self._helper.start()

    def close(self) -> None:
        self._helper.close()

    def exchange(self, request: Request, after_step: Step) -> Result:
        """Do one exchange; raises ExchangerLost if the helper dies with it in its hands."""
        with self._turn:  # the helper does one at a time anyway
            before = self._helper.pid
            try:
                return self._helper.exchange(request, after_step)
            finally:
                if before is not None and self._helper.pid != before:
                    _log.warning("The exchange helper had died", pid=before)
                    self._replaced()
