"""Writes `command-line.md` from the commands' own help."""

from __future__ import annotations

import click
from markdown_text import anchor, code, heading, page, paragraphs, table

from bsd.cli.commands import SECTIONS
from bsd.cli.main import bsd

_INTRODUCTION = """\
`bsd COMMAND --help` prints the same as this page. The beginning of a name is enough where it is the
only one that begins so: `bsd show 4f2` shows the session `main/4f2a7c10-…`. With the completions in
`contrib/completions/` the tab key offers names.

`AGENT/SESSION` is the name of a session, `ENTRY` the id of an entry. If an entry's id is all digits
and no such id exists, it is a line number, counted from 0; `#n` is always a line number."""
_EXIT_CODES = {
    0: "done",
    1: "failed, or `bsd verify` has found a fault",
    2: "wrong usage",
    3: "no daemon is running (`bsd status`, `bsd service status`)",
    4: "a session is in use; the same call may succeed later",
    69: "something that is needed is not available",
    75: "a passing failure; everything is as it was",
    77: "no permission",
    78: "wrong configuration",
}


def command_page() -> str:
    """Return the page."""
    context = click.Context(bsd, info_name="bsd", **bsd.context_settings)
    parts = ["## Global options", _options(bsd, context)]
    parts.append("All commands take `--json`, `--root` and `--config` behind their own name, too.")
    for title, commands in SECTIONS.items():
        parts.append(heading(2, title, f"section-{anchor(title)}"))
        for name in commands:
            command = bsd.get_command(context, name)
            assert command is not None, name
            parts += _command(command, click.Context(command, context, name), 3)
    rows = [(code(str(number)), text) for number, text in _EXIT_CODES.items()]
    parts += ["## Exit codes", table(("Code", "Meaning"), rows)]
    return page("Command line", _INTRODUCTION, parts)


def _command(command: click.Command, context: click.Context, level: int) -> list[str]:
    """Return the parts of a command, and of those below it."""
    path = context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [
        heading(level, code(path), anchor(path)),
        *paragraphs(command.help or ""),
        f"Usage: {code(usage)}",
    ]
    if options := _options(command, context):
        parts.append(options)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            parts += _command(below, click.Context(below, context, name), level + 1)
    return parts


def _options(command: click.Command, context: click.Context) -> str:
    """Return a table of a command's options, without those that all commands have."""
    rows = [
        (code(record[0]), record[1])
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and (command is bsd or parameter.name != "json")
        and (record := parameter.get_help_record(context)) is not None
    ]
    return table(("Option", "Meaning"), rows) if rows else ""
