"""The short hash by which an entry is addressed: hex digits of its line's SHA-256 (SPEC §6)."""

from __future__ import annotations

import hashlib

SHORTEST = 6  # hex digits


def line_hash(raw: bytes) -> str:
    """All hex digits of a line's hash; its line end does not count."""
    return hashlib.sha256(raw.rstrip(b"\r\n")).hexdigest()
