"""Which entries belong to a turn that is not finished yet."""

from __future__ import annotations

from bsd.formats.base import Facts, Turn


class LastTurn:
    """Follows a session to its end."""

    def __init__(self) -> None:
        self._open_from: int | None = None  # line at which an unfinished turn begins
        self._latest_assistant: int | None = None

    def follow(self, index: int, facts: Facts) -> None:
        """Note the next entry, and its line number."""
        # A user's message ends what came before it, even a turn that crashed: whoever speaks
        # again does not wait for it.
        if facts.turn is Turn.STARTS or (facts.turn is Turn.OPEN and self._open_from is None):
            self._open_from = index
        elif facts.turn is Turn.CLOSES:
            self._open_from = None
        if facts.is_assistant:
            self._latest_assistant = index

    def holds(self, index: int) -> bool:
        """Whether a line belongs to an unfinished turn, or is the latest assistant message."""
        unfinished = self._open_from is not None and index >= self._open_from
        return unfinished or index == self._latest_assistant
