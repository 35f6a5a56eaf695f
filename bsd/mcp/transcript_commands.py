"""Finds and parses bsd commands that an agent ran in a shell, in a transcript.

In seeds 000 and 001, agents call tools as `bsd restore_remote …` and `bsd purge_control …`. The
options below are those of these commands (`cli/agent_tools`); a test compares them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from bsd.core.errors import BsdError, Invalid
from bsd.mcp.arguments import PURGE_ACTIONS, split_list

# Prefixes of the commands' output: only the text, or the text and a later restore.
TEXT_ONLY = "Text only: "
AFTER_THE_TURN = "Text, and inline after the turn: "

# Command → the equivalent tool.
_TOOLS: Mapping[str, str] = {
    "restore_remote": "restore_remote",
    "purge_control": "purge_control",
    "restore": "restore",
}
_GLOBAL_OPTIONS_WITH_VALUE = ("--root", "--config", "--host")
_SEPARATORS = re.compile(r"&&|\|\||[;|&\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command of bsd that a shell ran."""

    tool: str  # the equivalent tool
    alone: bool  # the shell command contains no other command
    arguments: dict[str, Any] | None = None  # of the tool; None if they cannot be parsed


def find_shell_command(command: Any) -> ShellCommand | None:
    """Return the first bsd command in a shell command, given as a string or a list of words."""
    if isinstance(command, list):
        pieces = [[word for word in command if isinstance(word, str)]]
    elif isinstance(command, str):
        pieces = [_split_words(piece) for piece in _SEPARATORS.split(command)]
    else:
        return None
    pieces = [piece for piece in pieces if piece]
    for piece in pieces:
        words = list(piece)
        while words and _ASSIGNMENT.match(words[0]):  # an environment variable
            del words[0]
        if words and words[0].rpartition("/")[2] == "bsd":
            name, rest = _split_command(words[1:])
            if name in _TOOLS:
                return ShellCommand(_TOOLS[name], len(pieces) == 1, _read_options(name, rest))
    return None


def _split_words(piece: str) -> list[str]:
    try:
        return shlex.split(piece)
    except ValueError:  # unbalanced quotes: a separator was between them
        return piece.split()


def _split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of a command and the words after it; global options may come before."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in _GLOBAL_OPTIONS_WITH_VALUE else 1
    return words[position] if position < len(words) else "", list(words[position + 1 :])


def _read_options(name: str, words: list[str]) -> dict[str, Any] | None:
    """Convert the words after a command's name to arguments of its tool; None if invalid."""
    if name not in _COMMANDS:
        return None
    try:
        given = dict(_COMMANDS[name].make_context(name, words).params)
        if name == "purge_control":
            given = name_words(given.pop("words"), given)
    except (click.ClickException, click.exceptions.Exit, BsdError):
        return None
    return {key: value for key, value in given.items() if value is not None}


def name_words(words: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `purge_control`; some may be given as words without an option.

    Raises:
        Invalid: there are too many words.
    """
    rest, named = list(words), dict(given)

    def take(name: str) -> None:
        named[name] = named[name] or (rest.pop(0) if rest else None)

    take("action")
    named["action"] = named["action"] or ""
    if named["action"] != "get_context":
        take("entry")
    if named["action"] == "set_extractable":
        take("value")
    if rest and named["action"] in PURGE_ACTIONS:
        raise Invalid(f"{rest[0]!r} is a word too many", hint="`bsd purge_control --help`")
    return named


def _command(name: str, *more: click.Parameter) -> click.Command:
    return click.Command(
        name,
        params=[
            *more,
            click.Option(["--session"]),
            click.Option(["--entry"]),
            click.Option(["--keys"], callback=lambda _context, _option, keys: split_list(keys)),
            click.Option(["--inline/--text-only"], default=None),
            click.Option(["--offset"], type=click.IntRange(min=0)),
            click.Option(["--root"], expose_value=False),
            click.Option(["--config"], expose_value=False),
            click.Option(["--json"], is_flag=True, expose_value=False),
        ],
    )


_COMMANDS: Mapping[str, click.Command] = {
    "restore_remote": _command("restore_remote"),
    "purge_control": _command(
        "purge_control",
        click.Argument(["words"], nargs=-1),
        click.Option(["--action"]),
        click.Option(["--value"]),
    ),
}
