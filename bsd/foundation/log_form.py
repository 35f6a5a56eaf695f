"""What a log line is made of, and how it looks in the file: one object of JSON.

All JSON lines are made here, without structlog: that loads rich and pygments whatever is asked of
it, which takes longer than what most commands do that log two lines.
"""

from __future__ import annotations

import json
import logging
import os

import orjson

from bsd.foundation.logs import level_of, module_of
from bsd.foundation.times import iso_utc


class JsonForm(logging.Formatter):
    """One line of JSON for a record, whatever its fields hold."""

    def format(self, record: logging.LogRecord) -> str:
        line = members_of(record)
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, _plain, orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # lone surrogates and huge integers, which the slower one can write
            return json.dumps(line, default=_plain, skipkeys=True)


def members_of(record: logging.LogRecord) -> dict[str, object]:
    """What a record says, first things first; no field may take their places."""
    head = {
        "time": iso_utc(record.created),
        "level": level_of(record),
        "module": module_of(record),
        "event": record.getMessage(),
    }
    return {**head, **getattr(record, "fields", {}), **head}


def _plain(value: object) -> object:
    """Say in JSON's words what JSON cannot say."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)
