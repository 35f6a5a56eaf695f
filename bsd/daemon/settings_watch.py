"""Which changes of settings a running daemon follows, and how it notices those in `config.json`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bsd.daemon.watches import Watches, open_watches
from bsd.foundation.logs import get_logger
from bsd.foundation.settings import AT_ONCE, Settings

_log = get_logger(__name__)

_WHILE_RUNNING = {name for name, one in Settings.model_fields.items() if AT_ONCE in one.metadata}


def follow(old: Settings, new: Settings) -> Settings:
    """Return `old` with the changes that a running daemon can follow; the log names the others."""
    changed = {key for key in Settings.model_fields if getattr(old, key) != getattr(new, key)}
    if waiting := sorted(changed - _WHILE_RUNNING):
        _log.warning("These settings take effect at the next start", keys=waiting)
    return old.model_copy(update={key: getattr(new, key) for key in changed & _WHILE_RUNNING})


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
