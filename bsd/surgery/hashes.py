"""The short hash by which an entry is addressed: hex digits of its line's SHA-256 (SPEC §6)."""

from __future__ import annotations

import hashlib

from bsd.agents.entry import Entry
from bsd.agents.marker import Marker

SHORTEST = 6  # hex digits


def line_hash(raw: bytes) -> str:
    """All hex digits of a line's hash."""
    return hashlib.sha256(raw).hexdigest()


def known_hashes(raw: bytes, entry: Entry) -> tuple[str, ...]:
    """The hashes an entry goes by: its line's, and that which it had before it was extracted.

    So a hash that an agent was told stays good when content leaves in between.
    """
    marker = Marker.of(entry)
    if marker is None:
        return (line_hash(raw),)
    return line_hash(raw), marker.hash.removeprefix("sha256:")
