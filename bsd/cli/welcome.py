"""The output of `bsd` alone on a machine on which nothing is set up yet."""

from __future__ import annotations

from collections.abc import Mapping

from bsd.cli.output import safe
from bsd.core.errors import BsdError
from bsd.core.locations import has_openclaw, is_set_up, usual_roots

_WHAT_IT_IS = """\
bsd keeps the sessions of AI agents lean: it moves large old values into a store and puts
them back when you or the agent asks, and it keeps copies of sessions that their program deletes.
"""


def welcome(environ: Mapping[str, str]) -> str | None:
    """Return a short text: the purpose of bsd, the agents that are here, the next command.

    None if something is set up, or if that cannot be told.
    """
    try:
        if is_set_up(environ):
            return None
        rows = _agents(environ)
    except (BsdError, OSError):
        return None
    if not rows:
        here = "No agent has sessions in its usual directory on this machine."
    else:
        width = max(len(title) for title, _ in rows)
        lines = [f"  {title:<{width}}  {safe(where)}" for title, where in rows]
        here = "\n".join(["Agents with sessions on this machine:", *lines])
    return (
        f"{_WHAT_IT_IS}\n{here}\n\n"
        "Nothing is set up yet, and bsd changes nothing before you have agreed.\n\n"
        "Try: bsd init          (`bsd --help` lists all commands)\n"
    )


def _agents(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return title and directory of each agent that is here."""
    from bsd.transcripts.agents.installed import agents_with_sessions  # help does without it

    rows = [("OpenClaw", str(usual_roots(environ)[0]))] if has_openclaw(environ) else []
    for agent in agents_with_sessions(environ):
        why = f" ({agent.problem})" if agent.problem else ""
        rows.append((agent.title, f"{agent.directory}{why}"))
    return rows
