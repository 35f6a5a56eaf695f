"""What commands take, made from the arguments of verbs; and the commands of the wings' verbs.

Apart from `verbs`: who asks for facts or workspaces loads nothing of sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING
from inspect import cleandoc
from typing import Any, TypeVar, get_type_hints

import click

from bsd.doors.cli.call import BsdCommand, Call, Complete
from bsd.doors.cli.output import print_json
from bsd.doors.tool_commands import KEYS
from bsd.foundation.definition import Answer, Argument, WingVerb, arguments_of

_H = TypeVar("_H")
_R = TypeVar("_R", bound=Answer)
_NONE: Mapping[str, Any] = {}


def parameters(
    arguments: Any,
    *,
    types: Mapping[str, click.ParamType[Any]] = _NONE,
    completed: Mapping[str, Complete] = _NONE,
    own: Mapping[str, click.Parameter | None] = _NONE,
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


def all_words(name: str, metavar: str = "WORDS...") -> click.Argument:
    """An argument that is all the words that stand there."""
    return click.Argument(
        [name],
        nargs=-1,
        required=True,
        metavar=metavar,
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


def wing_command(
    verb: WingVerb[_H, Any, _R],
    name: str,
    opening: Callable[..., AbstractContextManager[_H]],
    tell: Callable[[_R], None],
    *,
    completed: Mapping[str, Complete] = _NONE,
    own: Mapping[str, click.Parameter | None] = _NONE,
    also: Sequence[click.Parameter] = (),
    said: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given,
    failed: Callable[[_R], bool] = lambda _: False,
) -> click.Command:
    """The command `name` of a verb of a wing; `tell` says to people what was answered.

    `completed`, `own`: see `parameters`. `opening` gives the handle with which it is done, for a
    call, whether it may change something, and what was given for the parameters `also`. `said`
    makes arguments of what was given, `failed` knows whether the exit code tells of trouble.
    """

    def act(call: Call, /, **given: Any) -> int:
        more = {str(one.name): given.pop(str(one.name)) for one in also}
        known = {name: value for name, value in given.items() if value is not None}
        asked = verb.arguments(**said(known))
        with opening(call, verb.will_change(asked), **more) as handle:
            answer = verb.act(handle, asked)
        if call.json:
            print_json(answer.as_json())
        else:
            tell(answer)
        return int(failed(answer))

    return BsdCommand(
        name,
        callback=click.pass_obj(act),
        params=[*also, *parameters(verb.arguments, completed=completed, own=own)],
        help=cleandoc(verb.about),
    )
