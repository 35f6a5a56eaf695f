"""The agent's tools of seeds 000 and 001 as commands: their words, and how their answers begin.

The command line serves them; whoever finds one in a transcript reads the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from bsd.foundation.errors import BsdError, Invalid

if TYPE_CHECKING:  # only the tab key needs it
    from click.shell_completion import CompletionItem

# How what is printed begins where the text alone was given; and where more is to come of it.
TEXT_ONLY = "Text only: "
AFTER_THE_TURN = "Text, and inline after the turn: "

ACTIONS = ("get_context", "restore", "set_extractable")
TOOLS = frozenset(("restore_remote", "purge_control"))

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]


class _KeysType(click.ParamType[list[str]]):
    name = "KEY,…"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        return [key for key in (part.strip() for part in value.split(",")) if key]


KEYS = _KeysType()


def parameters(tool: str, sessions: Complete | None = None) -> list[click.Parameter]:
    """What may follow the name of a tool; `sessions` offers names of those to the tab key."""
    session = click.Option(
        ["--session"],
        metavar="SESSION",
        help="AGENT/SESSION, or an id that only one agent has; default: that of the program that "
        "asks.",
        shell_complete=sessions,
    )
    restoring = [
        click.Option(
            ["--inline/--text-only"],
            default=None,
            help="Put it back, also if that must wait until the turn is over; or only print the "
            "text.",
        ),
        click.Option(
            ["--offset"],
            type=click.IntRange(min=0),
            metavar="N",
            help="Where a long text goes on.",
        ),
    ]
    if tool == "restore_remote":
        return [
            session,
            _text("entry", "ENTRY", "The id in [[extracted-ENTRY]]."),
            _text("keys", "KEY,…", "Only these values; default: all.", KEYS),
            *restoring,
        ]
    return [
        click.Argument(["words"], nargs=-1, metavar="[ACTION] [ENTRY] [VALUE]"),
        _text("action", "ACTION", ", ".join(ACTIONS)),
        session,
        _text("entry", "ENTRY", "The id of the entry."),
        _text("keys", "KEY,…", "For restore: only these values.", KEYS),
        _text("value", "VALUE", "For set_extractable: true, false or a number."),
        *restoring,
    ]


def _text(name: str, metavar: str, help: str, kind: Any = None) -> click.Option:
    return click.Option([f"--{name}"], metavar=metavar, help=help, type=kind)


def read_words(tool: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Read the words after a command's name as the arguments of its tool, if they are that."""
    everywhere = [
        click.Option(["--root"], expose_value=False),
        click.Option(["--config"], expose_value=False),
        click.Option(["--json"], is_flag=True, expose_value=False),
    ]
    command = click.Command(tool, params=[*parameters(tool), *everywhere])
    try:
        given = dict(command.make_context(tool, list(words)).params)
        read = named(given.pop("words", ()), given)
    except (click.ClickException, click.exceptions.Exit, BsdError):
        return None
    return {name: value for name, value in read.items() if value is not None}


def named(words: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    """Give words that stand alone the names of what they are; raises Invalid for too many."""
    rest, found = list(words), dict(given)

    def take(name: str) -> None:
        found[name] = found[name] or (rest.pop(0) if rest else None)

    if "action" in found:
        take("action")
        found["action"] = found["action"] or ""
        if found["action"] != "get_context":
            take("entry")
        if found["action"] == "set_extractable":
            take("value")
    if rest and found["action"] in ACTIONS:
        raise Invalid(f"{rest[0]!r} is one word too many", hint="`bsd purge_control --help`")
    return found
