"""Which entries a later signature covers: a provider that checks it refuses what is changed."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable

from bsd.formats.base import Facts

Binds = Callable[[str], bool]  # whether signatures of a model cover all that is before them

WARNING = (
    "entry {}: a later answer carries a signature that covers it; its provider may refuse the "
    "session now (setting prefix_bound_models). An undo takes the change back."
)


def never(_model: str) -> bool:
    """No model's signatures cover anything."""
    return False


class Prefix:
    """Follows a session to its end."""

    def __init__(self, binds: Binds) -> None:
        self._binds = binds
        self._signed, self._barriers = array("Q"), array("Q")
        # A compaction took everything before this line out of sight.
        self._barrier = 0
        self._lines: dict[str, int] = {}

    def follow(self, index: int, facts: Facts) -> None:
        """Note the next entry."""
        if facts.id is not None:
            self._lines.setdefault(facts.id, index)
        if facts.is_compaction:
            # What it keeps is still sent, so a signature after it still covers that.
            kept_from = self._lines.get(facts.kept_from or "", index)
            self._barrier = max(self._barrier, kept_from)
        elif facts.signed_by is not None and self._binds(facts.signed_by):
            self._signed.append(index)
            self._barriers.append(self._barrier)

    def covers(self, index: int) -> bool:
        """Whether a line is covered; ask once all was followed."""
        after = bisect_right(self._signed, index)
        return after < len(self._signed) and self._barriers[after] <= index
