"""What this host sends: new files of its archive to the bucket, new rows to the catalogue."""

from __future__ import annotations

from dataclasses import replace

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, Invalid
from bsd.fleet.catalogue.forgetting import obey_bucket
from bsd.fleet.catalogue.ingest import Behind, Ingested, ingest
from bsd.fleet.push import Pushed, push
from bsd.store.uploads import UploadFigures, UploadJournal

_NO_LIMIT = float("inf")


def push_archive(context: ActionContext) -> Pushed:
    """Bring the bucket up to date with this root's archive; raises as `bsd.fleet.push.push`."""
    return push(context)


def update_catalogue(context: ActionContext, *, seconds: float = _NO_LIMIT) -> Ingested:
    """Write the rows of changed sessions into the catalogue.

    Args:
        context: of the action; `context.fleet.database` must be set.
        seconds: begin no further session after this time.

    Raises:
        Invalid: no database is set.
        BsdError: as `bsd.fleet.catalogue.ingest.ingest`.
    """
    if context.fleet.database is None:
        raise Invalid(
            "no database is set",
            hint="set `database` of [fleet] in bsd.toml: contrib/docs/fleet.md",
        )
    problems = obey_bucket(context.fleet) if context.fleet.bucket is not None else ()
    done = ingest(
        context.layout,
        context.fleet,
        prices=context.prices.table(),
        seconds=seconds,
        stopping=context.stopping,
        behind=_behind(context),
    )
    return replace(done, failed=(*problems, *done.failed))


def _behind(context: ActionContext) -> Behind | None:
    figures = upload_figures(context)
    if figures is None or not figures.waiting_files:
        return None
    since = figures.waiting_since
    age = None if since is None else max(0.0, context.now() - since)
    return Behind(figures.waiting_files, figures.waiting_bytes, age)


def upload_figures(context: ActionContext) -> UploadFigures | None:
    """Return the state of the uploads; None if this root has uploaded nothing yet."""
    try:
        with UploadJournal(context.layout) as journal:
            return journal.figures()
    except BsdError:  # `bsd fleet status` tells of a journal that cannot be read
        return None
