"""Removes from the catalogue what this host has forgotten.

The notes lie in the journal of uploads beside the tombstones until the database has obeyed them.
"""

from __future__ import annotations

from bsd.core.layout import SessionName
from bsd.fleet.catalogue.forgetting import forget_rows
from bsd.fleet.context import FleetContext
from bsd.fleet.host import this_host
from bsd.maintenance.tell_others import ROWS
from bsd.store.uploads import UploadJournal


def forget_pending_rows(context: FleetContext) -> int:
    """Delete the rows of forgotten sessions, entries and lines; return how many notes were done.

    Without a database in the settings, the notes are dropped. The journal is made if it is missing,
    so that what is forgotten from now on is noted.

    Raises:
        BsdError: the database cannot be reached, or refuses. The notes stay.
    """
    with UploadJournal(context.layout, create=True) as journal:
        pending = [each for each in journal.pending_tombstones() if each[0].startswith(ROWS)]
        for id_, document in pending:
            if context.fleet.database is not None:
                _forget(context, document)
            journal.drop_tombstone(id_)
    return len(pending)


def _forget(context: FleetContext, document: dict[str, object]) -> None:
    own = this_host(context.layout, context.fleet)
    session, host, entry = document["session"], document["host"], document["entry"]
    hashes = document["hashes"] if isinstance(document["hashes"], list) else []
    forget_rows(
        context.fleet,
        session=None if session is None else SessionName.parse(str(session)),
        entry=None if entry is None else str(entry),
        hashes=[bytes.fromhex(str(each).removeprefix("sha256:")) for each in hashes],
        host=(str(host[0]), str(host[1])) if isinstance(host, list) else (own.host, own.id),
    )
