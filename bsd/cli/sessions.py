"""Commands that look at sessions as a whole: sessions, search, summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime

import click

from bsd.actions.list_sessions import AllSessions, SessionRow, list_all_sessions
from bsd.actions.search import FoundEntry, FoundInAll, search_all
from bsd.actions.summary import Summary, summarize_session
from bsd.cli.call import BsdCommand, Call
from bsd.cli.names import say_who_serves
from bsd.cli.options import agent_option, session_argument
from bsd.cli.output import (
    cache_wait,
    counted,
    note,
    one_line,
    print_table,
    safe,
    say,
    size,
    styled,
)
from bsd.cli.problem import Problem
from bsd.cli.progress import waiting
from bsd.core.layout import SessionName

_TITLE, _WIDE_TITLE = 60, 200  # characters of a title in a table; on a terminal it is cut to fit
_LONG_TITLE = 100


@click.command("sessions", cls=BsdCommand)
@agent_option
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many.")
@click.option(
    "-q",
    "--query",
    "words",
    metavar="WORDS",
    help="Only those with these words in title, name or text.",
)
@click.option(
    "--resume", is_flag=True, help="Show the command that continues each one, instead of its title."
)
@click.pass_obj
def sessions_command(
    call: Call, /, agent: str | None, limit: int | None, words: str | None, *, resume: bool
) -> None:
    """List all sessions, their size and what is out of them.

    Newest first within each agent, by their newest entries. TITLE is what `sessions.json` or the
    program calls a session, else what was first asked in it. -q finds words in it, in the name, and
    in text that `bsd search` or the daemon has read. SIZE is the session file's, OUT is what
    is out of it now, and lies in store or archive. Agents whose sessions bsd leaves alone are named
    below the table.
    STATUS says also which sessions wait until their prompt cache is cold (setting `when`).
    With --json, sessions that `bsd search` has read have figures, too: messages, tokens and more;
    and `resume` is the command that continues a session in its program.

    \b
    Examples:
      bsd sessions
      bsd sessions --agent main --limit 10
      bsd sessions -q "retention cron"
      bsd sessions --resume --limit 5
      bsd sessions --json | jq -r '.sessions[] | select(.size > 10000000) | .session'
    """
    say_who_serves(call.layout, agent)
    with call.context(changes=False) as context, waiting("looking at the sessions"):
        answer = list_all_sessions(
            context, agent=agent, limit=limit, words=words, figures=call.json
        )
    call.answer(answer, lambda answer: tell_sessions(answer, time.time(), resume=resume))
    if not call.json and (count := len(call.layout.exclusions().all)):
        note(f"{counted(count, 'pattern')} of what is left out: `bsd exclude`")


def tell_sessions(found: AllSessions, now: float, *, resume: bool = False) -> None:
    last = "CONTINUE IT" if resume else "TITLE"
    longest = _WIDE_TITLE if sys.stdout.isatty() else _TITLE
    columns = ("SESSION", "SIZE", "OUT", "ENTRIES", "UPDATED", "STATUS", last)
    rows = [
        (
            row.session,
            size(row.size),
            size(row.extracted_bytes) if row.extracted_entries else "",
            str(row.extracted_entries or ""),
            datetime.fromisoformat(row.updated).astimezone().strftime("%Y-%m-%d %H:%M"),
            ", ".join(filter(None, (_status(row, now), "paused" if row.paused else ""))),
            row.resume or "" if resume else one_line(row.title or row.label or "", longest),
        )
        for row in found.sessions
    ]
    if rows:
        print_table(
            columns,
            rows,
            right=columns[1:-3],
            last_may_shrink=not resume,
            wraps=("STATUS",),
            spare=("ENTRIES", "UPDATED", "OUT", *(("STATUS", "SIZE") if resume else ())),
            whole=("CONTINUE IT",),
        )
        say()
    out = sum(row.extracted_bytes for row in found.sessions)
    total = f"{counted(len(found.sessions), 'session')}, {size(found.total_size)}"
    say(f"{total}; {size(out)} is out of them, in store or archive" if out else total)
    if found.problem:
        note(f"The text of the sessions was not searched: {found.problem}")
    for row in found.sessions:
        if row.no_session:
            note(
                f"{row.session} is no session ({row.no_session}), and nothing more leaves it; "
                f"`bsd restore-all {row.session}` puts back what was taken out of it"
            )
        if row.left_alone:
            note(f"{row.session} is left alone: {row.left_alone}")
    for pause in dict.fromkeys(row.paused for row in found.sessions if row.paused):
        note(f"Paused: {pause} (`bsd pause`)")
    for agent in found.agents:
        if agent.note:
            note(f"{agent.name}: {agent.note}")


def _status(row: SessionRow, now: float) -> str:
    """Return the state of a session by its program, and the reason why it waits."""
    waits = None
    if row.cache_warm_until is not None:
        waits = f"waits: {cache_wait(row.cache_warm_until, row.tokens_ready, now)}"
    return "; ".join(filter(None, (row.status, waits)))


@click.command("search", cls=BsdCommand)
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Search all text of sessions, stores and archives, tools' results included. "
    "It uses no index; Ctrl-C ends it with what was found so far.",
)
@agent_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="No more than so many entries.",
)
@click.pass_obj
def search_command(
    call: Call, /, words: tuple[str, ...], everything: bool, agent: str | None, limit: int
) -> int:
    """Find entries by words, in the index or in everything.

    Entries that hold all the words, the best first: what users and assistants say, names of tools
    and paths that they were given, also where that was taken out of its session. Before them come
    other sessions, whose titles hold the words.
    Words in double quotes stand together; `begin*` is any word that begins so. The index is brought
    up to date before, so the first search takes a while. With `--all` all text is searched, the
    newest sessions first, without the index.

    \b
    Examples:
      bsd search retention cron
      bsd search --all ECONNREFUSED
      bsd search '"connection refused"' --agent main --limit 5
      bsd search 'Migrat*' --json | jq -r '.results[].session'
    """
    with call.context(changes=False, ends_early=everything) as context:
        answer = search_all(context, " ".join(words), all=everything, agent=agent, limit=limit)
    call.answer(answer, tell_found)
    if answer.unread:
        return answer.unread[0].problem.exit_code
    return 1 if answer.problem else 0


def tell_found(found: FoundInAll) -> None:
    for session in found.sessions:
        say(session.session, style="1")
        say(f"  {one_line(session.title, _LONG_TITLE)}\n")
    print_hits(found.results)
    many = [counted(len(found.sessions), "session")] if found.sessions else []
    many += [counted(len(found.results), "entry")] if found.results else []
    if many or not found.problem:
        say(", ".join(many) or ("Nothing was found." if not found.stopped else "Nothing yet."))
    if found.stopped:
        note("Stopped before all was searched.")
    for left in found.unread:
        text = f"{left.session} was not searched: {left.error}"
        Problem(text, left.problem.exit_code, left.problem.hint).show()
    if found.problem:
        text = f"no text was searched: {found.problem}"
        Problem(text, 1, f"bsd search --all {found.query}").show()


def print_hits(hits: Sequence[FoundEntry]) -> None:
    """Print entries that were found, with the words in them marked."""
    for hit in hits:
        badge = "  📎 extracted" if hit.where == "extracted" else ""
        badge += "  gone (`bsd archive`)" if hit.gone else ""
        say(f"{hit.session}  #{hit.index}  {hit.entry_id or ''}{badge}".rstrip(), style="1")
        print_snippet(hit.snippet, hit.matches)


def print_snippet(snippet: str, matches: Sequence[tuple[int, int]]) -> None:
    """Print a piece of text that was found; the words that `matches` names are marked."""
    shown, done = "", 0
    for start, end in matches:
        shown += safe(snippet[done:start])
        shown += styled(safe(snippet[start:end]), "1;33", sys.stdout)
        done = end
    sys.stdout.write(f"  {shown}{safe(snippet[done:])}\n\n")


@click.command("summary", cls=BsdCommand)
@session_argument
@click.pass_obj
def summary_command(call: Call, /, session: SessionName) -> None:
    """Say what a session was about.

    What was asked for and done, by plain rules on the words of the session and of what was taken
    out of it. No model is asked, and nothing is changed.

    \b
    Examples:
      bsd summary main/4f2a
      bsd summary main/4f2a --json | jq .summary.user_requests
    """
    with call.context(changes=False, session=session) as context, waiting(f"reading {session}"):
        answer = summarize_session(context, session)
    call.answer(answer, tell_summary)


def tell_summary(found: Summary) -> None:
    summary = found.summary
    counts = (
        counted(summary.message_count, "message"),
        counted(summary.user_messages, "user message"),
        counted(summary.tool_calls, "tool call"),
        summary.duration_estimate,
    )
    name = f"{found.agent}/{found.session_id}"
    say(f"{name}: {summary.session_type}, {', '.join(counts)}", style="1")
    for title, names in (("Tools", summary.tools_used), ("Models", summary.models_used)):
        if names:
            say(f"{title}: {', '.join(names)}")
    for title, lines in (
        ("Asked for", summary.user_requests),
        ("Done", summary.key_actions),
        ("Thoughts", summary.thinking_insights),
        ("Files written", summary.files_created),
        ("Errors", summary.errors),
    ):
        if lines:
            say(f"\n{title}")
            for line in lines:
                say(f"  - {line}")
    if found.damaged.count:
        note(found.damaged.in_words())
    if found.left_alone is not None:
        note(f"bsd does not edit {name}: {found.left_alone}")
    if found.resume:
        say(f"\nContinue it: {found.resume}")
