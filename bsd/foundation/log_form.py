"""What a log line looks like: structlog renders the records of the standard library's logging.

This is the way that structlog describes for programs whose libraries use logging: ours and theirs
go through the same processors, and `ProcessorFormatter` is all that `logs` needs to know.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable

import orjson
import structlog
from structlog.processors import JSONRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from bsd.foundation.logs import LEVELS, level_of, module_of
from bsd.foundation.times import iso_utc


def json_formatter() -> ProcessorFormatter:
    """One line of JSON for a record, whatever its fields hold."""
    return _formatter(JSONRenderer(serializer=_json, default=_plain))


def console_formatter(*, colors: bool) -> ProcessorFormatter:
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
    return _formatter(_tamed, renderer)


def _formatter(*last: Processor) -> ProcessorFormatter:
    return ProcessorFormatter(processors=[_first_things_first, format_exc_info, *last])


def _first_things_first(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    head = {
        "time": iso_utc(record.created),
        "level": level_of(record),
        "module": module_of(record),
        "event": event["event"],
    }
    line = {**head, **getattr(record, "fields", {}), **head}
    return line | ({"exc_info": event["exc_info"]} if "exc_info" in event else {})


def _tamed(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Texts from transcripts must not steer the terminal; tracebacks keep their lines."""
    return {key: value if key == "exception" else _tame(value) for key, value in event.items()}


def _tame(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        return ascii(value)[1:-1]
    return value


def _json(event: EventDict, *, default: Callable[[object], object]) -> str:
    try:
        return orjson.dumps(event, default, orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # lone surrogates and huge integers, which the slower one can write
        return json.dumps(event, default=default, skipkeys=True)


def _plain(value: object) -> object:
    """Say in JSON's words what JSON cannot say."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)
