"""Texts of facts: as they can be stored, and what makes two of them the same."""

from __future__ import annotations

import hashlib


def storable(text: str) -> str:
    """Replace what no database holds: lone surrogates, and NULs, at which SQLite stops reading."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def normalized_hash(text: object) -> str | None:
    """SHA-256 of the text without its case and with single spaces, as the plugin has it."""
    if text is None:
        return None
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    normal = " ".join(said.split()).lower()
    return hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest()
