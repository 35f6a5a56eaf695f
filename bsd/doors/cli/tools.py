"""The agent's tools as commands (seeds 000 and 001), and `bsd mcp`, which serves them.

What it takes to carry them out is loaded when one is called: pydantic, and for `bsd mcp` its SDK.
"""

from __future__ import annotations

from typing import Any

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.tool_commands import named, parameters
from bsd.foundation.layout import SessionName


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


@command(
    "mcp",
    """
    Speaks MCP on stdin and stdout, for an agent to start: purge_control, restore_remote, restore,
    read_extracted, context and search_extracted for sessions; memory_store, memory_recall,
    memory_lookup, memory_confirm, memory_forget, memory_checkpoint and memory_prune for facts. It
    needs no daemon, and works beside one. Without options every session can be named; where none
    is, it is the one that the program which started the server has at work, if that can be told.

    Each tool's description takes room in the agent's context: --tools leaves out what it need not
    have.

    \b
    Examples:
      bsd mcp
      bsd mcp --agent main
      bsd mcp --session main/4f2a --tools sessions
      openclaw mcp set bsd '{"command":"bsd","args":["mcp","--agent","main"]}'
    """,
)
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option(
    "--session", type=SESSION, metavar="AGENT/SESSION", help="Only this session; no tool names it."
)
@click.option(
    "--tools",
    type=click.Choice(["all", "sessions", "memory"]),
    default="all",
    show_default=True,
    help="Those for sessions, for facts, or both.",
)
@click.pass_obj
def mcp(call: Call, /, agent: str | None, session: SessionName | None, tools: str) -> int:
    from bsd.doors.cli.mcp_server import serve_tools

    serve_tools(call, agent, session, tools)
    return 0


def _carry_out(call: Call, tool: str, given: dict[str, Any]) -> int:
    from bsd.doors.cli.agent_calls import call_tool

    return call_tool(call, tool, {name: one for name, one in given.items() if one is not None})
