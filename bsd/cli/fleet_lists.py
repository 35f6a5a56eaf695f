"""`bsd search --fleet` and `bsd sessions --fleet`: entries and sessions of all machines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import click

from bsd.actions.fleet import (
    EVERY_HOST,
    SEARCHED_ROLES,
    EntryOnHost,
    FleetFilter,
    FoundOnHosts,
    SessionOnHost,
    SessionsOnHosts,
    list_fleet_sessions,
    search_fleet,
)
from bsd.cli.call import Call
from bsd.cli.output import counted, minute, one_line, print_table, say, size
from bsd.cli.progress import waiting
from bsd.core.errors import Invalid
from bsd.core.past_moments import parse_past, parse_until

_PAGE = 50  # sessions on a page
_TITLE, _WIDE_TITLE = 60, 200  # characters of a title; on a terminal it is cut to fit

fleet_option = click.option(
    "--fleet", is_flag=True, help="In all machines, as the catalogue of `[fleet]` knows them."
)
host_option = click.option(
    "--host", metavar="HOST", help=f"With --fleet: only of this machine; '{EVERY_HOST}': of all."
)
after_option = click.option(
    "--after", metavar="KEY", help="With --fleet: the next page; the answer says its KEY."
)


def refuse_without_fleet(command: str, given: Mapping[str, object]) -> None:
    """Refuse options that only the catalogue serves; `given`: their values by option."""
    for option, value in given.items():
        if value:
            raise Invalid(f"{option} is only for --fleet", hint=f"bsd {command} --fleet {option} …")


def refuse_with_fleet(given: Mapping[str, object]) -> None:
    """Refuse filters that the catalogue cannot serve; `given`: their values by option."""
    for option, value in given.items():
        if value:
            raise Invalid(
                f"{option} cannot be used with --fleet: the catalogue does not know it",
                hint=f"leave out {option}, or --fleet",
            )


# --- search ---


def search_all_hosts(
    call: Call,
    words: tuple[str, ...],
    wanted: FleetFilter,
    since: str | None,
    until: str | None,
    limit: int,
    after: str | None,
) -> int:
    if wanted.role not in (None, *SEARCHED_ROLES):
        raise Invalid(
            f"--role {wanted.role} cannot be used with --fleet: the catalogue has no words of it",
            hint="name user or assistant, or leave out --fleet",
        )
    with call.context(changes=False) as context, waiting("asking the catalogue"):
        now = context.now()
        wanted = replace(
            wanted,
            since=None if since is None else parse_past(since, now),
            until=None if until is None else parse_until(until, now),
        )
        answer = search_fleet(context, " ".join(words), wanted, limit=limit, after=after)
    call.answer(answer, tell_found)
    return 0


def tell_found(found: FoundOnHosts) -> None:
    if not found.results:
        say("Nothing was found.")
        return
    columns = ("HOST:SESSION", "LINE", "TIME (UTC)", "ROLE", "TOOL", "SIZE", "TITLE")
    rows = [
        (
            f"{hit.host}:{hit.session}",
            f"#{hit.line}",
            minute(hit.time),
            hit.role or "",
            hit.tool or "",
            size(hit.size),
            one_line(hit.title or "", _title_length()),
        )
        for hit in found.results
    ]
    print_table(
        columns,
        rows,
        right=("LINE", "SIZE"),
        last_may_shrink=True,
        spare=("SIZE", "TOOL", "ROLE", "TIME (UTC)"),
    )
    _tell_commands(found.results)
    say()
    say(counted(len(found.results), "entry"))
    _tell_next(found.next)


def _tell_commands(found: tuple[EntryOnHost, ...]) -> None:
    """Print how to read the entries of this machine, and how to get the sessions of others."""
    for title, here in (("Read it here:", True), ("Bring it back to this machine:", False)):
        commands = dict.fromkeys(each.command for each in found if each.here is here)
        if commands:
            say(f"\n{title}")
        for command in commands:
            say(f"  {command}")


# --- sessions ---


def list_all_hosts(
    call: Call,
    *,
    host: str | None,
    agent: str | None,
    directory: str | None,
    untouched: str | None,
    limit: int | None,
    after: str | None,
) -> int:
    with call.context(changes=False) as context, waiting("asking the catalogue"):
        answer = list_fleet_sessions(
            context,
            host=host,
            agent=agent,
            directory=directory,
            untouched=untouched,
            limit=limit or _PAGE,
            after=after,
        )
    call.answer(answer, tell_sessions)
    return 0


def tell_sessions(found: SessionsOnHosts) -> None:
    if not found.sessions:
        say("The catalogue has no such session.")
        return
    columns = (
        *("HOST:SESSION", "SIZE", "SAVED", "COST", "ENTRIES"),
        *("UPDATED (UTC)", "STATUS", "DIRECTORY", "TITLE"),
    )
    print_table(
        columns,
        [_session_row(row) for row in found.sessions],
        right=columns[1:5],
        last_may_shrink=True,
        spare=("ENTRIES", "DIRECTORY", "COST", "SAVED", "STATUS", "UPDATED (UTC)"),
    )
    say()
    total = sum(row.size for row in found.sessions)
    say(f"{counted(len(found.sessions), 'session')}, {size(total)}")
    if far := next((row for row in found.sessions if not row.here), None):
        say(f"To bring one back to this machine: {far.command}")
    _tell_next(found.next)


def _session_row(row: SessionOnHost) -> tuple[str, ...]:
    return (
        f"{row.host}:{row.session}",
        size(row.size),
        size(row.saved) if row.saved else "",
        f"${row.cost:,.2f}" if row.cost >= 0.01 else "",
        f"{row.entries:,}",
        minute(row.updated),
        "gone" if row.deleted_at else "",
        row.directory or "",
        one_line(row.title or "", _title_length()),
    )


def _title_length() -> int:
    return _WIDE_TITLE if sys.stdout.isatty() else _TITLE


def _tell_next(key: str | None) -> None:
    if key is not None:
        say(f"The next page: --after {key}")
