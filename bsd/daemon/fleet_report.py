"""The member `fleet` of the status: uploads, and the processes that send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bsd.core.errors import BsdError, NotFound
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.daemon.uploader import Sender
from bsd.store.uploads import UploadFigures, UploadJournal


def fleet_report(
    layout: Layout, settings: FleetSettings, senders: Sequence[Sender], now: float
) -> dict[str, Any] | None:
    """Return the state of the uploads and of the senders; None if this host shares nothing.

    Args:
        layout: of the root.
        settings: of the daemon.
        senders: of the daemon; none in a read-only daemon.
        now: epoch seconds.
    """
    if not settings.is_on:
        return None
    figures, problem = UploadFigures(), None
    try:
        with UploadJournal(layout) as journal:
            figures = journal.figures()
    except NotFound:
        pass  # nothing was uploaded yet
    except BsdError as error:
        problem = error.message
    since = figures.waiting_since
    return {
        "host": settings.host,
        "bucket": settings.bucket,
        "database": settings.database is not None,
        "behind_files": figures.waiting_files,
        "behind_bytes": figures.waiting_bytes,
        "behind_seconds": None if since is None else max(0.0, now - since),
        "files": figures.files,
        "bytes": figures.bytes,
        "generation": figures.generation,
        "errors": figures.errors,
        "last_success": _moment(figures.last_success),
        "last_error": problem or figures.last_error,
        "senders": [_sender(each) for each in senders],
    }


def _sender(sender: Sender) -> dict[str, Any]:
    state = sender.state
    return {
        "name": sender.name,
        "last_success": _moment(state.last_success),
        "last_error": state.last_error,
        "failures": state.failures,
        "errors": state.errors,
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else iso_utc(seconds)
