"""Translates the words that a user types into a query of FTS5, and searches single texts.

`Matcher` finds the same words in a text as the index (`bsd.store.search`), since both use the
tokenizer of FTS5. This module reads and writes no files.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from bsd.core.errors import Invalid, Unavailable

TOKENIZE = "tokenize = 'unicode61 remove_diacritics 2'"

_PARTS = re.compile(r'"([^"]*)"?|([^\s"]+)')
# Scripts without spaces between words: each character becomes a word of its own.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f])")
_BREAK = "\u200b"
_START, _END = "\x02", "\x03"
# Colour codes of a terminal would become part of the words beside them.
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_UNWANTED = re.compile(f"[\x00{_START}{_END}]")
# FTS5 cuts a word after 32 KiB, perhaps within a character, so that its rest never matches.
_LONGEST_WORD = 4000  # characters
_ENDLESS = re.compile(rf"(\S{{{_LONGEST_WORD}}})(?=\S)")
# In a line of JSON: two backslashes (no escape begins there), a colour code, or escapes.
_SPECIAL = re.compile(rb"\\\\|(?:\\u001[bB]|\x1b)\[[0-9;:?]*[ -/]*[@-~]|((?:\\u[0-9a-fA-F]{4})+)")
_ASCII = bytes(range(0x80))
_MANY = 50  # different characters; from this number on, each occurrence is folded by itself
_WIDE = re.compile(rb"[\x80-\xff]+")
_LONGEST_SNIPPET = 320  # characters
_BEFORE = 80
_MOST_WORDS = 64
_LONG_ENOUGH = 3  # characters; shorter words are the beginning of too many others

# A snippet of FTS5 with the marks that `Snippet.read` expects.
_MARKS = f"words, 0, '{_START}', '{_END}', '…', 24"
_SNIPPET = f"SELECT snippet({_MARKS}) FROM words WHERE words MATCH ?"  # noqa: S608 - no input


def indexable(text: str) -> str:
    """Return `text` for the index, with a replacement for characters that SQLite cannot store."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # lone surrogates
        text = _UNSPACED.sub(rf"{_BREAK}\1{_BREAK}", text)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if len(text) > _LONGEST_WORD:
        text = _ENDLESS.sub(r"\1 ", text)
    return _UNWANTED.sub(" ", text)


def terms_of(words: str) -> list[str]:
    """Return the typed words; words in double quotes are one term and keep the quotes."""
    return [f'"{phrase}"' if phrase else word for phrase, word in _PARTS.findall(words)]


def match_expression(words: str, *, beginnings: bool = False) -> str:
    """Return the FTS5 expression that requires all words, in any order.

    `"several words"` is a phrase, and `begin*` matches every word with this beginning. All other
    characters are ordinary text.

    Args:
        words: the words as typed.
        beginnings: treat each word outside of a phrase as a beginning, unless it is very short.

    Raises:
        Invalid: there is no word, or there are too many.
    """
    terms = []
    for phrase, word in _PARTS.findall(words):
        text = indexable(phrase or word)
        if not any(map(str.isalnum, text)):
            continue  # the tokenizer ignores it
        open_end = word.endswith("*") or (beginnings and len(word) >= _LONG_ENOUGH)
        prefix = " *" if open_end else ""
        terms.append(f'"{text}"{prefix}')
    if not terms:
        raise Invalid("there is no word to search for", hint='bsd search "two words" another')
    if len(terms) > _MOST_WORDS:
        raise Invalid(f"{len(terms)} words are too many", hint=f"search for at most {_MOST_WORDS}")
    return " ".join(terms)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text around matches; `matches` are [start, end) in characters of `text`."""

    text: str
    matches: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, marked: str) -> Snippet:
        """Read a snippet that FTS5 returned with the marks of `_MARKS`."""
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


class Matcher:
    """Searches single texts as the index searches all. For one thread; call `close` after use.

    Raises Invalid if `words` contains no word, and Unavailable if SQLite has no FTS5.
    """

    def __init__(self, words: str) -> None:
        self._expression = match_expression(words)
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        try:
            self._db.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, {TOKENIZE})")
            self._needles = self._read_needles(words)
        except sqlite3.Error as error:
            self._db.close()
            raise without_fts5() from error

    def close(self) -> None:
        """Close the database in memory."""
        self._db.close()

    def _read_needles(self, words: str) -> tuple[bytes, ...]:
        """Return the folded words that a matching text contains somewhere, the longest first."""
        self._db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'row')")
        self._db.execute("BEGIN")
        for term in terms_of(words):
            self._db.execute("INSERT INTO words (text) VALUES (?)", (indexable(term.strip('"')),))
        found = {fold(term).encode() for (term,) in self._db.execute("SELECT term FROM terms")}
        self._db.execute("ROLLBACK")
        return tuple(sorted(found, key=len, reverse=True))

    def candidates(self, lines: bytes) -> Iterator[tuple[int, int]]:
        """Yield [start, end) of each of these lines of JSON that may contain all the words.

        No matching line is left out; `snippet` decides whether a line really matches.
        """
        folded = fold_lines(lines)
        if not all(needle in folded for needle in self._needles):
            return
        first = self._needles[0] if self._needles else b""
        at = start = 0  # in the folded lines, and in those that were given
        while at < len(folded) and (found := folded.find(first, at)) >= 0:
            begin = folded.rfind(b"\n", at, found) + 1 or at
            for _ in range(folded.count(b"\n", at, begin)):
                start = lines.index(b"\n", start) + 1
            at = folded.find(b"\n", found) + 1 or len(folded)
            end = lines.find(b"\n", start) + 1 or len(lines)
            if all(folded.find(needle, begin, at) >= 0 for needle in self._needles):
                yield start, end
            start = end

    def may_hold(self, text: str) -> bool:
        """Return False for most texts that lack one of the words; `snippet` decides."""
        folded = fold(text).encode("utf-8", "replace")
        return all(needle in folded for needle in self._needles)

    def snippet(self, text: str) -> Snippet | None:
        """Return the matches in a text; None unless the text contains all the words."""
        self._db.execute("BEGIN")
        try:
            self._db.execute("INSERT INTO words (text) VALUES (?)", (indexable(text),))
            row = self._db.execute(_SNIPPET, (self._expression,)).fetchone()
        finally:
            self._db.execute("ROLLBACK")
        return Snippet.read(row[0]) if row else None


def without_fts5() -> Unavailable:
    """Return the error for an SQLite without FTS5."""
    return Unavailable(
        "search needs SQLite with FTS5, which this Python lacks",
        hint="install Python or SQLite from your distribution",
    )


def fold(text: str) -> str:
    """Return `text` without case and diacritics; words that match in the tokenizer become equal.

    Folding makes more texts equal than the tokenizer does, never fewer. Each character is folded
    independently of its neighbours.
    """
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())
    return "".join(one for one in text if not unicodedata.combining(one))


def fold_lines(lines: bytes) -> bytes:
    """Apply `fold` to lines of JSON, with their escapes resolved; the number of lines stays.

    Optimised for text that is mostly ASCII, with few different other characters.
    """
    if b"\\u" in lines or b"\x1b" in lines:
        lines = _SPECIAL.sub(_resolved, lines)
    lower = lines.lower()
    if lower.isascii():
        return lower
    wide = set(lower.translate(None, _ASCII).decode("utf-8", "replace"))
    changed = [(one, folded) for one in wide if (folded := _fold_one(one)) != one]
    if len(changed) > _MANY:
        return _WIDE.sub(lambda run: fold(run[0].decode("utf-8", "replace")).encode(), lower)
    for one, folded in changed:
        lower = lower.replace(one.encode(), folded.encode())
    return lower


_fold_one = lru_cache(maxsize=1 << 14)(fold)


def _resolved(found: re.Match[bytes]) -> bytes:
    """Return the replacement for two backslashes, a colour code, or escapes."""
    text = found[0]
    if found[1] is None:
        return text if text.startswith(b"\\\\") else b""
    units = bytes.fromhex(text.replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "replace").replace("\n", " ").encode()
