"""Names of values inside an entry: `output`, `message.content[2].text`, `details["a.b"]`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

ValuePath = tuple[str | int, ...]

_ABSENT = object()

# Lone surrogates are quoted too: escaped, they can be written wherever text can.
_PLAIN = re.compile(r"[^\s.\[\]\"\ud800-\udfff]+")
_STEP = re.compile(r'\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]|(\.?)([^\s.\[\]"]+)')


def format_path(path: ValuePath) -> str:
    """Write a path as text; keys that could be misread are quoted in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def parse_path(text: str) -> ValuePath:
    """Read what `format_path` wrote; raises ValueError."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if not match or (match[4] is not None and bool(match[3]) != bool(steps)):
            raise _no_path(text)
        steps.append(_step(match, text))
        position = match.end()
    if not steps:
        raise ValueError("an empty path names no value")
    return tuple(steps)


def names_value(name: str, path: ValuePath) -> bool:
    """Whether a name means a value: its whole path, a segment of it, or that with its number.

    So `message.content[2].text` is meant by itself, by `content`, `text` and `content[2]`.
    """
    numbered = (f"{one}[{two}]" for one, two in pairwise(path) if isinstance(two, int))
    return name == format_path(path) or name in path or name in numbered


def _step(match: re.Match[str], text: str) -> str | int:
    index, quoted, _, plain = match.groups()
    try:
        if index is not None:
            return int(index)
        return plain if quoted is None else str(json.loads(quoted))
    except ValueError:  # an escape that JSON does not know, or a number longer than any file
        raise _no_path(text) from None


def _no_path(text: str) -> ValueError:
    return ValueError(f"not the path of a value: {text!r}")


def paths_of(keys: Iterable[str]) -> dict[str, ValuePath]:
    """Read a marker's keys; those that are no paths are left out."""
    paths = {}
    for key in keys:
        try:
            paths[key] = parse_path(key)
        except ValueError:  # somebody edited the marker: what it names is nowhere
            continue
    return paths


def value_at(entry: Any, path: ValuePath) -> Any:
    """Return the value at a path, or a mark of its own if there is none: see `is_present`."""
    value: Any = entry
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value


def is_present(entry: Any, path: ValuePath) -> bool:
    """Whether there is a value at a path, `null` included."""
    return value_at(entry, path) is not _ABSENT
