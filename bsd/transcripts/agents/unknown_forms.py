"""Signs in a line that a program writes its sessions in a form that bsd does not know.

A member that ties a line to its own bytes, or to the line before it, is such a sign: a checksum, a
signature, a number of bytes. An edit by bsd would make it untrue. A number that only counts lines
(`seq`, `ordinal`) is none, since bsd keeps the lines and their order.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import lru_cache

# The name of such a member has one of these words: `lineHash`, `prev_sha256`, `byteLength`.
_BINDING = re.compile(
    r"(?:checksum|hash|hashes|digest|hmac|signature|integrity|offset|length|bytes?"
    r"|crc[0-9]*[a-z]?|(?:sha|md|blake|xxh)[0-9]+[a-z]?|xxhash[0-9]*)"
)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")


def binding_member(names: Iterable[str], known: Container[str] = ()) -> str | None:
    """Return the first name of a member that may bind a line to bytes; None if there is none.

    Args:
        names: the names of a record's members.
        known: names of which the format knows that they bind nothing that bsd changes.
    """
    for name in names:
        if binds(name) and name not in known:
            return name
    return None


@lru_cache(maxsize=4096)
def binds(name: str) -> bool:
    """Return whether a member of this name may bind its line to bytes."""
    return any(_BINDING.fullmatch(word.lower()) for word in _WORD.findall(name))
