"""The agent's tools as commands (seeds 000 and 001), and `bsd mcp`, which serves them.

What it takes to carry them out is loaded when one is called: pydantic, and for `bsd mcp` its SDK.
"""

from __future__ import annotations

from typing import Any

import click

from bsd.actions.context import ActionContext
from bsd.actions.parameters import named, tool_parameters
from bsd.cli.call import LONGEST_WAIT, Call, command, stop_request
from bsd.cli.completion import SESSION, session_beginning_with, sessions, with_entry
from bsd.cli.output import print_json, say
from bsd.core.errors import Busy, Invalid
from bsd.core.layout import SessionName, check_name
from bsd.core.verb_names import TOOLS
from bsd.mcp.arguments import read_arguments
from bsd.mcp.scope import Scope
from bsd.mcp.transcript_commands import AFTER_THE_TURN, TEXT_ONLY


@command(
    "restore_remote",
    """
    Prints the text that the model was sent, whoever is using the session, 15,000 bytes at a time;
    it is put back inline as well, unless the session is in use. Copies for the program's own page
    are named; --keys prints them.

    \b
    Examples:
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys content,output
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys output --offset 15000
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
        *tool_parameters(str(_command.name), sessions),
        *_command.params,
    ]


@command(
    "mcp",
    f"""
    Speaks MCP on stdin and stdout, for an agent to start: {", ".join(TOOLS[:-1])} and {TOOLS[-1]}
    for sessions; those whose names begin with memory_ for facts. It needs no daemon, and works
    beside one. Without options every session can be named; where none is, it is the one that the
    program which started the server has at work, if that can be told.

    Each tool's description takes room in the agent's context: --tools leaves out what it need not
    have.

    \b
    Examples:
      bsd mcp
      bsd mcp --agent main
      bsd mcp --session main/4f2a --tools sessions
      openclaw mcp set bsd '{{"command":"bsd","args":["mcp","--agent","main"]}}'
    """,
)
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option(
    "--session", type=SESSION, metavar="AGENT/SESSION", help="Only this session; no tool names it."
)
@click.option(
    "--tools",
    type=click.Choice(["all", "sessions", "memory"]),
    help="Those for sessions, for facts, or both [default: those for sessions, and those for facts"
    " if a memory is in use].",
)
@click.pass_obj
def mcp(call: Call, /, agent: str | None, session: SessionName | None, tools: str | None) -> int:
    if agent is not None:
        check_name(agent, "agent")
    if agent is not None and session is not None and session.agent != agent:
        raise Invalid(f"{session} is no session of {agent}", hint="name one of --agent, --session")
    from bsd.mcp.server import serve  # with the SDK, which is most of a start

    readonly = bool(call.settings and call.settings.readonly)
    call.surgeon(writes=not readonly, actor="agent")  # finishes what was in flight
    serve(call.layout, call.pruning, call.settings, Scope(agent, session), tools)
    return 0


def _carry_out(call: Call, tool: str, words: dict[str, Any]) -> int:
    """Do what an agent calls a tool for, and tell of it; returns the exit code."""
    from bsd.mcp.calls import GetContextCall, RestoreCall, read_call  # with pydantic
    from bsd.mcp.tools import SessionTools

    given = {name: one for name, one in words.items() if one is not None}
    if given.get("session"):
        text = given["session"]
        given["session"] = str(session_beginning_with(call.layout, text) or text)
    (session, asked), scope = read_call(tool, given), Scope()
    entry = asked.entry if isinstance(asked, RestoreCall) else None
    name = scope.find(call.layout, session, entry)
    bound = Scope(session=name)
    if isinstance(asked, GetContextCall):
        looking = ActionContext(layout=call.queries().layout, config=call.pruning)
        _tell(call, given, getattr(SessionTools(looking, bound), tool)(**given))
        return 0
    with stop_request() as request:
        wait = LONGEST_WAIT if scope.may_wait(call.layout, name) else 0.0
        surgeon = call.surgeon(writes=True, actor="agent", wait=wait, sleep=request.sleep)
        context = ActionContext(
            layout=call.layout,
            config=call.pruning,
            actor="agent",
            budget=surgeon.budget,
            noticed=surgeon.operator.noticed,
            in_flight=surgeon.operator.inflight,
        )
        method = getattr(SessionTools(context, bound), tool)

        def call_for(entry: str) -> dict[str, Any]:
            answer: dict[str, Any] = method(**read_arguments(method, {**given, "entry": entry}))
            return answer

        answer = with_entry(call, name, given["entry"], call_for)
    _tell(call, given, answer)
    if request.exit_code or answer.get("unavailable"):
        return request.exit_code or 1
    return Busy.exit_code if given.get("inline") and not answer["restored"] else 0


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
    for key, what in answer.get("beside", {}).items():
        say(f"\n{key}: {what}")
    if following := answer.get("next"):
        keys, offset = following["keys"], following["offset"]
        more = f"{answer['characters_left']} more characters"
        say(f"\n({more}: --keys {','.join(keys)} --offset {offset} --text-only)")
