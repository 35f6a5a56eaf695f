"""What is deleted for good leaves the search index, too, even if whoever deletes is killed.

Files go first, then their words. In between a mark lies beside the settings; who finds it later
looks which words belong to files that are no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bsd.care.search import forget_stored
from bsd.foundation.errors import BsdError
from bsd.foundation.files import write_private
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger
from bsd.store.archive import SessionArchive
from bsd.store.index import contents_of
from bsd.store.search import SearchIndex, ask

_log = get_logger("retention")

_FINISHED = ".json"


@contextmanager
def letting_go(layout: Layout, deleted: Mapping[str, list[str]]) -> Iterator[None]:
    """While files are deleted; `deleted` fills with their refs, by directory of the store."""
    marked = layout.search_db.exists() and _mark(layout.letting_go)
    forgotten = True
    try:
        yield
    finally:
        if gone := {name: refs for name, refs in deleted.items() if refs}:
            forgotten = forget_stored(layout, gone)
        contents_of(layout).changed()
    if marked and forgotten:
        layout.letting_go.unlink(missing_ok=True)


def catch_up(layout: Layout) -> None:
    """Do what one who was killed has not come to; a problem is logged, and left to the next run."""
    if not layout.letting_go.exists():
        return
    try:
        nothing: dict[str, set[str]] = {}
        known = ask(layout.search_db, SearchIndex.all_stored, nothing)
        gone = {store: refs - _there(layout, store) for store, refs in known.items()}
        forgotten = forget_stored(layout, {store: refs for store, refs in gone.items() if refs})
    except (BsdError, OSError) as problem:
        _log.warning("Deleted text may still be in the search index", problem=str(problem))
        return
    if forgotten:
        layout.letting_go.unlink(missing_ok=True)


def _there(layout: Layout, store: str) -> frozenset[str]:
    """The refs that a session's store and archive have; raises OSError."""
    directory = layout.extracted / store
    files = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    names = SessionArchive(layout.archive / store).names()
    return names.union(name.removesuffix(_FINISHED) for name in files)


def _mark(path: Path) -> bool:
    # Deleting must not need room: then words may stay, if it is killed in that moment.
    with suppress(OSError):
        write_private(path, b"")
        return True
    return False
