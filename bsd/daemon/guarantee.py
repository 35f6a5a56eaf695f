"""How sure commits can be where the sessions lie, and where no events come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bsd.foundation.filesystem import MOVE_ELSEWHERE, Strength, strength, without_exchange

# Changes made on other machines, or behind the mount, are told to nobody here.
_NO_EVENTS = {"NFS", "CIFS", "SMB2", "9p", "FUSE"}


class Mounts:
    """What is known of the file systems under one root; each is asked once.

    `can_exchange` says whether names can be exchanged where a directory lies, None if nobody knows.
    """

    def __init__(self, can_exchange: Callable[[Path], bool | None] = lambda _: None) -> None:
        self._can_exchange = can_exchange
        self._known: dict[int, Strength] = {}
        self._where: dict[int, Path] = {}

    def of(self, path: Path) -> Strength | None:
        """Judge the file system of `path`; None if it cannot be asked now."""
        try:
            device = os.stat(path).st_dev
            if device not in self._known:
                self._known[device] = strength(path)
                self._where[device] = path
            if self._known[device].level == "weak" and self._can_exchange(path) is False:
                self._known[device] = without_exchange(self._known[device])
        except OSError:
            return None
        return self._known[device]

    def scan_only(self, path: Path, device: int) -> str | None:
        """Say why no events come from a directory on a device; None if they do."""
        found = self._known.get(device) or self.of(path)
        if found is not None and found.filesystem in _NO_EVENTS:
            return f"no events come from {found.filesystem}"
        return None

    def look(self, paths: Iterable[Path]) -> None:
        """Get to know the file systems of `paths`."""
        for path in paths:
            self.of(path)

    def problems(self) -> list[str]:
        """Where sessions lie that cannot be changed, and what to try."""
        return [
            f"sessions in {self._where[device]} and elsewhere on this {found.filesystem} are left "
            f"alone: {found.why} (try: {MOVE_ELSEWHERE})"
            for device, found in list(self._known.items())
            if found.level == "none"
        ]

    def snapshot(self) -> list[dict[str, Any]]:
        """The level for each file system, as status tells it."""
        return [
            {
                "path": str(self._where[device]),
                "level": found.level,
                "filesystem": found.filesystem,
                "why": found.why,
            }
            for device, found in list(self._known.items())
        ]
