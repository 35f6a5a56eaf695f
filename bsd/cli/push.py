"""`bsd archive push` and `bsd fleet update`: uploads, and rows for the catalogue."""

from __future__ import annotations

import click

from bsd.actions.push import push_archive, update_catalogue
from bsd.cli.call import BsdCommand, Call
from bsd.cli.output import counted, note, say, size
from bsd.fleet.catalogue.ingest import Ingested
from bsd.fleet.push import Pushed


@click.command("push", cls=BsdCommand)
@click.pass_obj
def push_command(call: Call, /) -> int:
    """Upload the new files of the archive to the bucket of `[fleet]`.

    Sessions that have rested for `copy_after` are copied into the archive first, with their
    extracted values. The daemon does the same every `push_seconds`. A push that was interrupted
    continues where it was.

    \b
    Examples:
      bsd archive push
      bsd archive push --json
    """
    with call.context(changes=True, ends_early=True) as context:
        answer = push_archive(context)
    call.answer(answer, tell_pushed)
    return int(bool(answer.problems) or answer.waiting > 0)


def tell_pushed(done: Pushed) -> None:
    say(
        f"{done.bucket}, {done.host}: {counted(done.files, 'file')} uploaded "
        f"({size(done.uploaded)}), {done.removed} removed; manifest {done.generation}"
    )
    if done.forgotten:
        say(f"{counted(done.forgotten, 'session')}: forgotten here, too, as on another host")
    if done.thinned:
        say(f"{counted(done.thinned, 'pack')}: the content is now in the bucket only")
    for problem in done.problems:
        note(problem)
    if done.waiting:
        note(f"{counted(done.waiting, 'file')} still to be uploaded. The same command goes on.")


@click.command("update", cls=BsdCommand)
@click.pass_obj
def update_command(call: Call, /) -> int:
    """Write the rows of changed sessions of this machine into the catalogue.

    The daemon does so every `push_seconds`. The tables are made if the role may do so.

    \b
    Examples:
      bsd fleet update
    """
    with call.context(changes=False, ends_early=True) as context:
        answer = update_catalogue(context)
    call.answer(answer, tell_updated)
    return int(bool(answer.failed) or answer.more)


def tell_updated(done: Ingested) -> None:
    say(f"{counted(done.sessions, 'session')} written, {counted(done.rows, 'row')}")
    for problem in done.failed:
        note(f"Not read: {problem}")
    if done.more:
        note("Stopped before the end. The same command goes on.")
