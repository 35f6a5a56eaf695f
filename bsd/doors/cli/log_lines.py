"""One line of the log: whether it is wanted, and how it looks to people."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from bsd.doors.cli.text import safe
from bsd.foundation.logs import LEVELS

_HEAD = ("time", "level", "module", "event")
_OWN_LINES = ("exception", "stacks", "traceback")  # texts of many lines


class LineFilter(NamedTuple):
    """Lines of at least `level`, about `session` (`agent/session`; None: about anything)."""

    level: str = "trace"
    session: str | None = None

    def wants(self, line: bytes) -> bool:
        """Whether to show a line; one that is no JSON has no level and no session."""
        if self.level == "trace" and self.session is None:
            return True
        # Most lines are unwanted, and parsing is dear.
        if self.session is not None and self.session.encode() not in line:
            return False
        fields = _parse(line)
        if fields is None:
            return False
        level = LEVELS.get(str(fields.get("level")), LEVELS["error"])
        if level < LEVELS[self.level]:
            return False
        return self.session is None or fields.get("session") == self.session


class Shown(NamedTuple):
    """A line for people, in three parts."""

    time: str
    level: str
    rest: str


def console_line(line: bytes) -> Shown:
    """Turn a line into local time, level, event and `key=value`; nothing in it is dangerous."""
    fields = _parse(line)
    if fields is None:
        return Shown("-" * 19, "?", safe(line.decode(errors="backslashreplace")))
    parts = [safe(str(fields.get("event", "")))]
    parts += [f"{safe(name)}={_value(fields[name])}" for name in fields if _is_short(name)]
    if fields.get("module"):
        parts.append(f"[{safe(str(fields['module']))}]")
    texts = [safe(str(fields[name]), lines=True) for name in _OWN_LINES if fields.get(name)]
    rest = " ".join(parts)
    for text in texts:
        rest += "\n    " + text.rstrip("\n").replace("\n", "\n    ")
    return Shown(_local(str(fields.get("time", ""))), safe(str(fields.get("level", "?"))), rest)


def json_line(line: bytes) -> str:
    """A line as it stands in the file, but for characters that could command a terminal."""
    text = line.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _is_short(name: str) -> bool:
    return name not in _HEAD and name not in _OWN_LINES


def _value(value: object) -> str:
    if isinstance(value, str):
        plain = value and value.isprintable() and not any(c in value for c in " =\"'")
        return value if plain else json.dumps(value)
    return safe(json.dumps(value))


def _local(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return safe(moment)
