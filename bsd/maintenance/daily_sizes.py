"""The disk use of sessions and of bsd, noted once a day in `<root>/.brainsurgeon/sizes.jsonl`.

A line takes about 400 bytes. Days on which no daemon ran have no line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import Field

from bsd.core.files import LARGEST_NOTE, ends_torn, open_plain, plain_stream, write_all
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.maintenance.catalog import with_stats

_ROOT_KIND = "openclaw"
# The figures of the status that a line records.
_PARTS = ("store", "archive", "index", "history", "databases", "copies", "trash", "saved")
_MOST_DAYS = 3660


@dataclass(frozen=True, slots=True)
class SizesOfDay:
    """The sizes at a moment of a day, in bytes."""

    at: Annotated[str, Field(description="ISO 8601")]
    sessions: Annotated[dict[str, int], Field(description="Bytes of sessions by agent's program")]
    counts: Annotated[
        dict[str, int], Field(description="The number of sessions by agent's program")
    ]
    disk: Annotated[dict[str, int], Field(description="Bytes that bsd takes, by purpose")]


@dataclass(frozen=True, slots=True)
class DailySizes:
    """The recorded days, oldest first."""

    days: list[SizesOfDay]
    titles: Annotated[
        dict[str, str], Field(description="The names of all programs as users write them")
    ]


def note_sizes(layout: Layout, disk: Callable[[], Mapping[str, Any]], now: float) -> bool:
    """Append a line with the sizes, unless this day (UTC) has one already.

    Args:
        disk: returns the figures as in the status; called only if a line is written.
        now: epoch seconds.

    Returns:
        True if a line was written.

    Raises:
        OSError: the file cannot be written.
        ConfigError: the root has no agents.
    """
    at = iso_utc(now)
    known = read_sizes(layout.sizes_file)
    if known and known[-1].at[:10] >= at[:10]:
        return False
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name, stat in with_stats(layout, strays=False):
        source = layout.source_of(name.agent)
        kind = source.kind if source else _ROOT_KIND
        sizes[kind] = sizes.get(kind, 0) + stat.st_size
        counts[kind] = counts.get(kind, 0) + 1
    figures = disk()
    parts = {part: figures[part] for part in _PARTS if isinstance(figures.get(part), int)}
    line = orjson.dumps({"at": at, "sessions": sizes, "counts": counts, "disk": parts})
    descriptor = open_plain(layout.sizes_file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        write_all(descriptor, b"\n" * ends_torn(descriptor) + line + b"\n")
    finally:
        os.close(descriptor)
    return True


def read_sizes(path: Path) -> list[SizesOfDay]:
    """Return the recorded days, oldest first, without damaged lines."""
    days: list[SizesOfDay] = []
    with suppress(FileNotFoundError), plain_stream(path) as file:
        while line := file.readline(LARGEST_NOTE):
            with suppress(ValueError, TypeError, KeyError):
                noted = orjson.loads(line)
                parts = [noted[name] for name in ("sessions", "counts", "disk")]
                if isinstance(noted["at"], str) and all(map(_are_numbers, parts)):
                    days.append(SizesOfDay(noted["at"], *parts))
    return days[-_MOST_DAYS:]


def _are_numbers(part: Any) -> bool:
    return isinstance(part, dict) and all(type(value) is int for value in part.values())
