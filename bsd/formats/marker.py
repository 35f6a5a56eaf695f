"""What bsd writes into an entry whose values left it: placeholders and the `_extracted` member."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from bsd.foundation.immutable import immutable

MARKER = "_extracted"
RESTORED = "_restored"
EXTRACTABLE = "_extractable"

PLACEHOLDER_START = "[[extracted-"
PLACEHOLDER_END = "]]"

# RFC 3986's unreserved characters: what a safe entry id may hold.
_ID = r"[A-Za-z0-9._~-]+"
_SAFE_ID = re.compile(_ID)
_PLACEHOLDER = re.compile(rf"\[\[extracted-({_ID})\]\]")


def is_safe_id(entry_id: str) -> bool:
    """Whether an id may stand in a placeholder, a file name and a URL."""
    return _SAFE_ID.fullmatch(entry_id) is not None and entry_id not in {".", ".."}


def placeholder(entry_id: str) -> str:
    """Return what stands in an entry for each of its extracted values."""
    return f"{PLACEHOLDER_START}{entry_id}{PLACEHOLDER_END}"


def is_placeholder(text: str) -> bool:
    """Whether a text is nothing but a placeholder, of whatever entry."""
    return _PLACEHOLDER.fullmatch(text) is not None


def mentioned_ids(text: str) -> list[str]:
    """List the entries whose placeholders stand in a text."""
    return _PLACEHOLDER.findall(text)


@immutable
class Marker:
    """The `_extracted` member: where the entry's original line is kept."""

    ref: str  # file name without ending
    hash: str  # `sha256:…` of the stored file
    size: int  # bytes of the stored file
    keys: tuple[str, ...]  # paths of the values that are away
    at: str  # ISO 8601, Z

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Marker | None:
        """Read an entry's marker; None if it has none or `_extracted` is not ours."""
        member = entry.get(MARKER)
        if not isinstance(member, dict):
            return None
        ref, hash_, keys = member.get("ref"), member.get("hash"), member.get("keys")
        if not isinstance(ref, str) or not isinstance(hash_, str) or not isinstance(keys, list):
            return None
        if not keys or not all(isinstance(key, str) for key in keys):
            return None
        size, at = member.get("size"), member.get("at")
        return cls(
            ref,
            hash_,
            size if isinstance(size, int) else 0,
            tuple(keys),
            at if isinstance(at, str) else "",
        )

    def to_json(self) -> bytes:
        """Write the member's value as it stands in the line."""
        member = {
            "ref": self.ref,
            "hash": self.hash,
            "size": self.size,
            "keys": self.keys,
            "at": self.at,
        }
        try:
            return orjson.dumps(member)
        except TypeError:  # lone surrogates in names that somebody else wrote
            return json.dumps(member, separators=(",", ":")).encode()
