"""How many tokens of a model's context a value takes: an estimate, always called one."""

from __future__ import annotations

from bsd.formats.base import Value

BYTES_PER_TOKEN = 4


def estimate_tokens(value: Value, size: int) -> int:
    """Estimate what `size` bytes of a value, as they stand in the line, cost in tokens.

    Four bytes a token is the usual rule of thumb for English and code; other scripts take more
    bytes and about as many more tokens. What is never sent costs nothing. An image is paid by its
    pixels, which its bytes do not tell, so it counts as nothing rather than as text. A signature
    that leaves with its thinking is not text either: leave it out of `size`.
    """
    if value.display or value.shape.is_block:
        return 0
    return max(0, size) // BYTES_PER_TOKEN
