"""Commands made from verbs: a session, then the verb's arguments, as words or options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli.arguments import parameters
from bsd.doors.cli.call import LONGEST_WAIT, SESSION, BsdCommand, Call
from bsd.doors.cli.interrupt import StopRequest, stop_request
from bsd.doors.cli.output import print_json, say
from bsd.foundation.answers import Answer
from bsd.verbs.names import NAMES
from bsd.verbs.verb import Verb, perform, verb_named

if TYPE_CHECKING:
    from bsd.care.trash import Trash
    from bsd.foundation.layout import Layout, SessionName
    from bsd.foundation.pruning_config import ConfigService

Tell = Callable[[Any, "SessionName"], None]  # says to people what was answered


class CallHands:
    """Who does it for whoever sits at the terminal; without `request` somebody only asks.

    `wait` knows for how many seconds a session in use is waited for.
    """

    def __init__(
        self,
        call: Call,
        request: StopRequest | None = None,
        *,
        actor: str = "cli",
        wait: Callable[[SessionName], float] = lambda _: LONGEST_WAIT,
    ) -> None:
        self.actor = actor
        self._call = call
        self._request = request
        self._wait = wait

    @property
    def layout(self) -> Layout:
        return self._call.layout

    @property
    def config(self) -> ConfigService:
        return self._call.pruning

    def surgeon(self, name: SessionName, *, writes: bool) -> Any:
        if self._request is not None:
            wait, sleep = self._wait(name) if writes else 0.0, self._request.sleep
            return self._call.surgeon(writes=writes, actor=self.actor, wait=wait, sleep=sleep)
        self._call.say_whose(name.agent)
        return self._call.queries()

    def trash(self, *, writes: bool) -> Trash:
        """The trash; whoever writes begins by finishing or undoing what an earlier call left."""
        from bsd.care.trash import Trash
        from bsd.session.rest import Patience

        call, sleep = self._call, self._request.sleep if self._request else time.sleep
        if writes:
            call.surgeon(sleep=sleep)
        else:
            call.log(writes=False)
        quiet = call.settings.quiet_seconds if call.settings else 2.0
        keep = call.pruning.current.trash_retention
        return Trash(call.layout, keep, patience=Patience(LONGEST_WAIT, quiet, sleep=sleep))

    def clock(self) -> float:
        return time.time()

    def progressed(self, _: int) -> None: ...

    def stopping(self) -> bool:
        return self._request is not None and self._request.number is not None

    def cleaned(self) -> None: ...


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
                answer = work(call, session, asked, CallHands(call, request))
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
            *parameters(verb.arguments, types or {}),
        ],
        help=_help(named.help, verb),
    )


def _help(line: str, verb: Verb[Any, Any]) -> str:
    title = "Example:" if len(verb.examples) == 1 else "Examples:"
    shown = "\n".join(["\b", title, *(f"  {one}" for one in verb.examples)])
    return f"{line}\n\n{cleandoc(verb.about)}\n\n{shown}"


def _tell(answer: Answer, _: SessionName) -> None:
    """Say what was answered, in its own words: one line a field."""
    for name, value in answer.as_json().items():
        say(f"{name.replace('_', ' ')}: {value}")
