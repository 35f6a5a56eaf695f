"""Files that are not sessions but from which an earlier version of bsd extracted values."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property

from bsd.core.errors import BsdError, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.transcripts.agents.program import ENDING


class StoredFiles:
    """The files from which bsd stores values. The stores are listed once, on first use."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @cached_property
    def _stores(self) -> set[str]:
        found: set[str] = set()
        for top in (self._layout.extracted, self._layout.archive):
            # An unreadable directory hides no session, and `bsd verify` reports it.
            with suppress(OSError, BsdError):
                found.update(os.listdir(self._layout.refuse_outside(top)))
        return found

    def has(self, agent: str, file: str) -> bool:
        """Return True if bsd stores values of a file in an agent's directory."""
        if not file.endswith(ENDING) or not self._stores:
            return False
        with suppress(Invalid):
            name = SessionName(agent, file.removesuffix(ENDING))
            return self._layout.store_name(name) in self._stores
        return False
