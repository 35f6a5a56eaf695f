"""`bsd discard` and `bsd distill`: whole entries give way to a note or a summary (seed 003)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.replace import change, dry_run, include_user

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName


@command(
    "discard",
    """
    The text of each entry becomes [content discarded]; thinking and tool calls stay. HASH is what
    `bsd context` lists. All entries or none. `bsd undo` takes it back.

    \b
    Examples:
      bsd discard main/4f2a a1b2c3
      bsd discard main/4f2a a1b2c3 0f9e8d --dry-run
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("hashes", nargs=-1, required=True, metavar="HASH…")
@include_user
@dry_run
@click.pass_obj
def discard(
    call: Call,
    /,
    *,
    session: SessionName,
    hashes: tuple[str, ...],
    include_user: bool,
    dry_run: bool,
) -> int:
    targets = [[hash_] for hash_ in hashes]
    return change(call, session, "discard", targets, include_user=include_user, dry_run=dry_run)


@command(
    "distill",
    """
    The text of the entry becomes SUMMARY; thinking and tool calls stay. HASH is what `bsd context`
    lists. `bsd undo` takes it back.

    \b
    Example:
      bsd distill main/4f2a a1b2c3 'read 47 files: auth needs a refactoring'
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("hash_", metavar="HASH")
@click.argument("summary", metavar="SUMMARY")
@include_user
@dry_run
@click.pass_obj
def distill(
    call: Call,
    /,
    *,
    session: SessionName,
    hash_: str,
    summary: str,
    include_user: bool,
    dry_run: bool,
) -> int:
    targets = [[hash_, summary]]
    return change(call, session, "distill", targets, include_user=include_user, dry_run=dry_run)
