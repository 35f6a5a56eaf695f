"""Notices that `config.json` was replaced, so that a change by any process works at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bsd.daemon.watches import Watches, open_watches
from bsd.foundation.logs import get_logger

_log = get_logger(__name__)


class SettingsWatch:
    """One watch on one directory. Where there is none to be had, the scan looks instead."""

    def __init__(self, file: Path, told: Callable[[], None]) -> None:
        self._file = file
        self._told = told
        self._watches: Watches | None = None

    def start(self) -> None:
        """Begin to watch; a refusal costs only the haste."""
        try:
            self._watches = open_watches(self)
            # Only names: it is always replaced, and our own log of changes grows beside it.
            self._watches.add(self._file.parent, files=False)
        except OSError as error:
            _log.warning("Changes of settings are noticed by the scan only", error=str(error))

    def close(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()

    # --- on watchdog's thread, which any exception would end ---

    def touched(self, directory: str, name: str) -> None:  # noqa: ARG002 - there is only one
        if name == self._file.name:
            self._tell()

    def gone(self, directory: str) -> None:  # noqa: ARG002
        self._tell()

    def lost(self, why: str) -> None:  # noqa: ARG002
        self._tell()

    def _tell(self) -> None:
        with suppress(Exception):
            self._told()
