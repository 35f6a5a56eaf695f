"""How a command line of ours is parted: for start-up, and for calls that stand in a transcript."""

from __future__ import annotations

# Global options that are followed by a value.
_VALUED = ("--root", "--config", "--host")


def split_command(argv: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Part a command line into global options, the command's name and its own arguments."""
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _VALUED else 1
    name = argv[position] if position < len(argv) else None
    return argv[:position], name, argv[position + 1 :]
