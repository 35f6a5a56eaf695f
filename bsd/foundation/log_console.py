"""How log lines look to people who watch: structlog renders the standard library's records.

This is the way that structlog describes for programs whose libraries use logging: ours and theirs
go through the same processors, and `ProcessorFormatter` is all that `logs` needs to know.
"""

from __future__ import annotations

import structlog
from structlog.processors import format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from bsd.foundation.log_form import members_of
from bsd.foundation.logs import LEVELS


def console_form(*, colors: bool) -> ProcessorFormatter:
    """Lines for people; only a traceback takes more than one."""
    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        timestamp_key="time",
        level_styles={level: styles.get(level, styles["debug"]) for level in LEVELS},
        exception_formatter=structlog.dev.plain_traceback,
        sort_keys=False,
    )
    return ProcessorFormatter(processors=[_members, format_exc_info, _tamed, renderer])


def _members(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    line = members_of(event["_record"])
    return line | ({"exc_info": event["exc_info"]} if "exc_info" in event else {})


def _tamed(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Texts from transcripts must not steer the terminal; tracebacks keep their lines."""
    return {key: value if key == "exception" else _tame(value) for key, value in event.items()}


def _tame(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        return ascii(value)[1:-1]
    return value
