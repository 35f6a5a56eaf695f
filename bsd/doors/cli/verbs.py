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
from bsd.doors.cli.names import say_whose, with_entry
from bsd.doors.cli.output import print_json
from bsd.doors.cli.verb_words import WORDS, VerbWords
from bsd.doors.tool_commands import KEYS
from bsd.foundation.answers import Answer
from bsd.foundation.definition import WingVerb
from bsd.verbs.names import NAMES
from bsd.verbs.verb import Argument, Verb, arguments_of, perform, verb_named

if TYPE_CHECKING:
    from bsd.foundation.layout import Layout, SessionName

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
        say_whose(self.layout, name.agent)
        return self._call.examiner()


def verb_command(name: str, words: VerbWords | None = None) -> click.Command:
    """The command of the verb `name`; without `words` those that are known of it."""
    named, verb = NAMES[name], verb_named(name)
    words = words or WORDS.get(name) or VerbWords()

    def work(call: Call, session: SessionName | None, asked: Any, hands: CallHands) -> Any:
        entry = getattr(asked, "entry", None)
        if session is None or entry is None:
            return perform(verb, hands, session, asked)

        def of(one: str) -> Any:
            return perform(verb, hands, session, replace(asked, entry=one))

        return with_entry(call, session, entry, of)

    def act(call: Call, /, *, session: SessionName | None = None, **given: Any) -> int:
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
            words.tell(answer, session)
        return code or int(words.failed(asked, answer))

    assert named.command is not None  # noqa: S101 - only those are asked for
    one = click.Argument(["session"], type=SESSION, metavar="AGENT/SESSION")
    return BsdCommand(
        named.command,
        callback=click.pass_obj(act),
        params=[
            *([one] if verb.ask is None else []),
            *_parameters(verb.arguments, words.types),
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
    text, more = said.doc, {}
    if said.usual is not None:
        text, more = f"{text[:-1]} [{said.usual}].", {"default": said.usual}
    elif default:
        more = {"default": default, "show_default": True}
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
