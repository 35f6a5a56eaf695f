"""Which entries a later signature covers: a provider that checks it refuses what is changed.

A signature covers everything before it on its branch, but for what a compaction between took out
of sight. Nothing that follows takes that back; but what a later compaction took out of sight is not
sent, nor is the signature that covers it, as long as nobody goes back to before it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache

from bsd.agents.dialect import Facts
from bsd.store.state import Checkpoint
from bsd.surgery.sight import Sight, id_hash

Binds = Callable[[str], bool]  # whether signatures of a model cover all that is before them

_SIGNATURE = b"ignature"  # of thinking, as all dialects call it
WARNING = (
    "entry {}: a later answer carries a signature that covers it; its provider may refuse the "
    "session now (setting prefix_bound_models). An undo takes the change back."
)


def never(_model: str) -> bool:
    """No model's signatures cover anything."""
    return False


class Prefix:
    """Follows a session to its end, from its first line or `since` a checkpoint of it.

    Of what is before the checkpoint only the ids matter: a compaction there is before every line
    that is followed, so it can take none of them out of sight.
    """

    def __init__(self, binds: Binds, since: Checkpoint | None = None) -> None:
        self.sight = Sight(since)
        # Of each entry that was followed.
        self.lines, self.ids = self.sight.lines, self.sight.ids
        self._binds = lru_cache(maxsize=128)(binds)
        self._since = since
        # Lines of signatures, and how far back each reaches: ever less far, as those that a later
        # one covers with all that they cover are of no account.
        self._signed, self._reach = array("Q"), array("Q")
        # The latest compaction took everything before this line out of sight.
        self._barrier = 0
        self._compacted = 0  # entries before that compaction
        self._compacted_ids: set[int] | None = None
        self._before: str | None = None  # id of the entry before

    def follow(self, index: int, facts: Facts) -> None:
        """Note the next entry."""
        if self._barrier and facts.may_be_last and self._goes_back(facts.parent):
            self._barrier = 0
        if facts.is_compaction:
            # What it keeps is still sent, so a signature after it still covers that.
            self._barrier = self._earliest_kept(facts, index)
            self._compacted, self._compacted_ids = len(self.ids), None
        elif facts.signed_by is not None and self._binds(facts.signed_by):
            self._note_signature(index)
        self._before = facts.id
        self.sight.follow(index, facts)

    def pass_over(self, index: int, raw: bytes) -> None:
        """Note a line that is too large to be parsed: it may carry a signature, of any model."""
        self.sight.pass_over()
        if _SIGNATURE in raw:
            self._note_signature(index)

    def _goes_back(self, parent: str | None) -> bool:
        """Whether an entry goes on from before the compaction: then it has it not behind it."""
        if parent is None or parent == self._before:
            return False
        if self._compacted_ids is None:
            self._compacted_ids = set(self.ids[: self._compacted])
        number = id_hash(parent)
        return number in self._compacted_ids or self._is_earlier(number)

    def _earliest_kept(self, facts: Facts, otherwise: int) -> int:
        """The line of the first entry that a compaction leaves in sight, or its own."""
        kept = facts.kept or ((facts.kept_from,) if facts.kept_from else ())
        return min((self._line_of(one, otherwise) for one in kept), default=otherwise)

    def _line_of(self, entry_id: str, otherwise: int) -> int:
        number = id_hash(entry_id)
        if self._is_earlier(number):
            return 0  # before all that was followed: which line it is makes no difference
        try:
            return self.lines[self.ids.index(number)]
        except ValueError:
            return otherwise

    def _is_earlier(self, number: int) -> bool:
        return self._since is not None and bool(self._since.among([number]))

    def _note_signature(self, index: int) -> None:
        while self._reach and self._reach[-1] >= self._barrier:
            self._signed.pop()
            self._reach.pop()
        self._signed.append(index)
        self._reach.append(self._barrier)

    @property
    def signed(self) -> bool:
        """Whether there are signatures that cover what is before them."""
        return bool(self._signed)

    def binds(self, index: int) -> bool:
        """Whether a line is covered and sent, or might be; ask once all was followed."""
        return self.covers(index) and not self.sight.has_compacted(index)

    def covers(self, index: int) -> bool:
        """Whether a line is covered, in sight or not; ask once all was followed."""
        after = bisect_right(self._signed, index)
        return after < len(self._signed) and self._reach[after] <= index
