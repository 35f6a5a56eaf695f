"""Names of values inside an entry: `output`, `message.content[2].text`, `details["a.b"]`."""

from __future__ import annotations

import json
import re

ValuePath = tuple[str | int, ...]

_PLAIN = re.compile(r"[^\s.\[\]\"]+")
_STEP = re.compile(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|(\.?)([^\s.\[\]"]+)')


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
            raise ValueError(f"not the path of a value: {text!r}")
        if match[1] is not None:
            steps.append(int(match[1]))
        elif match[2] is not None:
            steps.append(json.loads(match[2]))
        else:
            steps.append(match[4])
        position = match.end()
    if not steps:
        raise ValueError("an empty path names no value")
    return tuple(steps)
