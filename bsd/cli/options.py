"""Arguments and options that several commands have."""

from __future__ import annotations

import click

from bsd.cli import completion

session_argument = click.argument("session", type=completion.SESSION, metavar="AGENT/SESSION")
sessions_argument = click.argument(
    "sessions", nargs=-1, type=completion.SESSION, metavar="[AGENT/SESSION]..."
)
entry_argument = click.argument("entry", metavar="ENTRY", shell_complete=completion.entries)
agent_option = click.option(
    "--agent",
    metavar="AGENT",
    shell_complete=completion.agents,
    help="Only the sessions of this agent.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
