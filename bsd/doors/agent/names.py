"""Which calls in a transcript are calls of our tools: by name, and by the commands of a shell."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from bsd.doors.agent.tools import TOOLS
from bsd.doors.command_line import split_command
from bsd.doors.tool_commands import TOOLS as COMMANDS
from bsd.doors.tool_commands import read_words
from bsd.surgery.targets import ACTIONS

# Of our other names nobody else has a tool.
_ANYBODYS = frozenset(("restore", "context"))
_UNMISTAKABLE = frozenset(TOOLS) - _ANYBODYS
_PREFIX = "bsd_"  # as some clients write what others write as `mcp__bsd__`
# What our commands do, as the tool that does the same.
_COMMANDS = {**{name: name for name in COMMANDS}, "restore": "restore"}
_SEPARATORS = re.compile(r"&&|\|\||[;|&\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# Bytes without which a line holds no such call. Few, since a first look searches whole files.
NEEDLES = (
    b"restore",
    b'context"',
    *(name.encode() for name in sorted(_UNMISTAKABLE) if "restore" not in name),
)


def own_tool_name(name: str, arguments: Any) -> str | None:
    """Return which of our tools a call means, under whatever prefix an MCP client gave it."""
    prefix, _, bare = name.rpartition("__")
    if not prefix and bare.startswith(_PREFIX):
        prefix, bare = _PREFIX, bare.removeprefix(_PREFIX)
    if bare in _UNMISTAKABLE:
        return bare
    if bare not in _ANYBODYS:
        return None
    if prefix:
        ours = "bsd" in prefix.lower() or "brainsurgeon" in prefix.lower()
    elif bare == "restore":
        known = isinstance(arguments, dict) and bool(arguments)
        ours = not known or not {"entry_id", "entry", "keys"}.isdisjoint(arguments)
    else:
        ours = isinstance(arguments, dict) and arguments.get("action") in ACTIONS
    return bare if ours else None


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of ours that a shell has run."""

    tool: str
    alone: bool  # the shell was asked for nothing else
    arguments: dict[str, Any] | None = None  # if they can be read


def ran_by_shell(command: Any) -> Ran | None:
    """Return what of ours a command is, given to a shell as a text or as words; None: nothing."""
    if isinstance(command, list):
        pieces = [[word for word in command if isinstance(word, str)]]
    elif isinstance(command, str):
        pieces = [_words(piece) for piece in _SEPARATORS.split(command)]
    else:
        return None
    pieces = [piece for piece in pieces if piece]
    for piece in pieces:
        while piece and _ASSIGNMENT.match(piece[0]):
            piece = piece[1:]  # noqa: PLW2901 - what a shell takes for the environment
        if piece and piece[0].rpartition("/")[2] == "bsd":
            _, ours, words = split_command(piece[1:])
            if ours in _COMMANDS:
                read = read_words(ours, words) if ours in COMMANDS else None
                return Ran(_COMMANDS[ours], len(pieces) == 1, read)
    return None


def _words(piece: str) -> list[str]:
    try:
        return shlex.split(piece)
    except ValueError:  # quotes that do not match: a separator stood between them
        return piece.split()
