"""`bsd replace`, `discard` and `distill`: texts and whole entries that give way (seed 003)."""

from __future__ import annotations

from typing import Any

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.files import read_json
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.output import counted, note, print_json, say
from bsd.doors.cli.verbs import CallHands
from bsd.foundation.errors import Invalid
from bsd.foundation.layout import SessionName
from bsd.surgery.targets import ContextChanged
from bsd.verbs.change_context import CHANGE_CONTEXT, ChangeContext
from bsd.verbs.verb import perform

_EXAMPLE = '[{"start": "…", "end": "…", "replacement": "…"}]'

include_user = click.option(
    "--include-user", is_flag=True, help="Look at what the user wrote as well."
)
dry_run = click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")


@command(
    "replace",
    """
    Both markers are taken literally and go with what is between them, at least 30 characters in
    all. They must match at exactly one place of the session's texts. --file does several at once,
    all or none: a JSON array of {"start", "end", "replacement"}. `bsd undo` takes it back.

    \b
    Examples:
      bsd replace main/4f2a --start 'npm install output:' --end 'added 847 packages' --replacement …
      bsd replace main/4f2a --file operations.json --dry-run
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--start", metavar="TEXT", help="Where the range begins.")
@click.option("--end", metavar="TEXT", help="Where it ends: the first one after the start.")
@click.option("--replacement", metavar="TEXT", help="What stands there instead; may be empty.")
@click.option("--file", "file", metavar="FILE", help="Read operations from JSON; - is stdin.")
@include_user
@dry_run
@click.pass_obj
def replace(
    call: Call,
    /,
    *,
    session: SessionName,
    start: str | None,
    end: str | None,
    replacement: str | None,
    file: str | None,
    include_user: bool,
    dry_run: bool,
) -> int:
    one = {"start": start, "end": end, "replacement": replacement}
    given = [name for name, value in one.items() if value is not None]
    if file is not None and given:
        raise Invalid(f"--file and --{given[0]} exclude each other", hint="`bsd replace --help`")
    if file is None and len(given) < len(one):
        missing = ", ".join(f"--{name}" for name in one if name not in given)
        raise Invalid(f"{missing} missing", hint="or --file FILE with several operations")
    targets = [one] if file is None else _operations(file)
    return _change(call, session, "replace", targets, include_user=include_user, dry_run=dry_run)


def _operations(file: str) -> object:
    """The operations in a file: an array, or what the tool is given, {"targets": […]}."""
    document = read_json(file, _EXAMPLE)
    targets = document["targets"] if isinstance(document, dict) and "targets" in document else None
    return document if targets is None else targets


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
    return _change(call, session, "discard", targets, include_user=include_user, dry_run=dry_run)


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
    return _change(call, session, "distill", targets, include_user=include_user, dry_run=dry_run)


def _change(
    call: Call,
    session: SessionName,
    action: str,
    targets: Any,
    *,
    include_user: bool,
    dry_run: bool,
) -> int:
    """Do what the context tool is asked for, and tell of it."""
    asked = ChangeContext(action, targets, include_user, dry_run)
    with stop_request() as request:
        answer = perform(CHANGE_CONTEXT, CallHands(call, request), session, asked)
    if call.json:
        print_json(answer.as_json())
    else:
        _tell(session, answer, dry_run=dry_run)
    return request.exit_code


def _tell(session: SessionName, answer: ContextChanged, *, dry_run: bool) -> None:
    for one in answer.changed:
        say(
            f"entry {one.message_id}: {one.original_length:,} → {one.new_length:,} "
            f"characters, about {one.tokens_saved:,} tokens saved"
        )
    for warning in answer.warnings:
        note(warning)
    done = "Would change" if dry_run else "Changed"
    places = counted(len(answer.changed), "place")
    say(f"{done} {places} of {session}, about {answer.tokens_saved:,} tokens saved")
    if answer.operation is not None:
        say(f"  `bsd undo {session} {answer.operation}` takes it back")
