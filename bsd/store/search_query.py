"""From what a person types to what SQLite's FTS5 understands, and from a hit to a snippet."""

from __future__ import annotations

import re
from typing import Literal

from bsd.foundation.errors import Invalid
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName

_PARTS = re.compile(r'"([^"]*)"?|([^\s"]+)')
# Scripts that put no space between words: each character becomes a word of its own.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f])")
_BREAK = "\u200b"
_START, _END = "\x02", "\x03"
# Colours of a terminal cling to the words they colour.
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_UNWANTED = re.compile(f"[\x00{_START}{_END}]")
_LONGEST_SNIPPET = 320  # characters
_BEFORE = 80
_MOST_WORDS = 64
_LONG_ENOUGH = 3  # characters: fewer begin too many words

# A snippet as FTS5 makes it, with the signs that `Snippet.read` looks for.
SNIPPET = f"snippet(words, 0, '{_START}', '{_END}', '…', 24)"


def indexable(text: str) -> str:
    """Return `text` as the index keeps it: what UTF-8 or SQLite cannot hold is replaced."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # lone surrogates
        text = _UNSPACED.sub(rf"{_BREAK}\1{_BREAK}", text)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return _UNWANTED.sub(" ", text)


def terms_of(words: str) -> list[str]:
    """Return what was typed word by word; words in double quotes, which they keep, are one."""
    return [f'"{phrase}"' if phrase else word for phrase, word in _PARTS.findall(words)]


def match_expression(words: str, *, beginnings: bool = False) -> str:
    """Return the FTS5 expression for words that must all be there, in any order.

    `"several words"` stand together, `begin*` is any word that begins so, and with `beginnings`
    each word that stands alone and is not very short. Everything else a user may type is text.
    Raises Invalid if there is no word in it.
    """
    terms = []
    for phrase, word in _PARTS.findall(words):
        text = indexable(phrase or word)
        if not any(map(str.isalnum, text)):
            continue  # nothing that the index could know
        open_end = word.endswith("*") or (beginnings and len(word) >= _LONG_ENOUGH)
        prefix = " *" if open_end else ""
        terms.append(f'"{text}"{prefix}')
    if not terms:
        raise Invalid("there is no word to search for", hint='bsd search "two words" another')
    if len(terms) > _MOST_WORDS:
        raise Invalid(f"{len(terms)} words are too many", hint=f"at most {_MOST_WORDS}")
    return " ".join(terms)


@immutable
class Snippet:
    """A piece of text around what was found; `matches` are [start, end) in its characters."""

    text: str
    matches: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, marked: str) -> Snippet:
        """Read what the SQL expression SNIPPET returned."""
        marked = " ".join(marked.replace(_BREAK, "").split())
        first = marked.find(_START)
        if len(marked) > _LONGEST_SNIPPET:  # words can be very long
            start = max(0, first - _BEFORE)
            marked = ("…" if start else "") + marked[start : start + _LONGEST_SNIPPET]
        text, matches, begun = "", [], None
        for part in re.split(f"([{_START}{_END}])", marked):
            if part == _START:
                begun = len(text)
            elif part == _END:
                if begun is not None:
                    matches.append((begun, len(text)))
                begun = None
            else:
                text += part
        if begun is not None:
            matches.append((begun, len(text)))
        return cls(text, tuple(matches))


@immutable
class Hit:
    """An entry in which all words were found."""

    session: SessionName
    entry: str | None  # its id
    index: int  # line number in the session; of extracted text: when it was taken out
    where: Literal["transcript", "extracted"]
    snippet: Snippet
    score: float  # the greater the better
