"""JSON texts: what those of others take once parsed, told before; and our own, whatever they hold.

A text of brackets and commas takes thirty to fifty times its size, and one sign beyond the basic
plane makes four bytes of every character of its string. Whoever parses what others wrote asks here
first, or sixty megabytes of `[],` end the process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

# Bytes that a parsed text may take beside those of a text of one plain string.
MOST_EXTRA = 48 << 20
# The same of a line that bsd changes: with what is added to it, it must still be read.
MOST_EXTRA_EDITED = MOST_EXTRA - (1 << 20)

# Up to this size it makes no difference what a text holds, so most are not even looked at.
_HARMLESS = 1 << 20
_PIECE = 256 << 10

# Bytes of each, with what the parser itself needs and what is noted of a value, about: measured,
# and rather too much than too little.
_COSTS = ((b"[", 110), (b"{", 270), (b":", 140), (b",", 90))
_STRING_COST = 200

# Escapes of what is no character of Latin-1, and of surrogates.
_WIDE_ESCAPE = re.compile(rb"\\u(?!00)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# With one of these begins what is beyond the basic plane.
_FOUR_BYTES = tuple(bytes([lead]) for lead in range(0xF0, 0xF5))


def is_too_large(text: bytes, most: int = MOST_EXTRA) -> bool:
    """Whether a JSON text would take more than `most` bytes of memory beside its own size."""
    if len(text) <= _HARMLESS:
        return False
    # A lone surrogate is read by a parser that makes one string of all the text first.
    alone = b"\\u" in text and _SURROGATE.search(text)
    if alone and (_width(text, escapes=False) - 1) * len(text) > most:
        return True
    return _extra(text, most) > most


def _cost(text: bytes) -> int:
    return sum(text.count(mark) * cost for mark, cost in _COSTS)


def _width(text: bytes, *, escapes: bool = True) -> int:
    """Bytes that each character of a string with this text takes, at most."""
    plain = text.isascii()
    escapes = escapes and b"\\u" in text
    if not plain and any(lead in text for lead in _FOUR_BYTES):
        return 4
    if escapes and _SURROGATE.search(text):
        return 4
    return 2 if not plain or (escapes and _WIDE_ESCAPE.search(text)) else 1


def _extra(text: bytes, most: int) -> int:
    """What a text takes beside its own size; ends early when that is more than `most`."""
    found = _Extra()
    at = 0
    while at < len(text) and found.bytes <= most:
        piece = text[at : at + _PIECE]
        if piece.endswith(b"\\"):  # never cut an escape in two; nothing but backslashes is pairs
            piece = piece.rstrip(b"\\") or piece
        found.add(piece)
        at += len(piece)
    return found.end()


class _Extra:
    """Follows a text piece by piece, in and out of strings."""

    def __init__(self) -> None:
        self.bytes = 0
        self._inside = False
        # The string that is not over at the end of a piece.
        self._size, self._characters, self._wide = 0, 0.0, 1

    def add(self, piece: bytes) -> None:
        width, share = _width(piece), _characters_a_byte(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        self.bytes += len(parts) // 2 * _STRING_COST
        self.bytes += _cost(b"".join(parts[self._inside :: 2]))
        if self._inside:
            self._go_on(parts[0])
        if len(parts) == 1:
            return
        self.end()
        self._inside ^= len(parts) % 2 == 0
        last = parts[-1] if self._inside else b""
        within = len(piece) - len(parts[0]) - len(last)
        self.bytes += max(0, int(within * (width * share - 1)))
        self._go_on(last)

    def _go_on(self, part: bytes) -> None:
        self._size += len(part)
        self._characters += len(part) * _characters_a_byte(part)
        self._wide = max(self._wide, _width(part))

    def end(self) -> int:
        """Count the string that is over now, if there was one; returns all so far."""
        self.bytes += max(0, int(self._characters * self._wide) - self._size)
        self._size, self._characters, self._wide = 0, 0.0, 1
        return self.bytes


def _characters_a_byte(text: bytes) -> float:
    """How many characters a byte is, on the average."""
    return 1.0 if text.isascii() else len(text.decode("utf-8", "ignore")) / len(text)


def document(content: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Write JSON; lone surrogates and huge integers, which transcripts hold, included.

    `default` says in JSON's words what JSON cannot say; without it that is written as `str` has it.
    """
    try:
        return orjson.dumps(content, default, orjson.OPT_NON_STR_KEYS)
    except TypeError:  # the slower one can write what this one cannot
        return json.dumps(content, default=default or str, skipkeys=True).encode()
