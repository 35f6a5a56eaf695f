"""Where reading a session may begin instead of at its first line: after what is settled."""

from __future__ import annotations

from dataclasses import dataclass

_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place between two lines, and what the lines before it mean for those after it."""

    offset: int  # bytes
    index: int  # number of the line that begins here, 0-based
    messages: int  # message entries before
    ids: bytes  # 8 bytes for the id of each entry before
    barrier: int  # line before which a compaction took everything out of sight
    own_calls: tuple[str, ...] = ()  # calls of our own tools whose results may follow
    bound: bool = False  # an entry before is `prefix_bound`: a compaction unsettles it

    def has_id(self, id_hash: int) -> bool:
        """Whether an entry before the checkpoint has this id."""
        needle = id_hash.to_bytes(_ID_BYTES, "little")
        at = self.ids.find(needle)
        while at >= 0 and at % _ID_BYTES:
            at = self.ids.find(needle, at + 1)
        return at >= 0
