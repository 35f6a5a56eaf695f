"""What else tells of an entry what it was: original lines in all stores, notes of all sessions.

A copy of a session (a fork, a rename, a session that was begun anew under its old lines) has no
history of its own; what is kept of the session that it was copied from speaks for it, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from bsd.foundation.errors import BsdError
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger
from bsd.store.extracted import Missing, SessionStore
from bsd.store.history import History
from bsd.store.lasting import RESTORED, Lasting, RestoredFile, Stamps

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
        """The lines that are kept of entries with these ids in any store, the oldest first."""
        stores: dict[Path, SessionStore] = {}
        for entry_id in entry_ids:
            for place in reversed(self._store.of_entry(entry_id)):
                line = self._store.load(place.ref, place.hash)
                if isinstance(line, Missing):
                    continue  # this one tells nothing
                at = place.directory
                store = stores.setdefault(at, SessionStore(self._layout, self._store.name, at))
                record = store.index.records.get(f"{place.ref}.json")
                keys = record.keys if record else ()
                yield Original(entry_id, line, keys, own=at == self._store.directory)


def _stamps(restored: RestoredFile) -> Stamps:
    try:
        return restored.stamps()
    except BsdError as problem:  # what else is kept may tell as much
        _log.warning(f"{RESTORED} tells nothing", problem=problem.message)
        return {}


def _in(directory: Path, word: str = "") -> list[Path]:
    """What lies in a directory and has a word in its name."""
    try:
        return [directory / name for name in sorted(os.listdir(directory)) if word in name]
    except OSError:  # there is nothing, or nobody may look
        return []
