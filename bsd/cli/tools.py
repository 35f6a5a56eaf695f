"""`bsd restore_remote` and `bsd purge_control`: the agent's tools of seeds 000 and 001."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.cli.call import KEYS, Call, command
from bsd.cli.output import print_json, say

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName

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
    name = _session(call, session)
    return _restore(call, name, _needed("entry", entry, "is required"), keys)


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
    from bsd.foundation.errors import Invalid

    rest = list(words)
    action = action or (rest.pop(0) if rest else None)
    if action not in _ACTIONS:
        raise Invalid(
            f"Unknown action '{action or ''}'. Valid actions: {', '.join(_ACTIONS)}",
            hint="`bsd purge_control --help`",
        )
    if action != "get_context":
        entry = entry or (rest.pop(0) if rest else None)
    if action == "set_extractable":
        value = value or (rest.pop(0) if rest else None)
    if rest:
        raise Invalid(f"{rest[0]!r} is one word too many", hint="`bsd purge_control --help`")
    name = _session(call, session)
    if action == "get_context":
        _get_context(call, name)
        return 0
    entry = _needed("entry", entry, f"is required for {action} action")
    if action == "restore":
        return _restore(call, name, entry, keys)
    needed = "is required for set_extractable action (true, false, or integer)"
    return _set_extractable(call, name, entry, _needed("value", value, needed))


def _session(call: Call, text: str | None) -> SessionName:
    from bsd.cli.names import find_session

    return find_session(call.layout, _needed("session", text, "is required"))


def _needed(name: str, value: str | None, why: str) -> str:
    from bsd.foundation.errors import Invalid

    if not value:
        raise Invalid(f"{name} parameter {why}", hint=f"--{name} {name.upper()}")
    return value


def _get_context(call: Call, name: SessionName) -> None:
    found = call.surgeon(writes=False, actor="agent").context(name)
    if call.json:
        print_json(found)
        return
    say(f"Session: {name}")
    say(f"Total entries: {found['total_entries']}")
    say(f"Extracted entries: {found['extracted_entries']}")
    say("\nExtracted entry IDs:")
    say("\n".join(f"  - {entry}" for entry in found["extracted_ids"]) or "  (none)")


def _restore(call: Call, name: SessionName, entry: str, keys: list[str] | None) -> int:
    from bsd.cli.interrupt import stop_request

    with stop_request() as request:
        surgeon = call.surgeon(actor="agent", sleep=request.sleep)
        answer = surgeon.restore(name, entry, keys)
    if call.json:
        print_json(answer)
    else:
        _tell(answer)
    return request.exit_code


def _tell(answer: dict[str, Any]) -> None:
    keys: list[str] = answer["keys_restored"]
    say(f"Restored {len(keys)} keys for entry {answer['entry_id']}")
    if keys:
        say(f"Keys: {', '.join(keys)}")
    for key, why in answer.get("unavailable", {}).items():
        say(f"{key}: {why}")
    if "suggestion" in answer:
        say(f"Previously restored at {answer['previous_restored_at']}. {answer['suggestion']}")


def _set_extractable(call: Call, name: SessionName, entry: str, value: str) -> int:
    from bsd.cli.interrupt import stop_request
    from bsd.cli.set_extractable import read_extractable

    wanted = read_extractable(value)
    with stop_request() as request:
        surgeon = call.surgeon(actor="agent", sleep=request.sleep)
        answer = surgeon.set_extractable(name, entry, wanted)
    if call.json:
        print_json(answer)
    else:
        say(f"Set _extractable={value.lower()} for entry {answer['entry_id']}")
    return request.exit_code
