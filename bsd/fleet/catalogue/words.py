"""Words in the catalogue: texts as the server indexes them, and searches as its queries.

Both are made of the same words: letters and digits without case and diacritics, as in the search
index of a host. The server's parser then has nothing left to decide. A character of a script
without spaces is a word of its own.
"""

from __future__ import annotations

import re

from bsd.core.errors import Invalid
from bsd.store.search_words import fold

# A tsvector has at most 1 MB. Text of this many bytes makes one of less than 0.9 MB, also if all of
# its words are short and different.
LARGEST_TEXT = 400_000
_LONGEST_WORD = 200  # characters; longer ones are no words
_MOST_WORDS = 64
_APART = re.compile(r"[\W_]+")
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f])")
_TERMS = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')


def words_in(text: str) -> list[str]:
    """Return the words of a text, in order."""
    folded = fold(text)
    if not folded.isascii():
        folded = _UNSPACED.sub(r" \1 ", folded.encode("utf-8", "replace").decode())
    return [word for word in _APART.sub(" ", folded).split() if len(word) <= _LONGEST_WORD]


def for_index(text: str) -> str | None:
    """Return a text as the server indexes it, without what exceeds its limits; None if empty."""
    if len(text) > LARGEST_TEXT:
        text = text[:LARGEST_TEXT]
    found = " ".join(words_in(text))
    if len(found) > LARGEST_TEXT // 4:  # no character has more than 4 bytes
        cut = found.encode()[:LARGEST_TEXT].decode(errors="ignore")
        found = cut if len(cut) == len(found) else cut.rpartition(" ")[0]
    return found or None


def query_of(words: str) -> str:
    """Return the query for `to_tsquery`: all words, in any order.

    `"several words"` is a phrase, `begin*` matches every word with this beginning, and `-word` must
    not occur. All other characters are ordinary text.

    Raises:
        Invalid: there is no word that must occur, or there are too many.
    """
    wanted: list[str] = []
    unwanted: list[str] = []
    for minus, phrase, word in _TERMS.findall(words):
        found = words_in(phrase or word)
        if not found:
            continue
        if not phrase and word.endswith("*"):
            found[-1] += ":*"
        (unwanted if minus else wanted).append(f"({' <-> '.join(found)})")
    if not wanted:
        raise Invalid(
            "there is no word to search for", hint='bsd search --fleet "two words" another -without'
        )
    if len(wanted) + len(unwanted) > _MOST_WORDS:
        raise Invalid(
            f"{len(wanted) + len(unwanted)} words are too many",
            hint=f"search for at most {_MOST_WORDS}",
        )
    return " & ".join([*wanted, *(f"!{each}" for each in unwanted)])
