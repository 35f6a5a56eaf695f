"""What bsd writes into an entry whose values left it: placeholders and the `_extracted` member."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from bsd.foundation.immutable import immutable
from bsd.foundation.value_path import ValuePath, value_at

MARKER = "_extracted"
RESTORED = "_restored"
EXTRACTABLE = "_extractable"

PLACEHOLDER_START = "[[extracted-"
PLACEHOLDER_END = "]]"

# RFC 3986's unreserved characters: what a safe entry id may hold.
_ID = r"[A-Za-z0-9._~-]+"
_SAFE_ID = re.compile(_ID)
_PLACEHOLDER = re.compile(rf"\[\[extracted-({_ID})\]\]")
_AT_THE_END = re.compile(rf"\[\[extracted-({_ID})\]\]\Z")
_LONGEST_AT_THE_END = 1024  # characters; a longer id is nobody's


def is_safe_id(entry_id: str) -> bool:
    """Whether an id may stand in a placeholder, a file name and a URL."""
    return _SAFE_ID.fullmatch(entry_id) is not None and entry_id not in {".", ".."}


def placeholder(entry_id: str) -> str:
    """Return what stands in an entry for each of its extracted values."""
    return f"{PLACEHOLDER_START}{entry_id}{PLACEHOLDER_END}"


def is_placeholder(text: str) -> bool:
    """Whether a text is nothing but a placeholder, of whatever entry."""
    return _PLACEHOLDER.fullmatch(text) is not None


def ends_in_placeholder(text: str) -> str | None:
    """Which entry the placeholder names in which a text ends; before it may stand what was kept."""
    if not text.endswith(PLACEHOLDER_END):
        return None
    found = _AT_THE_END.search(text, max(0, len(text) - _LONGEST_AT_THE_END))
    return found[1] if found else None


def standing_at(entry: dict[str, Any], path: ValuePath) -> str | None:
    """Which entry the placeholder names that stands where a value was; None: there is none.

    In a text that ends with it, or, for a block, in the text block that took its place. It names
    the entry that was extracted, whatever id a copy of it has. If there is none, somebody has
    changed the value since, and what is there now is theirs.
    """
    value = value_at(entry, path)
    if isinstance(value, dict) and str(value.get("type")).endswith("text"):
        value = value.get("text")
    return ends_in_placeholder(value) if isinstance(value, str) else None


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
