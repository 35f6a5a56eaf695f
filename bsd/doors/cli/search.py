"""`bsd search`: find entries by their words, extracted ones included."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Self

import click

from bsd.care.search import search as search_all
from bsd.doors.cli import complete
from bsd.doors.cli.call import Call, command
from bsd.doors.cli.output import counted, note, one_line, print_json, safe, say, styled
from bsd.doors.cli.problem import Problem
from bsd.foundation.errors import BsdError, NotFound
from bsd.foundation.layout import SessionName
from bsd.store.search import SearchHit, Snippet
from bsd.verbs.search import FoundInAll, SearchWords, found_in_all

_WORTH_A_WORD = 4 << 20  # bytes to read
_TITLE = 100  # characters


@command(
    "search",
    """
    Entries that hold all the words, the best first: in sessions, and in what was taken out of them.
    Before them come other sessions, whose titles hold the words.
    Words in double quotes stand together; `begin*` is any word that begins so. The index is brought
    up to date before, so the first search takes a while.

    \b
    Examples:
      bsd search retention cron
      bsd search '"connection refused"' --agent main --limit 5
      bsd search 'Migrat*' --json | jq -r '.results[].session'
    """,
)
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@click.option(
    "--agent",
    metavar="AGENT",
    help="Only the sessions of this agent.",
    shell_complete=complete.agents,
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="No more than so many entries.",
)
@click.pass_obj
def search(call: Call, /, words: tuple[str, ...], agent: str | None, limit: int) -> int:
    if agent is not None and not call.layout.has_agent(agent):
        raise NotFound(f"there is no agent {agent}", hint="`bsd sessions` lists all of them")
    call.log(writes=False)
    asked = SearchWords(" ".join(words), agent, limit)
    unread: dict[SessionName, BsdError] = {}
    with Counting() as counter:
        hits = search_all(
            call.layout,
            asked.words,
            agent=agent,
            limit=limit,
            progress=counter.show,
            failed=unread.__setitem__,
        )
    found = found_in_all(call.layout, asked, hits, unread)
    if call.json:
        print_json(found.as_json())
    else:
        _print(found, hits)
        _print_unread(unread)
    return _code(unread)


def _code(unread: Mapping[SessionName, BsdError]) -> int:
    """Of the first that could not be read."""
    return next((problem.exit_code for problem in unread.values()), 0)


def _print(found: FoundInAll, hits: list[SearchHit]) -> None:
    for one in found.sessions:
        say(one.session, style="1")
        say(f"  {one_line(one.title, _TITLE)}\n")
    print_hits(hits)
    many = [counted(len(found.sessions), "session")] if found.sessions else []
    many += [counted(len(hits), "entry")] if hits else []
    say(", ".join(many) or "Nothing was found.")


def print_hits(hits: list[SearchHit]) -> None:
    """Print entries that were found, with the words in them."""
    for hit in hits:
        badge = "  📎 extracted" if hit.where == "extracted" else ""
        say(f"{hit.session}  #{hit.index}  {hit.entry or ''}{badge}".rstrip(), style="1")
        sys.stdout.write(f"  {_marked(hit.snippet)}\n\n")


def _print_unread(unread: Mapping[SessionName, BsdError]) -> None:
    for name, problem in unread.items():
        text = f"{name} was not searched: {problem.message}"
        Problem(text, problem.exit_code, problem.hint).show()


def _marked(snippet: Snippet) -> str:
    shown, done = "", 0
    for start, end in snippet.matches:
        shown += safe(snippet.text[done:start])
        shown += styled(safe(snippet.text[start:end]), "1;33", sys.stdout)
        done = end
    return shown + safe(snippet.text[done:])


class Counting:
    """Per cent on one line of stderr, if that is a terminal and there is much to read."""

    def __init__(self) -> None:
        self._shown = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown >= 0:
            note("")

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if total < _WORTH_A_WORD or percent == self._shown or not sys.stderr.isatty():
            return
        self._shown = percent
        sys.stderr.write(f"\rReading what is new: {percent} %")
        sys.stderr.flush()
