"""`bsd summary`: what a session was about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import print_json, say
from bsd.doors.cli.text import counted

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName

_LISTS = (
    ("Asked for", "user_requests"),
    ("Done", "key_actions"),
    ("Thoughts", "thinking_insights"),
    ("Files written", "files_created"),
    ("Errors", "errors"),
)


@command(
    "summary",
    """
    What was asked for and done, by plain rules on the words of the session and of what was taken
    out of it. No model is asked, and nothing is changed.

    \b
    Examples:
      bsd summary main/4f2a
      bsd summary main/4f2a --json | jq .summary.user_requests
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.pass_obj
def summary(call: Call, /, session: SessionName) -> None:
    from bsd.care.summary import document, summarize

    found = document(session, summarize(call.layout, session))
    if call.json:
        print_json(found)
        return
    told = found["summary"]
    counts = (
        counted(told["message_count"], "message"),
        counted(told["user_messages"], "user message"),
        counted(told["tool_calls"], "tool call"),
        told["duration_estimate"],
    )
    say(f"{session}: {told['session_type']}, {', '.join(counts)}", style="1")
    for title, key in (("Tools", "tools_used"), ("Models", "models_used")):
        if told[key]:
            say(f"{title}: {', '.join(told[key])}")
    for title, key in _LISTS:
        if told[key]:
            say(f"\n{title}")
            for line in told[key]:
                say(f"  - {line}")
