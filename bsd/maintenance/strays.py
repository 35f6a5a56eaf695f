"""Files that are no sessions, but from which an earlier version has extracted."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property

from bsd.core.errors import BsdError, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.transcripts.agents.program import ENDING


class StoredFiles:
    """The files of which bsd has stored something; looked up once, and only if needed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @cached_property
    def _stores(self) -> set[str]:
        found: set[str] = set()
        for top in (self._layout.extracted, self._layout.archive):
            # One that cannot be read hides no session, and `bsd verify` names it.
            with suppress(OSError, BsdError):
                found.update(os.listdir(self._layout.refuse_outside(top)))
        return found

    def has(self, agent: str, file: str) -> bool:
        """Return whether something is stored of a file in an agent's directory."""
        if not file.endswith(ENDING) or not self._stores:
            return False
        with suppress(Invalid):
            name = SessionName(agent, file.removesuffix(ENDING))
            return self._layout.store_name(name) in self._stores
        return False
