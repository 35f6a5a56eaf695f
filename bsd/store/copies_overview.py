"""All copies of sessions in the archive: which versions they are of, and what they take on disk."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import orjson
from pydantic import Field

from bsd.core.files import LARGEST_RECORD, read_ours, write_private
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.store.copies import archived, copies_in
from bsd.transcripts.change import Written


class CopiedVersions:
    """`copied.json`: which version of each session's transcript was copied last, by store name.

    A cache: if its file is lost, it is made anew from the copies.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.own / "copied.json"
        self._noted: dict[str, Written] = {}
        self._changed = False
        try:
            self.written = self._read()
        except (OSError, ValueError, TypeError, AttributeError):
            self._changed = True
            self.written = {
                archive.name: copy.transcript.was.written
                for archive in archived(layout)
                for copy in copies_in(archive)[:1]
            }

    def _read(self) -> dict[str, Written]:
        document = orjson.loads(read_ours(self._file, self._layout.root, LARGEST_RECORD))
        return {str(store): Written(*map(int, was)) for store, was in document.items()}

    def get(self, store: str) -> Written | None:
        return self.written.get(store)

    def note(self, store: str, was: Written) -> None:
        self.written[store] = self._noted[store] = was
        self._changed = True

    def save(self) -> None:
        """Write the file; after an error the next run reads more."""
        if self._changed:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                self.written = self._read() | self._noted  # another run may have noted more
            with suppress(OSError):
                plain = {store: tuple(was) for store, was in self.written.items()}
                write_private(self._file, orjson.dumps(plain))


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
    return CopiesUse(sessions, gone, content, kept, ratio, iso_utc(oldest) if sessions else None)
