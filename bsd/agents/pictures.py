"""Pictures that stand in transcripts as blocks, in the forms of all dialects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bsd.agents.reading import text_of

_MEDIA_TYPE = re.compile(r"image/[A-Za-z0-9.+-]{1,60}")
_DATA_URL = re.compile(r"data:([^;,]*);base64,")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as it is sent to a model."""

    media_type: str
    data: str  # base64


def picture_of(value: Any) -> Picture | None:
    """Read a value as a block with a picture; None if it is none."""
    if not isinstance(value, dict):
        return None
    source = value.get("source")
    match value.get("type"):
        case "image" if isinstance(source, dict):
            media, data = source.get("media_type"), source.get("data")
        case "image":
            media, data = value.get("mimeType"), value.get("data")
        case "input_image":
            url = text_of(value.get("image_url")) or ""
            head = _DATA_URL.match(url)
            media, data = (head[1], url[head.end() :]) if head else (None, None)
        case _:
            return None
    if not isinstance(media, str) or not _MEDIA_TYPE.fullmatch(media) or not text_of(data):
        return None
    return Picture(media, str(data))
