"""The size of one answer to an agent: programs move longer answers to a file, or cut them.

Copilot moves answers of more than 20,480 bytes to a file, and pi shows about 10,000 tokens. These
and all unknown programs get 18 kB. Escapes count, since the programs count JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageSize:
    """Limits of an answer, in characters of text or in bytes of UTF-8 JSON (`as_json`)."""

    most: int  # of a whole answer
    texts: int  # of all texts on a page of several; the remainder is for their descriptions
    whole: int  # texts that are no longer than this in total form one page
    as_json: bool

    def of(self, text: str) -> int:
        """Return the size of a text."""
        if not self.as_json:
            return len(text)
        # Without the quotes around the text. Lone surrogates are sent as question marks.
        return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2

    def cut(self, text: str, room: int) -> str:
        """Return the longest beginning of a text whose size is at most `room`."""
        text = text[: max(room, 0)]  # the size of a character is at least 1
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
