"""`bsd sessions`: the list."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from bsd.care import catalog, statistics
from bsd.care.catalog import ListedSession
from bsd.care.search import SessionFilter
from bsd.care.statistics import is_stale
from bsd.doors.cli import complete
from bsd.doors.cli.call import Call, command
from bsd.doors.cli.output import counted, note, one_line, print_json, print_table, say, size
from bsd.foundation.claims import elsewhere
from bsd.foundation.errors import NotFound, os_problem
from bsd.verbs.list_sessions import figures_of, session_row

_TITLE = 60  # characters


@command(
    "sessions",
    """
    Newest first within each agent, by their newest entries. TITLE is what `sessions.json` or the
    program calls a session, else what was first asked in it. -q finds words in it, in the name, and
    in text that `bsd search` or the daemon has read. SIZE is the session file's, OUT is what was
    taken out of it and lies in the store. Agents whose sessions bsd leaves alone are named below
    the table.
    With --json, sessions that `bsd search` has read have figures, too: messages, tokens and more.

    \b
    Examples:
      bsd sessions
      bsd sessions --agent main --limit 10
      bsd sessions -q "retention cron"
      bsd sessions --json | jq -r '.sessions[] | select(.size > 10000000) | .session'
    """,
)
@click.option(
    "--agent",
    metavar="AGENT",
    help="Only the sessions of this agent.",
    shell_complete=complete.agents,
)
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many.")
@click.option(
    "-q", "--query", metavar="WORDS", help="Only those with these words in title, name or text."
)
@click.pass_obj
def sessions(call: Call, /, agent: str | None, limit: int | None, query: str | None) -> None:
    agents = catalog.agents(call.layout)
    call.finish_due()
    _note_missing(call, agent)
    if agent is not None:
        agents = [info for info in agents if info.name == agent]
        if not agents:
            raise NotFound(f"there is no agent {agent}", hint="`bsd sessions` lists all of them")
    found = list(islice(_sought(call, agent, query), limit))
    if call.json:
        print_json(
            {
                "sessions": list(_rows(call, found)),
                "agents": [info.as_json() for info in agents],
                "total_size": sum(info.size for info in found),
            }
        )
        return
    _print(found)
    for info in agents:
        if info.note:
            note(f"{info.name}: {info.note}")


def _sought(call: Call, agent: str | None, query: str | None) -> Iterator[ListedSession]:
    """The sessions in which somebody finds these words; all, without any."""
    if query is None:
        yield from catalog.sessions(call.layout, agent)
        return

    sought = SessionFilter(call.layout, query, agent)
    for info in catalog.sessions(call.layout, agent):
        if sought.fits(info.name, (info.label, info.title)):
            yield info
    if sought.problem:
        note(f"The text of the sessions was not searched: {sought.problem}")


def _note_missing(call: Call, agent: str | None) -> None:
    """Name the sources that cannot be read, or that another root serves; or this agent's."""
    for source in call.layout.sources:
        if agent is not None and source is not call.layout.source_of(agent):
            continue
        if why := elsewhere(call.layout, source):
            note(f"{why}: it is only looked at here.")
        for path in filter(None, (source.path, source.put_away_in)):
            try:
                os.scandir(path).close()
            except (FileNotFoundError, NotADirectoryError):
                note(f"There is no {path}, which the settings name as {source.name}.")
                note("Try: mend `path` under [[sources]] in bsd.toml, unless it is still to come")
            except OSError as error:
                problem = os_problem(error, f"The source {source.name}: reading {path}")
                note(f"{problem.message}\nTry: {problem.hint}")


def _rows(call: Call, found: list[ListedSession]) -> Iterator[dict[str, Any]]:
    """Sessions for programs, with the figures of those that are as the last search counted them."""
    now = time.time()
    warm = statistics.warm(call.layout, found)
    for info in found:
        row = session_row(info).as_json()
        if known := warm.get(info.name):
            row |= figures_of(known, is_stale=is_stale(info.updated, now)).as_json()
        yield row


def _print(found: list[ListedSession]) -> None:
    columns = ("SESSION", "SIZE", "OUT", "ENTRIES", "UPDATED", "STATUS", "TITLE")
    rows = [
        (
            str(info.name),
            size(info.size),
            size(info.extracted_bytes) if info.extracted_entries else "",
            str(info.extracted_entries or ""),
            datetime.fromtimestamp(info.updated, UTC).astimezone().strftime("%Y-%m-%d %H:%M"),
            info.status or "",
            one_line(info.title or info.label or "", _TITLE),
        )
        for info in found
    ]
    if rows:
        print_table(columns, rows, right=columns[1:4], last_may_shrink=True)
        say()
    out = sum(info.extracted_bytes for info in found)
    total = f"{counted(len(found), 'session')}, {size(sum(info.size for info in found))}"
    say(f"{total}; {size(out)} in the store" if out else total)
