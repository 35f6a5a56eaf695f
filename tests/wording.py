"""Words that only programmers know, and that no message may hold."""

from __future__ import annotations

import re

LIBRARY = re.compile(
    r"pydantic|value_error|type_error|Input should|Field required|valid (integer|number|string)"
    r"|Extra inputs|String should|Value error|croniter|is not acceptable",
    re.IGNORECASE,
)
