"""Commands made from verbs: a session, then the verb's arguments, as words or options."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from inspect import cleandoc
from typing import Any

import click

from bsd.actions.parameters import parameters
from bsd.actions.verb import Verb, arguments_of, perform, verb_named
from bsd.cli import completion
from bsd.cli.call import LONGEST_WAIT, Call, StopRequest, stop_request
from bsd.cli.completion import SESSION, say_whose, with_entry
from bsd.cli.output import note
from bsd.cli.verb_words import WORDS, VerbWords
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.verb_names import NAMES
from bsd.maintenance.trash import Trash

_WORTH_A_WORD = 4 << 20  # bytes to read
_COMPLETED = {"entry": completion.entries, "agent": completion.agents}


class CallHands:
    """Who does it for whoever sits at the terminal; without `request` somebody only asks.

    `wait` knows for how many seconds a session in use is waited for. With `ends_early`, a request
    to stop is only told when it is asked for (`stopping`).
    """

    def __init__(
        self,
        call: Call,
        request: StopRequest | None = None,
        *,
        actor: str = "cli",
        wait: Callable[[SessionName], float] = lambda _: LONGEST_WAIT,
        ends_early: bool = False,
    ) -> None:
        self._ends_early = ends_early
        self.actor = actor
        self.call = call
        self._request = request
        self._wait = wait
        self._percent: int | None = None  # that was said last

    @property
    def layout(self) -> Layout:
        return self.call.layout

    @property
    def config(self) -> ConfigService:
        return self.call.pruning

    def surgeon(self, name: SessionName, *, writes: bool) -> Any:
        if self._request is not None:
            wait, sleep = self._wait(name) if writes else 0.0, self._request.sleep
            return self.call.surgeon(writes=writes, actor=self.actor, wait=wait, sleep=sleep)
        say_whose(self.layout, name.agent)
        return self.call.queries()

    def trash(self, *, writes: bool) -> Trash:
        """The trash; whoever writes begins by finishing or undoing what an earlier call left."""
        call, keep = self.call, self.call.pruning.current.trash_retention
        if not writes:
            call.log(writes=False)
            return Trash(call.layout, keep)
        surgeon = call.surgeon(sleep=self._request.sleep if self._request else time.sleep)
        return Trash(call.layout, keep, budget=surgeon.budget)

    def clock(self) -> float:
        return time.time()

    def progressed(self, done: int, of: int | None = None) -> None:
        """Stop if somebody has asked for that; say to whom sits there how far it is."""
        if self._request is not None and not self._ends_early:
            self._request.check()
        if of is None or of < _WORTH_A_WORD or not sys.stderr.isatty():
            return
        if (percent := 100 * done // of) != self._percent:
            self._percent = percent
            doing = "Searching everything" if self._ends_early else "Reading what is new"
            sys.stderr.write(f"\r{doing}: {percent} %")
            sys.stderr.flush()

    def finished(self) -> None:
        """End the line that says how far it is."""
        if self._percent is not None:
            note("")

    def stopping(self) -> bool:
        return self._request is not None and self._request.number is not None

    def cleaned(self) -> None: ...


def carry_out(
    call: Call,
    verb: Verb[Any, Any],
    session: SessionName | None,
    asked: Any,
    words: VerbWords,
    **more: Any,
) -> int:
    """Do a verb for whoever sits at the terminal, and tell of it; returns the exit code.

    An entry may be named by how its id begins. `more` is for `words.begin`.
    """
    early = words.ends_early(asked)
    with stop_request() if verb.changes or early else nullcontext() as request:
        hands = CallHands(call, request, ends_early=early)
        try:
            answer = _answer(hands, verb, session, words.begin(hands, session, asked, **more))
        finally:
            hands.finished()
    call.answer(answer, lambda told: words.tell(told, session))
    return (request.exit_code if request else 0) or int(words.failed(asked, answer))


def _answer(hands: CallHands, verb: Verb[Any, Any], session: SessionName | None, asked: Any) -> Any:
    entry = getattr(asked, "entry", None)
    if session is None or entry is None:
        return perform(verb, hands, session, asked)

    def of(one: str) -> Any:
        return perform(verb, hands, session, replace(asked, entry=one))

    return with_entry(hands.call, session, entry, of)


def verb_command(
    name: str, words: VerbWords | None = None, *, called: str | None = None, line: str = ""
) -> click.Command:
    """The command of the verb `name`; without `words` those that are known of it.

    `called`: its name, and `line` its one line of help, where these are not said with the verb's.
    """
    named, verb = NAMES[name], verb_named(name)
    words = words or WORDS.get(name) or VerbWords()
    known = arguments_of(verb.arguments)

    def act(call: Call, /, *, session: SessionName | None = None, **given: Any) -> int:
        more = {one: given.pop(one) for one in set(given) - set(known)}
        return carry_out(call, verb, session, verb.arguments(**given), words, **more)

    one = click.Argument(["session"], type=SESSION, metavar="AGENT/SESSION")
    completed = {**_COMPLETED, **words.completed}
    return words.kind(
        called or named.command,
        callback=click.pass_obj(act),
        params=[
            *([one] if verb.ask is None else []),
            *parameters(verb.arguments, types=words.types, completed=completed, own=words.own),
            *words.also,
        ],
        help=_help(line or named.help, verb),
    )


def _help(line: str, verb: Verb[Any, Any]) -> str:
    if not verb.about:
        return line
    title = "Example:" if len(verb.examples) == 1 else "Examples:"
    shown = "\n".join(["\b", title, *(f"  {one}" for one in verb.examples)])
    return f"{line}\n\n{cleandoc(verb.about)}\n\n{shown}"
