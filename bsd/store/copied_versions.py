"""`copied.json`: the version of each session's transcript that was copied last, by store name."""

from __future__ import annotations

from contextlib import suppress

import orjson

from bsd.core.files import LARGEST_RECORD, read_ours, write_private
from bsd.core.layout import Layout
from bsd.store.copies import archived, copies_in
from bsd.transcripts.change import Written


class CopiedVersions:
    """A cache: if its file is lost, it is made anew from the copies."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.own / "copied.json"
        self._noted: dict[str, Written] = {}
        self._changed = False
        try:
            self.written = self._read()
        except (OSError, ValueError, TypeError, AttributeError):
            self._changed = True
            self.written = self._read_copies()

    def _read(self) -> dict[str, Written]:
        said = orjson.loads(read_ours(self._file, self._layout.root, LARGEST_RECORD))
        return {str(store): Written(*map(int, was)) for store, was in said.items()}

    def _read_copies(self) -> dict[str, Written]:
        found: dict[str, Written] = {}
        for archive in archived(self._layout):
            for copy in copies_in(archive)[:1]:
                found[archive.name] = copy.transcript.was.written
        return found

    def get(self, store: str) -> Written | None:
        return self.written.get(store)

    def note(self, store: str, was: Written) -> None:
        self.written[store] = self._noted[store] = was
        self._changed = True

    def save(self) -> None:
        """A full disk costs the next run some reading; so does what two runs note at a time."""
        if self._changed:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                self.written = self._read() | self._noted  # another run may have noted more
            with suppress(OSError):
                plain = {store: tuple(was) for store, was in self.written.items()}
                write_private(self._file, orjson.dumps(plain))
