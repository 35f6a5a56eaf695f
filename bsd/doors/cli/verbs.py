"""Commands made from verbs: a session, then the verb's arguments, as words or options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import SESSION, BsdCommand, Call
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.output import print_json, say
from bsd.doors.tool_commands import KEYS
from bsd.foundation.answers import Answer
from bsd.foundation.definition import WingVerb
from bsd.verbs.names import NAMES
from bsd.verbs.verb import Argument, Verb, arguments_of, perform, verb_named

if TYPE_CHECKING:
    from bsd.foundation.layout import Layout, SessionName

Tell = Callable[[Any, "SessionName"], None]  # says to people what was answered
_H = TypeVar("_H")
_R = TypeVar("_R", bound=Answer)


class CallHands:
    """Who does it for whoever sits at the terminal; without `sleep` somebody only asks."""

    def __init__(self, call: Call, sleep: Callable[[float], None] | None = None) -> None:
        self._call = call
        self._sleep = sleep

    @property
    def layout(self) -> Layout:
        return self._call.layout

    def surgeon(self, name: SessionName, *, writes: bool) -> Any:
        if self._sleep is not None:
            return self._call.surgeon(writes=writes, sleep=self._sleep)
        self._call.say_whose(name.agent)
        return self._call.examiner()


def verb_command(
    name: str,
    tell: Tell | None = None,
    failed: Callable[[Any, Any], bool] = lambda _asked, _answer: False,
    types: Mapping[str, click.ParamType[Any]] | None = None,
) -> click.Command:
    """The command of the verb `name`.

    `failed` knows of arguments and answer whether the exit code tells of trouble; `types` reads
    arguments that the command line writes in a way of its own.
    """
    named, verb = NAMES[name], verb_named(name)

    def work(call: Call, session: SessionName, asked: Any, hands: CallHands) -> Any:
        entry = getattr(asked, "entry", None)
        if entry is None:
            return perform(verb, hands, session, asked)

        def of(one: str) -> Any:
            return perform(verb, hands, session, replace(asked, entry=one))

        return call.with_entry(session, entry, of)

    def act(call: Call, /, *, session: SessionName, **given: Any) -> int:
        asked = verb.arguments(**given)
        if verb.changes:
            with stop_request() as request:
                answer = work(call, session, asked, CallHands(call, request.sleep))
            code = request.exit_code
        else:
            answer, code = work(call, session, asked, CallHands(call)), 0
        if call.json:
            print_json(answer.as_json())
        else:
            (tell or _tell)(answer, session)
        return code or int(failed(asked, answer))

    assert named.command is not None  # noqa: S101 - only those are asked for
    return BsdCommand(
        named.command,
        callback=click.pass_obj(act),
        params=[
            click.Argument(["session"], type=SESSION, metavar="AGENT/SESSION"),
            *_parameters(verb.arguments, types or {}),
        ],
        help=_help(named.help, verb),
    )


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

    `own` are parameters that this door has in place of those made from arguments, by name (None:
    none). `opening` gives the handle with which it is done, for a call, whether it may change
    something, and what was given for the parameters `also`. `said` makes arguments of what was
    given, `failed` knows whether the exit code tells of trouble.
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
        params=[*also, *_parameters(verb.arguments, {}, own)],
        help=cleandoc(verb.about),
    )


def _help(line: str, verb: Verb[Any, Any]) -> str:
    title = "Example:" if len(verb.examples) == 1 else "Examples:"
    shown = "\n".join(["\b", title, *(f"  {one}" for one in verb.examples)])
    return f"{line}\n\n{cleandoc(verb.about)}\n\n{shown}"


def _parameters(
    arguments: Any,
    types: Mapping[str, click.ParamType[Any]],
    own: Mapping[str, click.Parameter | None] | None = None,
) -> list[click.Parameter]:
    hints = get_type_hints(arguments)
    found: list[click.Parameter] = []
    for name, (one, said) in arguments_of(arguments).items():
        if own and name in own:
            found += [] if (mine := own[name]) is None else [mine]
            continue
        kind = types.get(name) or _type(hints[name], said)
        required = one.default is MISSING
        if said.positional:
            more: dict[str, Any] = {"shell_complete": complete.entries} if name == "entry" else {}
            metavar = said.metavar
            found.append(
                click.Argument([name], type=kind, required=required, metavar=metavar, **more)
            )
        else:
            found.append(_option(name, kind, said, None if required else one.default, required))
    return found


def _option(name: str, kind: Any, said: Argument, default: Any, required: bool) -> click.Option:
    word = (said.names or {}).get("cli", name).replace("_", "-")
    if kind is bool:
        flag = f"--{word}/--no-{word}" if default else f"--{word}"
        return click.Option([flag, name], is_flag=True, default=bool(default), help=said.doc)
    more: dict[str, Any] = {"default": default, "show_default": True} if default else {}
    return click.Option(
        [f"--{word}", name],
        type=kind,
        required=required,
        metavar=said.metavar,
        help=said.doc,
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


def _tell(answer: Answer, _: SessionName) -> None:
    """Say what was answered, in its own words: one line a field."""
    for name, value in answer.as_json().items():
        say(f"{name.replace('_', ' ')}: {value}")
