"""`bsd search`: finds words in all sessions, and sessions by the files they changed or read."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from bsd.actions.files_touched import FilesInAll, SessionWithFile, find_files_in_all
from bsd.actions.fleet import FleetFilter
from bsd.actions.search import FoundEntry, FoundInAll, TitledSession, UnreadSession, search_all
from bsd.cli.call import BsdCommand, Call
from bsd.cli.completion import SESSION
from bsd.cli.fleet_lists import (
    after_option,
    fleet_option,
    host_option,
    refuse_with_fleet,
    refuse_without_fleet,
    search_all_hosts,
)
from bsd.cli.options import agent_option
from bsd.cli.output import counted, minute, note, one_line, safe, say, styled
from bsd.cli.problem import Problem
from bsd.core.errors import Invalid
from bsd.core.layout import SessionName
from bsd.core.past_moments import parse_past, parse_until
from bsd.store.search_filter import PARTS, ROLES, SearchFilter, SearchPlace

_LONG_TITLE = 100
_MOST_LINES = 12  # line numbers listed for a file


@click.command("search", cls=BsdCommand)
@click.argument("words", nargs=-1, metavar="[WORDS]...")
@click.option(
    "--file",
    "path",
    metavar="PATH",
    help="Only sessions that have changed or read this file; without words, list them.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Search all text of sessions, stores and archives, tools' results included. "
    "It uses no index; Ctrl-C ends it with the results so far.",
)
@agent_option
@click.option("--session", type=SESSION, metavar="AGENT/SESSION", help="Only in this session.")
@click.option(
    "--project",
    metavar="PROJECT",
    help="Only sessions of a project: an agent, or the end of its directory's path.",
)
@click.option(
    "--role",
    type=click.Choice([*ROLES, *PARTS]),
    metavar="ROLE",
    help="Only user, assistant, tool (results), call or thinking; the last three imply --all.",
)
@click.option(
    "--place",
    type=click.Choice([each.value for each in SearchPlace]),
    metavar="PLACE",
    help="Only text that is live (in sessions), gone (in sessions that their program has deleted), "
    "extracted (in the store) or archived (extracted, in the archive); the last two imply --all.",
)
@click.option("--since", metavar="TIME", help="Only entries from then on: 2h, yesterday, a day.")
@click.option("--until", metavar="TIME", help="Only entries before then, or up to a day's end.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most N entries, or sessions.",
)
@fleet_option
@host_option
@click.option("--tool", metavar="NAME", help="With --fleet: only calls of this tool.")
@after_option
@click.pass_obj
def search_command(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    path: str | None,
    everything: bool,
    agent: str | None,
    session: SessionName | None,
    project: str | None,
    role: str | None,
    place: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    fleet: bool,
    host: str | None,
    tool: str | None,
    after: str | None,
) -> int:
    """Find entries by words, or sessions by the files they used.

    Lists the entries that contain all the words, the best first. It searches the text of users and
    assistants, tool names, and paths in tool calls, extracted text included. Other sessions
    whose titles contain the words come before the entries; commands that continue the sessions in
    their programs come at the end.

    Words in double quotes are searched as a phrase; `begin*` matches any word with this beginning.
    The index is first brought up to date, so the first search takes a while. With `--all`, all text
    is searched, the newest sessions first, without the index.

    --file alone lists the sessions whose calls name a file, the newest first, with the line numbers
    of the calls that changed it, read it, or name it in a shell command. PATH is the end of the
    path: `auth.py`, `src/auth.py`, or `auth*`. `bsd show AGENT/SESSION --file PATH` shows the file
    as the session saw it.

    --fleet asks the catalogue of all machines instead (`[fleet]` of bsd.toml): the newest entries
    first, without their text, with the command that shows the session here or brings it back.

    \b
    Examples:
      bsd search retention cron
      bsd search --all ECONNREFUSED
      bsd search '"connection refused"' --agent main --limit 5
      bsd search --role user --since yesterday login
      bsd search --role thinking --project shop --until 2026-11-20 deadlock
      bsd search --file src/auth.py
      bsd search 'Migrat*' --json | jq -r '.results[].session'
      bsd search --fleet --host build-3 deadlock
    """
    if fleet:
        refuse_with_fleet(
            {
                "--file": path,
                "--all": everything,
                "--session": session,
                "--project": project,
                "--place": place,
            }
        )
        beyond = FleetFilter(host=host, agent=agent, role=role, tool=tool)
        return search_all_hosts(call, words, beyond, since, until, limit, after)
    refuse_without_fleet("search", {"--host": host, "--tool": tool, "--after": after})
    if path is not None and not words:
        if everything or session or project or role or place or since or until:
            hint = f"bsd search --file {path} WORDS"
            raise Invalid("without words, --file allows only --agent and --limit", hint=hint)
        return _search_file(call, path, agent, limit)
    if not words:
        raise Invalid("no words to search for", hint='bsd search "two words" another')
    wanted = SearchFilter(
        session=session,
        role=role,
        place=None if place is None else SearchPlace(place),
        project=os.path.abspath(project) if project and project[0] == "." else project,
        file=path,
    )
    everything = everything or wanted.needs_all
    with call.context(changes=False, ends_early=everything) as context:
        now = context.now()
        wanted = replace(
            wanted,
            since=None if since is None else parse_past(since, now),
            until=None if until is None else parse_until(until, now),
        )
        answer = search_all(
            context, " ".join(words), all=everything, agent=agent, limit=limit, wanted=wanted
        )
    call.answer(answer, tell_found)
    if answer.unread:
        return answer.unread[0].problem.exit_code
    return 1 if answer.problem else 0


def tell_found(found: FoundInAll) -> None:
    for session in found.sessions:
        badge = "  gone (`bsd archive`)" if session.gone else ""
        say(f"{session.session}{badge}", style="1")
        say(f"  {one_line(session.title, _LONG_TITLE)}\n")
    print_hits(found.results)
    many = [counted(len(found.sessions), "session")] if found.sessions else []
    many += [counted(len(found.results), "entry")] if found.results else []
    if many or not found.problem:
        say(", ".join(many) or ("Nothing was found." if not found.stopped else "Nothing yet."))
    print_commands([*found.sessions, *found.results])
    if found.stopped:
        note("Stopped before all text was searched.")
    _tell_unread(found.unread)
    if found.problem:
        text = f"no text was searched: {found.problem}"
        Problem(text, 1, f"bsd search --all {found.query}").show()


def _tell_unread(unread: Sequence[UnreadSession]) -> None:
    for left in unread:
        text = f"{left.session} was not searched: {left.error}"
        Problem(text, left.problem.exit_code, left.problem.hint).show()


def print_hits(hits: Sequence[FoundEntry]) -> None:
    """Print the entries that were found, with the matching words marked."""
    for hit in hits:
        badge = "  📎 extracted" if hit.where == "extracted" else ""
        badge += "  gone (`bsd archive`)" if hit.gone else ""
        say(f"{hit.session}  #{hit.index}  {hit.entry_id or ''}{badge}".rstrip(), style="1")
        print_snippet(hit.snippet, hit.matches)


def print_snippet(snippet: str, matches: Sequence[tuple[int, int]]) -> None:
    """Print a piece of text that was found, with the ranges in `matches` marked."""
    shown, done = "", 0
    for start, end in matches:
        shown += safe(snippet[done:start])
        shown += styled(safe(snippet[start:end]), "1;33", sys.stdout)
        done = end
    sys.stdout.write(f"  {shown}{safe(snippet[done:])}\n\n")


def print_commands(found: Sequence[FoundEntry | TitledSession | SessionWithFile]) -> None:
    """Print the command that continues each session, once.

    For a deleted session, `bsd archive bring-back` is printed first.
    """
    commands = {each.session: each for each in found if each.resume}
    if commands:
        say("\nContinue in the program:")
    for session, each in commands.items():
        say(f"  {session}")
        if each.gone:
            say(f"    bsd archive bring-back {session}")
        say(f"    {each.resume}")


# --- files ---


def _search_file(call: Call, path: str, agent: str | None, limit: int) -> int:
    with call.context(changes=False) as context:
        answer = find_files_in_all(context, path, agent=agent, limit=limit)
    call.answer(answer, tell_files)
    if answer.unread:
        return answer.unread[0].problem.exit_code
    return 1 if answer.problem else 0


def tell_files(found: FilesInAll) -> None:
    for session in found.sessions:
        badge = "  gone (`bsd archive`)" if session.gone else ""
        say(f"{session.session}  {minute(session.updated)}{badge}", style="1")
        if session.title:
            say(f"  {one_line(session.title, _LONG_TITLE)}")
        for file in session.files:
            uses = (("changed", file.changed), ("read", file.read), ("named", file.named))
            told = "; ".join(f"{use} {_numbers(lines)}" for use, lines in uses if lines)
            say(f"  {file.path}: {told}")
        say()
    if found.sessions:
        beside = f", and {found.more:,} more" if found.more else ""
        say(counted(len(found.sessions), "session") + beside)
        first = found.sessions[0]
        if not first.gone:
            say(f"The file as it was seen: bsd show {first.session} --file {found.path}")
    elif not found.problem:
        say("Nothing was found.")
    print_commands(found.sessions)
    _tell_unread(found.unread)
    if found.problem:
        text = f"nothing was searched: {found.problem}"
        Problem(text, 1, f"bsd search --all {found.path}").show()


def _numbers(lines: Sequence[int]) -> str:
    """Format line numbers; if there are many, only the last ones."""
    shown = " ".join(f"#{line}" for line in lines[-_MOST_LINES:])
    beside = len(lines) - _MOST_LINES
    return f"({beside:,} more) {shown}" if beside > 0 else shown
