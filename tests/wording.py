"""Words that only programmers know, and that no message may hold."""

from __future__ import annotations

import re

LIBRARY = re.compile(
    r"pydantic|value_error|type_error|Extra inputs|Value error|cronsim|is not acceptable",
    re.IGNORECASE,
)
