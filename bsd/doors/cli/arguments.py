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

from bsd.doors.cli import complete
from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.output import print_json
from bsd.doors.tool_commands import KEYS
from bsd.foundation.answers import Answer
from bsd.foundation.definition import Argument, WingVerb, arguments_of

_H = TypeVar("_H")
_R = TypeVar("_R", bound=Answer)
_COMPLETED = {"entry": complete.entries, "id": complete.trash}  # what the tab key offers


def parameters(
    arguments: Any,
    types: Mapping[str, click.ParamType[Any]],
    own: Mapping[str, click.Parameter | None] | None = None,
) -> list[click.Parameter]:
    """What a command takes for the arguments of a verb, as words or options.

    `types` read arguments that the command line writes in a way of its own; `own` are parameters
    in place of those made here, by name (None: none).
    """
    hints = get_type_hints(arguments)
    found: list[click.Parameter] = []
    for name, (one, said) in arguments_of(arguments).items():
        if own and name in own:
            found += [] if (mine := own[name]) is None else [mine]
            continue
        kind = types.get(name) or _type(hints[name], said)
        required = one.default is MISSING
        if said.positional:
            found.append(
                click.Argument(
                    [name],
                    type=kind,
                    required=required,
                    metavar=said.metavar,
                    shell_complete=_COMPLETED.get(name),
                )
            )
        else:
            found.append(_option(name, kind, said, None if required else one.default, required))
    return found


def _option(name: str, kind: Any, said: Argument, default: Any, required: bool) -> click.Option:
    word = (said.names or {}).get("cli", name).replace("_", "-")
    if kind is bool:
        flag = f"--{word}/--no-{word}" if default else f"--{word}"
        return click.Option([flag, name], is_flag=True, default=bool(default), help=said.doc)
    text, more = said.doc, {}
    if said.usual is not None:
        text, more = f"{text[:-1]} [{said.usual}].", {"default": said.usual}
    elif default is not None:
        more = {"default": default, "show_default": bool(default)}
    return click.Option(
        [f"--{word}", name],
        type=kind,
        required=required,
        metavar=said.metavar,
        help=text,
        **more,
    )


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
    own: Mapping[str, click.Parameter | None] | None = None,
    also: Sequence[click.Parameter] = (),
    said: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given,
    failed: Callable[[_R], bool] = lambda _: False,
) -> click.Command:
    """The command `name` of a verb of a wing; `tell` says to people what was answered.

    `own`: see `parameters`. `opening` gives the handle with which it is done, for a call, whether
    it may change something, and what was given for the parameters `also`. `said` makes arguments of
    what was given, `failed` knows whether the exit code tells of trouble.
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
        params=[*also, *parameters(verb.arguments, {}, own)],
        help=cleandoc(verb.about),
    )
