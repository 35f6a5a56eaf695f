"""What all copies of sessions take on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.store.copies import archived, copies_in


@dataclass(frozen=True, slots=True)
class CopiesUse:
    """What copies of sessions take. Sizes are bytes, times ISO 8601."""

    sessions: int
    gone: Annotated[int, Field(description="How many of these their program has deleted")]
    content: Annotated[int, Field(description="Of all their files, without what was taken out")]
    kept: Annotated[int, Field(description="What the copies take")]
    ratio: Annotated[float | None, Field(description="Bytes of content for each that is kept")]
    oldest: Annotated[str | None, Field(description="When the copy was made that is the oldest")]


NO_COPIES = CopiesUse(0, 0, 0, 0, None, None)


def copies_use(layout: Layout) -> CopiesUse:
    """Return the sum over all copies in the archive."""
    sessions = gone = content = kept = 0
    oldest = float("inf")
    for archive in archived(layout):
        for copy in copies_in(archive):
            sessions, content, kept = sessions + 1, content + copy.size, kept + copy.packed
            gone += copy.gone_at is not None
            oldest = min(oldest, copy.kept_at)
    ratio = round(content / kept, 2) if kept else None
    since = iso_utc(oldest) if sessions else None
    return CopiesUse(sessions, gone, content, kept, ratio, since)
