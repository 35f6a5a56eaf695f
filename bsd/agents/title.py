"""How a session is called by what stands in it: a name it was given, else what was first asked."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple

from bsd.agents.marker import is_placeholder

LONGEST_TITLE = 200  # characters
_JOINERS = "\u200c\u200d"  # emoji and several scripts need them
_LOOKED_AT = 20_000  # characters of a prompt
# What programs put around or before what a person typed: `<system-reminder>…</system-reminder>`.
_WRAPPED = re.compile(r"\s*<([a-z]+[-_][a-z_-]*)\b[^<>]*>.*?</\1>\s*", re.DOTALL)
_OPEN_WRAPPER = re.compile(r"\s*</?[a-z]+[-_][a-z_-]*\b[^<>]*>")
_COMMAND_ALONE = re.compile(r"/[A-Za-z][\w:-]*\s*")


class Rank(IntEnum):
    """What a title is worth. The first prompt counts, and of names the last of the best rank."""

    PROMPT = 0
    SUMMARY = 1  # what a program made of an earlier part
    MADE = 2  # by a model, for the whole
    GIVEN = 3  # by a person


class Title(NamedTuple):
    """How an entry would call its session."""

    text: str
    rank: Rank


def better(old: Title | None, new: Title | None) -> Title | None:
    """Of two, `new` from a later line, the one by which the session is called."""
    if old is None or new is None:
        return new or old
    later = new.rank > old.rank or (new.rank == old.rank and new.rank is not Rank.PROMPT)
    return new if later else old


def named(value: Any, rank: Rank) -> Title | None:
    """The title that a member of an entry gives, if it gives one."""
    text = in_short(value) if isinstance(value, str) else ""
    return Title(text, rank) if text else None


def asked(texts: list[str], before: re.Pattern[str] | None = None) -> Title | None:
    """The title that a prompt of these texts would be; None if nothing in it is a person's words.

    `before` is what the program in question puts in front of them.
    """
    for text in texts:
        if (words := _typed(text[:_LOOKED_AT], before)) and not is_placeholder(words):
            return Title(words, Rank.PROMPT)
    return None


def _typed(text: str, before: re.Pattern[str] | None) -> str | None:
    """What a person typed of a text, on one line; None if nothing, or a command alone."""
    text = text.strip()
    while True:
        found = _WRAPPED.match(text) or (before.match(text) if before else None)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    if _OPEN_WRAPPER.match(text) or _COMMAND_ALONE.fullmatch(text):
        return None
    return in_short(text) or None


def in_short(text: str) -> str:
    """A text as a title: on one line, no longer than titles are, nothing in it but what is seen."""
    words = " ".join(text[: 4 * LONGEST_TITLE].split())
    line = "".join(c for c in words if c.isprintable() or c in _JOINERS)
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def texts_in(content: Any) -> list[str]:
    """The texts of a content that is a string, or a list of blocks with `text`."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    found = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in found if isinstance(text, str)]
