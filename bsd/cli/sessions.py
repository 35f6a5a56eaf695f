"""Commands for sessions as a whole: sessions, summary. `search` has its own module."""

from __future__ import annotations

import sys
import time
from datetime import datetime

import click

from bsd.actions.list_sessions import (
    AllSessions,
    CountedSession,
    SessionOrder,
    SessionRow,
    list_all_sessions,
)
from bsd.actions.summary import Summary, summarize_session
from bsd.cli.call import BsdCommand, Call
from bsd.cli.fleet_lists import (
    after_option,
    fleet_option,
    host_option,
    list_all_hosts,
    refuse_with_fleet,
    refuse_without_fleet,
)
from bsd.cli.names import say_who_serves
from bsd.cli.options import agent_option, session_argument
from bsd.cli.output import (
    counted,
    note,
    one_line,
    print_table,
    say,
    say_wrapped,
    share,
    size,
)
from bsd.cli.progress import waiting
from bsd.core.layout import SessionName
from bsd.planning.session_outline import ContextInOutline
from bsd.planning.timing_words import timing_in, wait_words

_LEAST_ADVISED = 10 << 20  # bytes; smaller files of a program are listed without advice
_LEAST_SHARE = 0.001  # of a session; smaller kinds of content are not listed
_TITLE, _WIDE_TITLE = 60, 200  # characters of a title in a table; on a terminal it is cut to fit


@click.command("sessions", cls=BsdCommand)
@agent_option
@click.option("--limit", type=click.IntRange(min=1), help="Show at most N.")
@click.option(
    "-q",
    "--query",
    "words",
    metavar="WORDS",
    help="Only sessions with these words in title, name or text.",
)
@click.option(
    "--sort",
    type=click.Choice([order.value for order in SessionOrder]),
    help="Sort all agents' sessions, the greatest first; date: the newest first.",
)
@click.option(
    "--resume", is_flag=True, help="Show the command that continues each session, not its title."
)
@fleet_option
@host_option
@click.option(
    "--directory", metavar="DIR", help="With --fleet: only sessions that began in this directory."
)
@click.option(
    "--untouched",
    metavar="TIME",
    help="With --fleet: only sessions that have not changed for so long: 12h, 30d.",
)
@after_option
@click.pass_obj
def sessions_command(
    call: Call,
    /,
    agent: str | None,
    limit: int | None,
    words: str | None,
    sort: str | None,
    *,
    resume: bool,
    fleet: bool,
    host: str | None,
    directory: str | None,
    untouched: str | None,
    after: str | None,
) -> int:
    """List all sessions, their sizes and extracted values.

    Sessions are listed by agent, the newest first by their latest entries, unless --sort is given.
    `saved`: by how much a session became shorter. `cost`: US dollars as noted by the program, else
    tokens. Both are as counted by the search index.

    TITLE is from `sessions.json` or the program, else the first request of the session. -q finds
    words in the title, in the name, and in text that `bsd search` or the daemon has read. SIZE is
    the size of the session file; OUT is the size of its extracted values, in store or archive.
    STATUS also shows which sessions wait until their prompt cache is cold (setting `when`). Agents
    whose sessions bsd leaves alone are listed below the table.

    With --json, sessions that `bsd search` has read also have figures, such as messages and tokens;
    `resume` is the command that continues a session in its program.

    --fleet lists the sessions of all machines, as the catalogue of `[fleet]` knows them, the last
    changed first.

    \b
    Examples:
      bsd sessions
      bsd sessions --agent main --limit 10
      bsd sessions -q "retention cron"
      bsd sessions --sort size --limit 10
      bsd sessions --resume --limit 5
      bsd sessions --json | jq -r '.sessions[] | select(.size > 10000000) | .session'
      bsd sessions --fleet --host build-3 --untouched 30d
    """
    if fleet:
        refuse_with_fleet({"--query": words, "--sort": sort, "--resume": resume})
        return list_all_hosts(
            call,
            host=host,
            agent=agent,
            directory=directory,
            untouched=untouched,
            limit=limit,
            after=after,
        )
    local = {"--host": host, "--directory": directory, "--untouched": untouched, "--after": after}
    refuse_without_fleet("sessions", local)
    say_who_serves(call.layout, agent)
    with call.context(changes=False) as context, waiting("looking at the sessions"):
        order = None if sort is None else SessionOrder(sort)
        counts = call.json or order is SessionOrder.COST
        answer = list_all_sessions(
            context, agent=agent, limit=limit, words=words, sort=order, figures=counts
        )
    call.answer(
        answer, lambda answer: tell_sessions(answer, time.time(), resume=resume, sort=order)
    )
    if not call.json and (count := len(call.layout.exclusions().all)):
        note(f"{counted(count, 'pattern')} of excluded sessions: `bsd exclude`")
    return 0


def tell_sessions(
    found: AllSessions, now: float, *, resume: bool = False, sort: SessionOrder | None = None
) -> None:
    last = "CONTINUE IT" if resume else "TITLE"
    figure = {SessionOrder.SAVED: "SAVED", SessionOrder.COST: "COST"}.get(sort or SessionOrder.DATE)
    more = () if figure is None else (figure,)
    longest = _WIDE_TITLE if sys.stdout.isatty() else _TITLE
    columns = ("SESSION", *more, "SIZE", "OUT", "ENTRIES", "UPDATED", "STATUS", last)
    rows = [
        (
            row.session,
            *((_figure(row, sort),) if sort and more else ()),
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
    say_wrapped(f"{total}; {size(out)} extracted, in store or archive" if out else total)
    if found.problem:
        note(f"The text of the sessions was not searched: {found.problem}")
    for row in found.sessions:
        if row.no_session:
            note(
                f"{row.session} is not a session ({row.no_session}): bsd extracts no more from it; "
                f"`bsd restore-all {row.session}` puts its extracted values back"
            )
        if row.left_alone:
            note(f"{row.session} is left alone: {row.left_alone}")
    for pause in dict.fromkeys(row.paused for row in found.sessions if row.paused):
        note(f"Paused: {pause} (`bsd pause`)")
    for agent in found.agents:
        if agent.note:
            note(f"{agent.name}: {agent.note}")


def _figure(row: CountedSession, sort: SessionOrder) -> str:
    """Return the figure by which the list is sorted; only for orders that add a column."""
    if sort is SessionOrder.SAVED:
        return size(row.saved_bytes) if row.saved_bytes else ""
    return spent(row.cost, (row.tokens or {}).get("total"))


def spent(cost: float | None, tokens: int | None) -> str:
    """Format the cost of a session: `$1.25`, or tokens if its program noted no cost."""
    if cost:
        return f"${cost:,.2f}" if cost >= 0.01 else f"${cost:.4f}"
    return short_tokens(tokens) if tokens else ""


def short_tokens(tokens: int) -> str:
    """Format tokens in thousands or millions: `950 tokens`, `38k tokens`, `1.2M tokens`."""
    if tokens >= 1_000_000:
        return f"{tokens / 1e6:.1f}M tokens"
    return f"{tokens / 1000:.0f}k tokens" if tokens >= 10_000 else counted(tokens, "token")


def _status(row: SessionRow, now: float) -> str:
    """Return the state of a session in its program, and the reason why it waits."""
    wait = timing_in(vars(row))
    return "; ".join(filter(None, (row.status, wait_words(wait, now) if wait else None)))


@click.command("summary", cls=BsdCommand)
@session_argument
@click.pass_obj
def summary_command(call: Call, /, session: SessionName) -> None:
    """Summarize a session.

    Lists its requests and actions, found by simple rules in the text of the session, extracted
    values included. No model is used, and the session is not changed.

    \b
    Examples:
      bsd summary main/4f2a
      bsd summary main/4f2a --json | jq .summary.user_requests
    """
    with call.context(changes=False, session=session) as context, waiting(f"reading {session}"):
        answer = summarize_session(context, session)
    call.answer(answer, tell_summary)


def _context_words(context: ContextInOutline) -> str:
    """Return how many tokens of a session the model still sees, and its limit."""
    about = "" if context.source == "usage" else "about "
    if context.limit is not None:
        percent = share(context.tokens, context.limit)
        of = f"{about}{context.tokens:,} of {context.limit:,} tokens ({percent})"
        return f"{of}, limit {context.limit_reason}"
    least = f", at least {context.most_seen:,} tokens" if context.most_seen else ""
    return f"{about}{context.tokens:,} tokens; its limit is not known{least}"


def _tell_fills(found: Summary) -> None:
    if found.context is not None:
        say(f"\nThe model sees {_context_words(found.context)}")
    if found.fills:
        say("\nContents by size")
        print_table(
            ("content", "size", "share", "extracted"),
            [
                (
                    fill.what,
                    size(fill.bytes),
                    f"{100 * fill.share:.1f} %",
                    size(fill.extracted_bytes) if fill.extracted_bytes else "–",
                )
                for fill in found.fills
                if fill.share >= _LEAST_SHARE or fill.extracted_bytes
            ],
            right=("size", "share", "extracted"),
        )


def _tell_directory(found: Summary) -> None:
    if not found.directory:
        return
    say("\nThe directory of its program by size")
    rows = [(size(files.bytes), files.what) for files in found.directory]
    print_table(("size", "content"), rows, right=("size",))
    for files in found.directory:
        if files.advice and files.bytes >= _LEAST_ADVISED:
            note(f"{files.what}: {files.advice}")


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
    _tell_fills(found)
    _tell_directory(found)
    if found.damaged.count:
        note(found.damaged.in_words())
    if found.left_alone is not None:
        note(f"bsd does not edit {name}: {found.left_alone}")
    if found.resume:
        say(f"\nContinue it: {found.resume}")
