"""Bodies of requests: JSON, whatever their Content-Type says (SPEC §8)."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request

from bsd.foundation.errors import Invalid


async def json_object(request: Request) -> dict[str, Any]:
    """Read the body; raises Invalid unless it is a JSON object."""
    body = await request.body()
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(
            f"the body is not valid JSON: {error}" if body else "the body is empty",
            hint='send a JSON object, as in {"keep_recent": 10}',
        ) from None
    if not isinstance(document, dict):
        raise Invalid("the body is not a JSON object {…}")
    return document
