"""`bsd export`: a session as one file, to read or to share."""

from __future__ import annotations

from pathlib import Path

import click

from bsd.actions.export import Exported, ExportFormat, export_session
from bsd.cli.call import BsdCommand, Call
from bsd.cli.options import session_argument
from bsd.cli.output import counted, note, say, size
from bsd.core.layout import SessionName


@click.command("export", cls=BsdCommand)
@session_argument
@click.option(
    "--format",
    "format_name",
    type=click.Choice([each.value for each in ExportFormat]),
    default="html",
    show_default=True,
)
@click.option("--redact", is_flag=True, help="Replace keys and passwords by `[redacted-RULE]`.")
@click.option("--dry-run", is_flag=True, help="List the keys and passwords; write nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write; default: SESSION.FORMAT in this directory.",
)
@click.pass_obj
def export_command(
    call: Call,
    /,
    session: SessionName,
    format_name: str,
    redact: bool,
    dry_run: bool,
    output: Path | None,
) -> None:
    """Write a session into one file, to read or to share.

    The file contains extracted values at their places, and the sessions of subagents at its end. An
    HTML file is self-contained: it needs no script and no network. `jsonl` has the lines as their
    program wrote them. If the session is gone, its copy in the archive is used.

    Before you share a file, use `--redact`: it replaces keys and passwords that have a known form.
    Read the rest yourself, since no rule finds every secret.

    \b
    Examples:
      bsd export main/4f2a
      bsd export main/4f2a --redact --dry-run
      bsd export main/4f2a --format md --redact -o session.md
    """
    form = ExportFormat(format_name)
    file = output or Path(f"{session.session}.{form}")
    with call.context(changes=False, session=session) as context:
        answer = export_session(context, session, form, file, redact=redact, dry_run=dry_run)
    call.answer(answer, tell_exported)


def tell_exported(done: Exported) -> None:
    for secret in done.secrets:
        say(f"  {secret.rule}  {secret.masked}  in {counted(secret.count, 'entry')}")
    many = counted(len(done.secrets), "secret")
    if done.secrets and not done.redact:
        note(f"{many} in it: `--redact` replaces them.")
    elif done.redact:
        say(f"{many} {'would be' if done.file is None else 'were'} replaced.")
    if done.unavailable:
        note(f"{counted(done.unavailable, 'value')} are lost: `bsd verify` says why.")
    for problem in done.problems:
        note(f"Left out: {problem}")
    beside = f", with {counted(len(done.sessions) - 1, 'sub-agent')}" if done.sessions[1:] else ""
    if done.file is None:
        say(f"{counted(done.entries, 'line')}{beside}. Nothing was written.")
    else:
        say(f"{done.file}: {size(done.bytes)}, {counted(done.entries, 'line')}{beside}")
