"""What else tells of an entry what it was: original lines in all stores, notes of all sessions.

A copy of a session (a fork, a rename, a session that was begun anew under its old lines) has no
history of its own; what is kept of the session that it was copied from speaks for it, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from bsd.foundation.errors import BsdError, Unavailable
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger
from bsd.store.ancestry import kept_elsewhere
from bsd.store.extracted import Missing, SessionStore
from bsd.store.history import History
from bsd.store.lasting import RESTORED, Lasting, Restored, Stamps

_log = get_logger("history")


@immutable
class Original:
    """The original line of an entry, as it was kept."""

    entry_id: str
    line: bytes
    keys: tuple[str, ...]  # paths of the values that left
    own: bool  # it lies in the session's own store


class Kept:
    """Everything under one root, as it is asked about one session."""

    def __init__(self, layout: Layout, store: SessionStore, history: History) -> None:
        self._layout = layout
        self._store = store
        self._lasting = history.lasting

    def stamps(self) -> Stamps:
        """What is noted of this session."""
        return _stamps(self._lasting.restored)

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        """What is noted of others, session by session."""
        for directory in (*_in(self._layout.history), *_in(self._layout.trash, "_history_")):
            lasting = Lasting(directory, self._store.name)
            if lasting.restored.path != self._lasting.restored.path and lasting.restored.is_there:
                yield _stamps(lasting.restored)

    def originals(self, entry_ids: Collection[str]) -> Iterator[Original]:
        """The lines that are kept of entries with these ids, those of this session first."""
        seen = set()
        for store in self._stores():
            if store.directory not in seen and store.directory.is_dir():
                seen.add(store.directory)
                yield from _of(store, entry_ids, own=store is self._store)

    def _stores(self) -> Iterator[SessionStore]:
        yield self._store
        with suppress(BsdError):
            for name in kept_elsewhere(self._layout, self._store.name):
                yield SessionStore(self._layout, name)
        for directory in (*_in(self._layout.extracted), *_in(self._layout.trash, "_extracted_")):
            with suppress(BsdError):  # a link that leads elsewhere
                place = self._layout.refuse_outside(directory)
                yield SessionStore(self._layout, self._store.name, place)


def _stamps(restored: Restored) -> Stamps:
    try:
        return restored.stamps()
    except BsdError as problem:  # what else is kept may tell as much
        _log.warning(f"{RESTORED} tells nothing", problem=problem.message)
        return {}


def _of(store: SessionStore, entry_ids: Collection[str], *, own: bool) -> Iterator[Original]:
    for record in store.index.records.values():
        if record.entry_id in entry_ids:
            with suppress(Unavailable):  # this one tells nothing
                line = store.own(record.ref, record.hash)
                if not isinstance(line, Missing):
                    yield Original(record.entry_id, line, record.keys, own)


def _in(directory: Path, word: str = "") -> list[Path]:
    """What lies in a directory and has a word in its name."""
    try:
        return [directory / name for name in sorted(os.listdir(directory)) if word in name]
    except OSError:  # there is nothing, or nobody may look
        return []
