"""Taking the words of a deleted fact out of the file, for somebody who asked that it be forgotten.

SQLite only marks space as free, and FTS5 only notes that a row is gone, until the parts of its
index are made one. That takes seconds in a very large database: it is done in short changes, so
that the gateway waits for none of them.
"""

from __future__ import annotations

from bsd.foundation.errors import Busy
from bsd.foundation.logs import get_logger
from bsd.memory.database import Database

_log = get_logger("memory")

_PAGES = 500  # that a step writes, of 4 KB


def leave_nothing_behind(db: Database) -> None:
    """Let what this connection deletes from now on be overwritten."""
    db.run("PRAGMA secure_delete = ON")


def erase_words(db: Database) -> None:
    """Make the index of words one part, outside of any change; words of deleted facts go."""
    step = -_PAGES  # less than 0: all parts, and not only those that are alike
    try:
        while _merge(db, step):
            step = _PAGES
    except Busy as problem:
        _log.warning(
            "The fact is deleted, its words leave the index with the next one that is forgotten",
            problem=problem.message,
        )


def _merge(db: Database, pages: int) -> bool:
    """Whether there was something to do: the index then changed, beside the command itself."""
    with db.change():
        before = db.value("SELECT total_changes()")
        db.run("INSERT INTO facts_fts (facts_fts, rank) VALUES ('merge', ?)", (pages,))
        return bool(db.value("SELECT total_changes()") - before >= 2)
