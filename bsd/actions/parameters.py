"""What commands take: parameters made from the arguments of verbs, and those of agents' tools.

The command line is built of them; whoever finds a tool's command in a transcript (seeds 000 and
001) reads its words by the same, and knows how its answer begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, get_type_hints

import click

from bsd.core.definition import Argument, arguments_of
from bsd.core.errors import BsdError, Invalid

if TYPE_CHECKING:  # only the tab key needs it
    from click.shell_completion import CompletionItem

Items = list["CompletionItem[str]"]
Complete = Callable[[click.Context, click.Parameter, str], Items]
NONE: Mapping[str, Any] = {}


class _KeysType(click.ParamType[list[str]]):
    name = "KEY,…"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        return [key for key in (part.strip() for part in value.split(",")) if key]


KEYS = _KeysType()


def parameters(
    arguments: Any,
    *,
    types: Mapping[str, click.ParamType[Any]] = NONE,
    completed: Mapping[str, Complete] = NONE,
    own: Mapping[str, click.Parameter | None] = NONE,
) -> list[click.Parameter]:
    """What a command takes for the arguments of a verb, as words or options.

    By name: `types` read arguments that the command line writes in a way of its own; `completed`
    says what the tab key offers; `own` are parameters in place of those made here (None: none).
    """
    hints = get_type_hints(arguments)
    found: list[click.Parameter] = []
    for name, (one, said) in arguments_of(arguments).items():
        if name in own:
            found += [] if (mine := own[name]) is None else [mine]
            continue
        kind = types.get(name) or _type(hints[name], said)
        how: dict[str, Any] = {
            "required": one.default is MISSING,
            "metavar": said.metavar,
            "shell_complete": completed.get(name),
        }
        if said.positional:
            found.append(click.Argument([name], type=kind, **how))
        else:
            found.append(_option(name, kind, said, one.default, how))
    return found


def all_words(name: str) -> click.Argument:
    """An argument that is all the words that stand there."""
    return click.Argument(
        [name],
        nargs=-1,
        required=True,
        metavar="WORDS...",
        callback=lambda _context, _parameter, words: " ".join(words),
    )


def _option(
    name: str, kind: Any, said: Argument, default: Any, how: Mapping[str, Any]
) -> click.Option:
    word = (said.names or {}).get("cli", name).replace("_", "-")
    flags = word.split() if word.startswith("-") else [f"--{word}"]
    if kind is bool:
        flag = f"{flags[0]}/--no-{word}" if default is True else flags[0]
        return click.Option([flag, name], is_flag=True, default=default is True, help=said.doc)
    text, more = said.doc, {}
    if said.usual is not None:
        text, more = f"{text[:-1]} [{said.usual}].", {"default": said.usual}
    elif default not in {MISSING, None}:
        more = {"default": default, "show_default": bool(default)}
    return click.Option([*flags, name], type=kind, help=text, **how, **more)


def _type(annotation: Any, said: Argument) -> Any:
    """What click makes of a word."""
    if said.choices:
        return click.Choice(said.choices)
    if annotation in {int, int | None}:
        return click.IntRange(said.least, said.most)
    if annotation in {float, float | None}:
        return float
    if annotation in {tuple[str, ...], tuple[str, ...] | None}:
        return KEYS
    return bool if annotation is bool else str


# --- those of agents' tools ---


# How what is printed begins where the text alone was given; and where more is to come of it.
TEXT_ONLY = "Text only: "
AFTER_THE_TURN = "Text, and inline after the turn: "

ACTIONS = ("get_context", "restore", "set_extractable")
TOOLS = frozenset(("restore_remote", "purge_control"))


def tool_parameters(tool: str, sessions: Complete | None = None) -> list[click.Parameter]:
    """What may follow the name of a tool; `sessions` offers names of those to the tab key."""
    asks = (
        "AGENT/SESSION, or an id that only one agent has; default: that of the program that asks."
    )
    back = "Put it back, also if that must wait until the turn is over; or only print the text."
    session = _text("session", "SESSION", asks, shell_complete=sessions)
    restoring = [
        click.Option(["--inline/--text-only"], default=None, help=back),
        _text("offset", "N", "Where a long text goes on.", type=click.IntRange(min=0)),
    ]
    if tool == "restore_remote":
        return [
            session,
            _text("entry", "ENTRY", "The id in [[extracted-ENTRY]]."),
            _text("keys", "KEY,…", "Only these values; default: all.", type=KEYS),
            *restoring,
        ]
    return [
        click.Argument(["words"], nargs=-1, metavar="[ACTION] [ENTRY] [VALUE]"),
        _text("action", "ACTION", ", ".join(ACTIONS)),
        session,
        _text("entry", "ENTRY", "The id of the entry."),
        _text("keys", "KEY,…", "For restore: only these values.", type=KEYS),
        _text("value", "VALUE", "For set_extractable: true, false or a number."),
        *restoring,
    ]


def _text(name: str, metavar: str, help: str, **how: Any) -> click.Option:
    return click.Option([f"--{name}"], metavar=metavar, help=help, **how)


def read_words(tool: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Read the words after a command's name as the arguments of its tool, if they are that."""
    everywhere = [
        click.Option(["--root"], expose_value=False),
        click.Option(["--config"], expose_value=False),
        click.Option(["--json"], is_flag=True, expose_value=False),
    ]
    command = click.Command(tool, params=[*tool_parameters(tool), *everywhere])
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
