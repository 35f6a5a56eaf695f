"""The size of one answer to an agent: programs move longer ones to a file, or cut them.

Copilot moves answers of more than 20,480 bytes to a file, and pi shows about 10,000 tokens: these
and all programs that are not known get 18 kB. Escapes count, since the programs count JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageSize:
    """The size of an answer, in characters, or in bytes of UTF-8 as JSON spells them."""

    most: int  # of a whole answer
    texts: int  # of all texts on a page of several: the rest is for their descriptions
    whole: int  # texts that are no longer altogether are one page
    as_json: bool

    def of(self, text: str) -> int:
        """Return the size of a text."""
        if not self.as_json:
            return len(text)
        # The quotes around it are not counted. Lone surrogates are sent as question marks.
        return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2

    def cut(self, text: str, room: int) -> str:
        """Return the longest beginning of a text that is no larger than `room`."""
        text = text[: max(room, 0)]  # no character is smaller than 1
        if self.of(text) <= room:
            return text
        fits, too_long = 0, len(text)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if self.of(text[:middle]) <= room:
                fits = middle
            else:
                too_long = middle
        return text[:fits]


OTHERS = PageSize(most=18_000, texts=15_500, whole=15_500, as_json=True)
