"""The help of each command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bsd.cli.main import bsd
from tests.golden.book import check


def test_help() -> None:
    check("help", {name: text.splitlines() for name, text in _pages(bsd, None, "bsd")})


def _pages(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, str]]:
    how = {**command.context_settings, "terminal_width": 80}
    context = click.Context(command, info_name=name, parent=parent, **how)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from _pages(found, context, inner)
