"""Which entries belong to the last turn, and to one that is not finished yet."""

from __future__ import annotations

from bsd.agents.dialect import Facts, Turn


class LastTurn:
    """Follows a session to its end."""

    def __init__(self, begins: int | None = None) -> None:
        self._begins = begins  # line at which the last turn begins
        self._open_from: int | None = None  # line from which on it is not finished
        self._waiting: set[str] = set()  # ids of its calls without results
        self._latest: set[int] = set()  # lines of the latest assistant message
        self._answer: str | None = None  # what those have in common

    def follow(self, index: int, facts: Facts) -> None:
        """Note the next entry, and its line number."""
        # A user's message ends what came before it, even a turn that crashed: whoever speaks
        # again does not wait for it.
        if facts.turn is Turn.STARTS:
            self._begins = self._open_from = index
            self._waiting.clear()
        if facts.calls:
            self._waiting.update([call.id for call in facts.calls if call.id])
        if facts.result_of is not None:
            self._waiting.discard(facts.result_of)
        if facts.turn is Turn.OPEN:
            if self._begins is None:
                self._begins = index
            if self._open_from is None:
                self._open_from = index
        elif facts.turn is Turn.CLOSES and not self._waiting:
            self._open_from = None
        if facts.is_assistant:
            self._follow_answer(index, facts.answer)

    def _follow_answer(self, index: int, answer: str | None) -> None:
        if answer is None or answer != self._answer:
            self._latest.clear()
        self._latest.add(index)
        self._answer = answer

    def holds(self, index: int) -> bool:
        """Whether a line is of an unfinished turn, or a part of the latest assistant message."""
        unfinished = self._open_from is not None and index >= self._open_from
        return unfinished or index in self._latest

    def reaches(self, index: int) -> bool:
        """Whether a line is of the last turn, finished or not."""
        return self._begins is not None and index >= self._begins

    def includes(self, index: int) -> bool:
        """Whether a line is of the last turn, or a part of the latest assistant message."""
        return index in self._latest or self.reaches(index)
