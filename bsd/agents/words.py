"""What of an entry can be found by its words, whatever dialect it is written in."""

from __future__ import annotations

from typing import Any

from bsd.agents.base import Entry, Format
from bsd.agents.content import leaf_values
from bsd.agents.marker import is_placeholder
from bsd.agents.reading import text_of
from bsd.agents.titles import Rank
from bsd.foundation.value_path import ValuePath

# Entries that hold no values still say something: what was summed up, how the session is called.
_SAYINGS = ("summary", "name", "label")


def words_of(entry: Entry, fmt: Format | None) -> str:
    """Return all text that a person would look for; None is a foreign dialect: all its strings."""
    if fmt is None:
        found = [value.text for value in leaf_values(entry, (), None, 1)]
    else:
        found = [value.text for value in fmt.values(entry)]
        found += [call.name for call in fmt.facts(entry).calls]
        found += [text_of(entry.get(key)) for key in _SAYINGS]
        title = fmt.title(entry)
        if title and title.rank is not Rank.PROMPT and title.text not in found:
            found.append(title.text)
    return "\n".join(text for text in found if text and not is_placeholder(text))


def words_at(entry: Entry, paths: list[ValuePath]) -> str:
    """Return the text of these values of an entry: of what was taken out of it."""
    found: list[str] = []
    for path in paths:
        value = _value_at(entry, path)
        if isinstance(value, str):
            found.append(value)
        elif not (isinstance(value, dict) and value.get("type") == "image"):
            found += [leaf.text or "" for leaf in leaf_values(value, (), None, 1)]
    return "\n".join(filter(None, found))


def _value_at(tree: Any, path: ValuePath) -> Any:
    try:
        for step in path:
            tree = tree[step]
    except (KeyError, IndexError, TypeError):  # another line than the one the path was made for
        return None
    return tree
