"""JSON documents for other programs: quick, and whatever transcripts and file systems hold."""

from __future__ import annotations

import json
from typing import Any

import orjson


def document(content: Any) -> bytes:
    """Write JSON; lone surrogates and huge integers, which transcripts hold, included."""
    try:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return json.dumps(content, default=str, skipkeys=True).encode()
