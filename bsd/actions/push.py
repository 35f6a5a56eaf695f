"""Sends new files of the archive to the bucket, and new rows to the catalogue."""

from __future__ import annotations

from dataclasses import replace

from bsd.actions.context import ActionContext
from bsd.bucket.errors import BucketRefused, BucketUnreachable, NoBucket
from bsd.bucket.objects import open_bucket
from bsd.core.errors import BsdError, Invalid
from bsd.fleet.catalogue.forgetting import obey_bucket
from bsd.fleet.catalogue.ingest import Behind, Ingested, ingest
from bsd.fleet.forgotten_rows import forget_pending_rows
from bsd.fleet.push import Pushed, push
from bsd.fleet.tombstones import obey
from bsd.store.uploads import UploadFigures, UploadJournal

_NO_LIMIT = float("inf")


def push_archive(context: ActionContext) -> Pushed:
    """Bring the bucket up to date with this root's archive; raises as `bsd.fleet.push.push`."""
    return push(context)


def update_catalogue(context: ActionContext, *, seconds: float = _NO_LIMIT) -> Ingested:
    """Write the rows of changed sessions into the catalogue.

    Sessions and entries that a user has forgotten, on this host or on another one, are forgotten
    here and in the catalogue first, so that their rows are not written again. The rows of a session
    in use stay until a later call.

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
    problems = _obey(context) if context.fleet.bucket is not None else []
    forget_pending_rows(context)
    done = ingest(
        context.layout,
        context.fleet,
        prices=context.prices.table(),
        seconds=seconds,
        stopping=context.stopping,
        behind=_behind(context),
    )
    return replace(done, failed=(*problems, *done.failed))


def _obey(context: ActionContext) -> list[str]:
    """Obey the tombstones of the bucket, here and in the catalogue; return the problems.

    A bucket that cannot be reached is such a problem: the catalogue is written all the same.
    """
    try:
        with UploadJournal(context.layout, create=True) as journal:
            obeyed = obey(context, open_bucket(context.fleet), journal)
        return [*obeyed.problems, *obey_bucket(context.fleet)]
    except (BucketUnreachable, BucketRefused, NoBucket) as problem:
        return [problem.message]


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
