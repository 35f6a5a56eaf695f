"""`bsd restore_remote` and `bsd purge_control`: the agent's tools of seeds 000 and 001."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.cli.call import KEYS, LONGEST_WAIT, Call, command
from bsd.cli.output import print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bsd.foundation.layout import Layout, SessionName
    from bsd.surgeon import Surgeon

_SHORT_WAIT = 1.0
_ACTIONS = ("get_context", "restore", "set_extractable")
_SESSION = click.option(
    "--session", metavar="SESSION", help="AGENT/SESSION, or an id that only one agent has."
)


@command(
    "restore_remote",
    """
    \b
    Example:
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys content,output
    """,
)
@_SESSION
@click.option("--entry", metavar="ENTRY", help="The id in [[extracted-ENTRY]].")
@click.option("--keys", type=KEYS, metavar="KEY,…", help="Only these values; default: all.")
@click.pass_obj
def restore_remote(
    call: Call, /, session: str | None, entry: str | None, keys: list[str] | None
) -> int:
    return _carry_out(call, "restore_remote", {"session": session, "entry": entry, "keys": keys})


@command(
    "purge_control",
    """
    Arguments may stand in any order; --action and --entry name them, if you like that better.

    \b
    Examples:
      bsd purge_control get_context --session 4f2a
      bsd purge_control restore 1c556fa0 --session 4f2a --keys output
      bsd purge_control set_extractable 1c556fa0 false --session 4f2a
      bsd purge_control --action restore --session main/4f2a --entry 1c556fa0
    """,
)
@click.argument("words", nargs=-1, metavar="[ACTION] [ENTRY] [VALUE]")
@click.option("--action", metavar="ACTION", help=", ".join(_ACTIONS))
@_SESSION
@click.option("--entry", metavar="ENTRY", help="The id of the entry.")
@click.option("--keys", type=KEYS, metavar="KEY,…", help="For restore: only these values.")
@click.option("--value", metavar="VALUE", help="For set_extractable: true, false or a number.")
@click.pass_obj
def purge_control(
    call: Call,
    /,
    words: tuple[str, ...],
    action: str | None,
    session: str | None,
    entry: str | None,
    keys: list[str] | None,
    value: str | None,
) -> int:
    named = {"action": action, "session": session, "entry": entry, "keys": keys, "value": value}
    return _carry_out(call, "purge_control", _named(words, named))


def read_words(tool: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Read the words after a command's name as the arguments of its tool, if they are that."""
    from bsd.foundation.errors import BsdError

    commands = {"restore_remote": restore_remote, "purge_control": purge_control}
    try:
        given = dict(commands[tool].make_context(tool, list(words), obj=Call()).params)
        read = _named(given.pop("words", ()), given)
    except (click.ClickException, click.exceptions.Exit, BsdError):
        return None
    return {name: value for name, value in read.items() if value is not None}


def _named(words: Sequence[str], named: dict[str, Any]) -> dict[str, Any]:
    """Give words that stand alone the names of what they are."""
    from bsd.foundation.errors import Invalid

    rest, given = list(words), dict(named)

    def take(name: str) -> None:
        given[name] = given[name] or (rest.pop(0) if rest else None)

    if "action" in given:
        take("action")
        given["action"] = given["action"] or ""
        if given["action"] != "get_context":
            take("entry")
        if given["action"] == "set_extractable":
            take("value")
    if rest and given["action"] in _ACTIONS:
        raise Invalid(f"{rest[0]!r} is one word too many", hint="`bsd purge_control --help`")
    return given


def _carry_out(call: Call, tool: str, given: dict[str, Any]) -> int:
    from bsd.agent.arguments import GetContext
    from bsd.agent.scope import Scope
    from bsd.agent.tools import carry_out, read_call
    from bsd.cli.interrupt import stop_request
    from bsd.foundation.errors import Invalid

    if not given["session"]:
        raise Invalid("session parameter is required", hint="--session AGENT/SESSION")
    given = {name: value for name, value in given.items() if value is not None}
    asked = read_call(tool, given)
    name = Scope().find(call.layout, asked.session)
    if isinstance(asked.deed, GetContext):
        _tell(call, given, carry_out(asked, name, _Hands(call)))
        return 0
    with stop_request() as request:
        answer = carry_out(asked, name, _Hands(call, request.sleep))
    _tell(call, given, answer)
    return request.exit_code


class _Hands:
    def __init__(self, call: Call, sleep: Callable[[float], None] | None = None) -> None:
        self._call = call
        self._sleep = sleep

    @property
    def layout(self) -> Layout:
        return self._call.layout

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:
        wait = wait_for(self.layout, name)
        return self._call.surgeon(writes=writes, actor="agent", wait=wait, sleep=self._sleep)


def wait_for(layout: Layout, name: SessionName) -> float:
    """How many seconds to wait for a session: an agent's own run does not end while it waits."""
    from bsd.operation import in_run

    return _SHORT_WAIT if in_run(layout, name) else LONGEST_WAIT


def _tell(call: Call, given: dict[str, Any], answer: dict[str, Any]) -> None:
    """Say what came of it, in the originals' words."""
    if call.json:
        print_json(answer)
    elif "keys_restored" in answer:
        _tell_restored(answer)
    elif "extracted_ids" in answer:
        say(f"Session: {answer['session']}")
        say(f"Total entries: {answer['total_entries']}")
        say(f"Extracted entries: {answer['extracted_entries']}")
        say("\nExtracted entry IDs:")
        say("\n".join(f"  - {entry}" for entry in answer["extracted_ids"]) or "  (none)")
    else:
        say(f"Set _extractable={given['value'].lower()} for entry {answer['entry_id']}")


def _tell_restored(answer: dict[str, Any]) -> None:
    keys: list[str] = answer["keys_restored"]
    say(f"Restored {len(keys)} keys for entry {answer['entry_id']}")
    if keys:
        say(f"Keys: {', '.join(keys)}")
    for key, why in answer.get("unavailable", {}).items():
        say(f"{key}: {why}")
    if "suggestion" in answer:
        say(f"Previously restored at {answer['previous_restored_at']}. {answer['suggestion']}")
