"""How log lines look: objects of JSON in the file, and words for people who watch.

Loaded with the first line that is written. JSON lines are made without structlog: that loads rich
and pygments whatever is asked of it, which takes longer than what most commands do that log two
lines. Lines for people are made in the way that structlog describes for programs whose libraries
use logging: ours and theirs go through the same processors.
"""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from typing import Any

from bsd.foundation.json_text import document
from bsd.foundation.logs import LEVELS, level_of, module_of
from bsd.foundation.spelling import iso_utc


class JsonForm(logging.Formatter):
    """One line of JSON for a record, whatever its fields hold."""

    def format(self, record: logging.LogRecord) -> str:
        line = members_of(record)
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        return document(line, _in_words).decode()


def members_of(record: logging.LogRecord) -> dict[str, object]:
    """What a record says, first things first; no field may take their places."""
    head = {
        "time": iso_utc(record.created),
        "level": level_of(record),
        "module": module_of(record),
        "event": record.getMessage(),
    }
    return {**head, **getattr(record, "fields", {}), **head}


def _in_words(value: object) -> object:
    """Say in JSON's words what JSON cannot say."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)


def console_form(*, colors: bool) -> logging.Formatter:
    """Lines for people; only a traceback takes more than one."""
    import structlog  # noqa: PLC0415 - it takes a tenth of a second, which JSON lines need not wait for

    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        timestamp_key="time",
        level_styles={level: styles.get(level, styles["debug"]) for level in LEVELS},
        exception_formatter=structlog.dev.plain_traceback,
        sort_keys=False,
    )
    return structlog.stdlib.ProcessorFormatter(
        processors=[_members, structlog.processors.format_exc_info, _tamed, renderer]
    )


def _members(_: object, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    line = members_of(event["_record"])
    return line | ({"exc_info": event["exc_info"]} if "exc_info" in event else {})


def _tamed(_: object, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Texts from transcripts must not steer the terminal; tracebacks keep their lines."""
    return {key: value if key == "exception" else _tame(value) for key, value in event.items()}


def _tame(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        return ascii(value)[1:-1]
    return value
