"""`bsd restore_remote` and `bsd purge_control`: the agent's tools of seeds 000 and 001."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import LONGEST_WAIT, Call, command
from bsd.doors.cli.output import print_json, say
from bsd.doors.tool_commands import AFTER_THE_TURN, TEXT_ONLY, named, parameters

if TYPE_CHECKING:
    from collections.abc import Collection

    from bsd.doors.agent.tools import Asked
    from bsd.foundation.layout import Layout, SessionName


@command(
    "restore_remote",
    """
    Prints the text, whoever is using the session, 40,000 characters at a time; it is put back
    inline as well, unless the session is in use.

    \b
    Examples:
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys content,output
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys output --offset 40000
    """,
)
@click.pass_obj
def restore_remote(call: Call, /, **given: Any) -> int:
    return _carry_out(call, "restore_remote", given)


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
@click.pass_obj
def purge_control(call: Call, /, words: tuple[str, ...], **given: Any) -> int:
    return _carry_out(call, "purge_control", named(words, given))


for _command in (restore_remote, purge_control):
    _command.params = [
        *parameters(str(_command.name), lambda context, _, text: complete.sessions(context, text)),
        *_command.params,
    ]


def _carry_out(call: Call, tool: str, given: dict[str, Any]) -> int:
    from bsd.doors.agent.scope import Scope
    from bsd.doors.agent.tools import carry_out, read_call
    from bsd.doors.cli.interrupt import stop_request
    from bsd.doors.cli.verbs import CallHands

    given = {name: value for name, value in given.items() if value is not None}
    if given.get("session"):
        given["session"] = _whole_name(call, given["session"])
    asked, scope = read_call(tool, given), Scope()
    name = scope.find(call.layout, asked.session, asked.lacks)
    if not asked.verb.changes:
        _tell(call, given, carry_out(asked, name, CallHands(call)))
        return 0
    with stop_request() as request:
        own = scope.own(call.layout)
        hands = CallHands(
            call, request, actor="agent", wait=lambda one: wait_for(call.layout, one, own)
        )
        answer = call.with_entry(
            name,
            given["entry"],
            lambda one: carry_out(read_call(tool, {**given, "entry": one}), name, hands),
        )
    _tell(call, given, answer)
    return request.exit_code or _exit_code(asked, answer)


def _whole_name(call: Call, text: str) -> str:
    """A session's whole name; what none begins with is left to those who say so."""
    from bsd.doors.cli.names import session_beginning_with

    return str(session_beginning_with(call.layout, text) or text)


def _exit_code(asked: Asked, answer: dict[str, Any]) -> int:
    from bsd.foundation.errors import Busy

    if answer.get("unavailable"):
        return 1
    if getattr(asked.arguments, "inline", None) and not answer["restored"]:
        return Busy.exit_code
    return 0


def wait_for(layout: Layout, name: SessionName, own: Collection[SessionName]) -> float:
    """How many seconds to wait for a session: an agent's own run does not end while it waits."""
    from bsd.agents.owners import in_use

    return 0.0 if name in own or in_use(layout, name) else LONGEST_WAIT


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
    note = answer.get("note")
    if note is None:
        say(f"Restored {len(keys)} keys for entry {answer['entry_id']}")
        if keys:
            say(f"Keys: {', '.join(keys)}")
    else:
        say(f"{AFTER_THE_TURN if answer['inline'] == 'after the turn' else TEXT_ONLY}{note}")
    for key, why in answer.get("unavailable", {}).items():
        say(f"{key}: {why}")
    if "suggestion" in answer:
        say(f"Previously restored at {answer['previous_restored_at']}. {answer['suggestion']}")
    for key, text in answer.get("texts", {}).items():
        say(f"\n{key}:\n{text}")
    if following := answer.get("next"):
        keys, offset = following["keys"], following["offset"]
        more = f"{answer['characters_left']} more characters"
        say(f"\n({more}: --keys {','.join(keys)} --offset {offset} --text-only)")
