"""Which dialect a transcript is written in, by its first lines (SPEC §3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import orjson

from bsd.agents.base import VALUE_TYPES, Entry, Format, NotOurs
from bsd.agents.flat import FLAT
from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.agents.reading import text_of
from bsd.foundation.parsed_size import is_too_large

# A foreign file would be read to its end, were there no bound.
LINES_LOOKED_AT = 50


__all__ = ["LINES_LOOKED_AT", "NotOurs", "detect", "first_entries"]


def detect(first_lines: Iterable[bytes]) -> Format | NotOurs:
    """Tell the dialect of a file whose lines these are; reads at most `LINES_LOOKED_AT`."""
    entries = first_entries(first_lines)
    first = next(entries, None)
    if first is None:
        return NotOurs("no entries")
    if first.get("type") == "session":
        return _by_header(first)
    if _is_flat(first) or any(_is_flat(entry) for entry in entries):
        return FLAT
    return NotOurs("foreign format")


def first_entries(first_lines: Iterable[bytes], most: int = LINES_LOOKED_AT) -> Iterator[Entry]:
    """The entries among the first `most` lines; what is not empty JSON objects is passed over."""
    return (entry for raw in islice(first_lines, most) if (entry := _parsed(raw)))


def _parsed(raw: bytes) -> Entry | None:
    if is_too_large(raw):
        return None
    try:
        entry = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _by_header(header: Entry) -> Format | NotOurs:
    version = header.get("version")
    if version is None:
        return NotOurs("version 1 session: its entries have no ids")
    if isinstance(version, bool) or not isinstance(version, (int, float)):
        return NotOurs(f"session header of unknown version {version!r:.40}")
    if version < 2:
        return NotOurs(f"version {version} session: its entries have no ids")
    return OPENCLAW


def _is_flat(entry: Entry) -> bool:
    if text_of(entry.get("__id")):
        return True
    kinds = (entry.get("type"), entry.get("customType"))
    return text_of(entry.get("id")) is not None and any(kind in VALUE_TYPES for kind in kinds)
