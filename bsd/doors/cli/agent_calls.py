"""A tool of agents, called on the command line: carried out, told in the originals' words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bsd.agents.owners import in_use
from bsd.doors.agent.scope import Scope
from bsd.doors.agent.tools import Asked, carry_out, read_call
from bsd.doors.cli.call import LONGEST_WAIT, Call
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.names import session_beginning_with, with_entry
from bsd.doors.cli.output import print_json, say
from bsd.doors.cli.verbs import CallHands
from bsd.doors.tool_commands import AFTER_THE_TURN, TEXT_ONLY
from bsd.foundation.errors import Busy
from bsd.foundation.layout import Layout, SessionName


def call_tool(call: Call, tool: str, given: dict[str, Any]) -> int:
    """Do what an agent calls a tool for, and tell of it; returns the exit code."""
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
        answer = with_entry(
            call,
            name,
            given["entry"],
            lambda one: carry_out(read_call(tool, {**given, "entry": one}), name, hands),
        )
    _tell(call, given, answer)
    return request.exit_code or _exit_code(asked, answer)


def _whole_name(call: Call, text: str) -> str:
    """A session's whole name; what none begins with is left to those who say so."""
    return str(session_beginning_with(call.layout, text) or text)


def _exit_code(asked: Asked, answer: dict[str, Any]) -> int:
    if answer.get("unavailable"):
        return 1
    if getattr(asked.arguments, "inline", None) and not answer["restored"]:
        return Busy.exit_code
    return 0


def wait_for(layout: Layout, name: SessionName, own: Collection[SessionName]) -> float:
    """How many seconds to wait for a session: an agent's own run does not end while it waits."""
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
