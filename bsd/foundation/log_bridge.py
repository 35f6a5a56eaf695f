"""What libraries say through the standard library's logging (watchdog, filelock) joins our log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bsd.foundation.logs import Log


class _Bridge(logging.Handler):
    """Hands records of libraries to our log, under the library's own logger name."""

    def __init__(self, get_logger: Callable[[str], Log]) -> None:
        super().__init__()
        self._get_logger = get_logger

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's malformed call must not become our crash
            text = str(record.msg)
        log = self._get_logger(record.name)
        fields = {"exc_info": record.exc_info} if record.exc_info else {}
        if record.levelno >= logging.ERROR:
            log.error(text, **fields)
        elif record.levelno >= logging.WARNING:
            log.warning(text, **fields)
        elif record.levelno >= logging.INFO:
            log.info(text, **fields)
        else:
            log.debug(text, **fields)


def listen(get_logger: Callable[[str], Log], *, everything: bool) -> None:
    """Take over what libraries log: warnings and worse, or `everything`."""
    stop_listening()
    root = logging.getLogger()
    root.addHandler(_Bridge(get_logger))
    root.setLevel(logging.DEBUG if everything else logging.WARNING)


def stop_listening() -> None:
    """Leave the standard library's logging as it is by default."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Bridge):
            root.removeHandler(handler)
            root.setLevel(logging.WARNING)
