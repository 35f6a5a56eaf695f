"""`bsd archive`: sessions that their program has deleted, and what is kept of any."""

from __future__ import annotations

import re
from typing import Any

import click

from bsd.actions.archive import (
    CopiesKept,
    FoundGone,
    GoneEntries,
    GoneList,
    GoneSession,
    kept_session,
)
from bsd.actions.parameters import parameters
from bsd.actions.verb import Verb
from bsd.actions.verbs import (
    ARCHIVE_BRING_BACK,
    ARCHIVE_FORGET,
    ARCHIVE_KEEP,
    ARCHIVE_LIST,
    ARCHIVE_SEARCH,
    ARCHIVE_SHOW,
    BringBackGone,
    ForgetKept,
    KeepCopies,
    ListGone,
    SearchGone,
    ShowGone,
)
from bsd.cli.call import BsdCommand, Call, ask_first, group
from bsd.cli.completion import SESSION, archived_session
from bsd.cli.output import counted, minute, note, one_line, print_table, say, size
from bsd.cli.problem import Problem
from bsd.cli.verb_words import Tell, VerbWords, print_entries, print_hits
from bsd.cli.verbs import CallHands, carry_out
from bsd.core.errors import BsdError, Busy
from bsd.core.formatting import lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.core.pruning_fields import OFF
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.copy_scope import CopyStatus
from bsd.maintenance.forgetting import Forgotten

_ID = re.compile(r"@[0-9a-f]{8}\Z")  # what an id has after the name
_MORE = """
The daemon copies each session that has been at rest for a day, and one that its program will delete
within a week at once; `bsd archive keep` does so without a daemon. Once a session is gone, its copy
is kept for as long as the setting `archive_sessions` says. AGENT/SESSION is its name, or how only
one begins; an ID is what the list shows, for sessions that had one name. What you delete with
`bsd delete` is in the trash instead.

\b
Examples:
  bsd archive list
  bsd archive keep
  bsd archive search '"connection refused"'
  bsd archive show claude-code:-home-me/8463c716-a2ea-4c14-9efa-87158ebd9f20
  bsd archive bring-back main/4f2a
  bsd archive bring-back main/4f2a --as main/4f2a-old
  bsd archive forget main/4f2a --yes
  bsd archive forget main/4f2a 1c556fa0
"""


_WHAT_HELPS = "`bsd archive forget SESSION` takes copies; files of the program are its own"


archive = group("archive", _MORE, usual="list")


@archive.command("list", cls=BsdCommand, params=parameters(ListGone))
@click.pass_obj
def list_gone(call: Call, /, **given: Any) -> int:
    """List sessions that their program has deleted, those used last first."""
    return _carry_out(call, ARCHIVE_LIST, ListGone(**given), _say_gone)


def _say_gone(found: GoneList, _: object) -> None:
    names = [one.session for one in found.sessions]
    rows = [
        (
            one.id if names.count(one.session) > 1 else one.session,
            size(one.size),
            size(one.kept_bytes),
            minute(one.updated),
            minute(one.gone_at) if one.gone_at else "just now",
            _expires(one, found.keep),
            one_line(one.title or "", 60),
        )
        for one in found.sessions
    ]
    if rows:
        columns = ("SESSION", "SIZE", "KEPT", "UPDATED (UTC)", "GONE (UTC)", "EXPIRES", "TITLE")
        print_table(columns, rows, right=("SIZE", "KEPT"), last_may_shrink=True)
        say()
    if found.more:
        say(f"… and {counted(found.more, 'session')} more: --limit {len(rows) + found.more}")
    use = found.copies
    gone = f"{len(rows) + found.more:,} of them" if rows else "none of them"
    say(
        f"{counted(use.sessions, 'session')} copied ({size(use.content)} in {size(use.kept)}), "
        f"{gone} gone; archive_sessions is {found.keep}"
    )


@archive.command("keep", cls=BsdCommand)
@click.argument("sessions", nargs=-1, type=SESSION, metavar="[AGENT/SESSION]...")
@click.option("--dry-run", is_flag=True, help="Say which would be copied; change nothing.")
@click.pass_obj
def keep(call: Call, /, sessions: tuple[SessionName, ...], dry_run: bool) -> int:
    """Copy sessions now, those first that their program will delete soonest.

    Without a name: all sessions of all agents that have no copy as they are. With names, also the
    sessions that are parts of these. None waits for a day of rest; one in use is left for later
    (exit code 4).
    """

    def tell(done: CopiesKept, _: object) -> None:
        _say_kept(done, named=bool(sessions))

    asked = KeepCopies(tuple(map(str, sessions)), dry_run)
    words = VerbWords(tell, lambda _, done: _tell_problems(done))
    return carry_out(call, ARCHIVE_KEEP, None, asked, words)


def _say_kept(done: CopiesKept, *, named: bool) -> None:
    would = "would be " if done.dry_run else ""
    rows = [(one.session, f"{would}{one.status}", size(one.size)) for one in done.sessions]
    if rows and (named or done.dry_run):
        print_table(("SESSION", "", "SIZE"), rows, right=("SIZE",))
        say()
    amount = f" ({size(done.bytes_read)} read, {size(done.bytes_packed)} of it new)"
    before = sum(one.status is CopyStatus.UNCHANGED for one in done.sessions)
    say(
        f"{counted(done.copied, 'session')} {would}copied{'' if done.dry_run else amount},"
        f" {before:,} copied before"
    )


def _tell_problems(done: CopiesKept) -> int:
    """Show what went wrong, and return the exit code, as of `bsd extract`.

    4 if some were only busy; the code of the errors, 1 if they differ.
    """
    failed = set()
    for one in done.sessions:
        if one.error is not None:
            Problem(f"{one.session}: {one.reason}", one.error.exit_code, one.hint).show()
            failed |= {one.error.exit_code} if one.status is CopyStatus.FAILED else set()
    if failed:
        return failed.pop() if len(failed) == 1 else 1
    busy = any(one.status is CopyStatus.BUSY for one in done.sessions)
    return Busy.exit_code if busy else 0


@archive.command("search", cls=BsdCommand)
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.pass_obj
def search(call: Call, /, words: tuple[str, ...], agent: str | None, limit: int) -> int:
    """Find entries of sessions that are gone."""
    asked = SearchGone(" ".join(words), agent, limit, read=True)
    return _carry_out(call, ARCHIVE_SEARCH, asked, _say_found)


def _say_found(found: FoundGone, _: object) -> None:
    print_hits(found.results)
    say(counted(len(found.results), "entry") if found.results else "Nothing was found.")


@archive.command("show", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.pass_obj
def show(call: Call, /, session: str, start: int, limit: int) -> int:
    """Show the entries of a session that is gone."""
    asked = ShowGone(*_parts(call, session, changes=False), start, limit)

    def tell(found: GoneEntries, _: object) -> None:
        print_entries(found.entries)
        if found.next is not None:
            say(f"`bsd archive show {asked.text} --from {found.next}` goes on")

    return _carry_out(call, ARCHIVE_SHOW, asked, tell)


@archive.command("bring-back", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.option("--as", "renamed", metavar="AGENT/SESSION", help="Bring it back under this name.")
@click.pass_obj
def bring_back(call: Call, /, session: str, renamed: str | None) -> int:
    """Put a session where its program finds it, with all that belongs to it."""
    asked = BringBackGone(*_parts(call, session), renamed)
    words = VerbWords(_say_back, lambda _, done: bool(done.unavailable))
    return carry_out(call, ARCHIVE_BRING_BACK, None, asked, words)


def _say_back(done: BroughtBack, _: object) -> None:
    others = len(done.sessions) - 1
    more = f", with {counted(others, 'session')} that belong to it" if others else ""
    say(f"{done.session} is back{more}: {counted(done.files, 'file')}, {size(done.bytes)}")
    say(f"  {done.path}")
    for key in done.keys:
        say(f"  sessions.json lists it as {key} again")
    for key in done.keys_taken:
        note(f"sessions.json has another {key} by now: that one stays")
    for what, why in done.unavailable.items():
        note(f"{what} stays a placeholder: {why}")
    for why in done.left_out:
        note(f"not copied, so not back: {why}")
    if done.advice is not None:
        note(done.advice)


@archive.command("forget", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.argument("entry", required=False, metavar="[ENTRY]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def forget(call: Call, /, session: str, entry: str | None, yes: bool) -> int:
    """Delete for good what is kept of a session, gone or not, or of one entry.

    In store, archive, trash, history and search index, at once. The session itself stays, if it is
    in its place; what it lacks can no longer be restored there then, whoever else still keeps it.
    Of an entry, files that belong to the session are looked through for the same text, and named.
    """
    asked = ForgetKept(*_parts(call, session, live=True), entry)

    def tell(done: Forgotten, _: object) -> None:
        what = f"entry {entry} of {asked.text}" if entry else asked.text
        amount = f"{counted(done.files, 'file')}, {size(done.bytes)}"
        say(f"nothing is kept of {what} any more: {amount}")
        if done.in_transcript:
            note(f"{done.session} is in its place, and may still say it")
        for other in done.kept_by:
            note(f"{other} still keeps it: `bsd archive forget {_also(other, entry)}`")
        for where in done.said_in:
            note(f"{where} says the same: {_WHAT_HELPS}")

    words = VerbWords(tell) if yes else VerbWords(tell, begin=_ask_about)
    return carry_out(call, ARCHIVE_FORGET, None, asked, words)


def _ask_about(hands: CallHands, _: object, asked: ForgetKept) -> ForgetKept:
    name, copy = kept_session(hands.layout, asked.text)
    what = f"all that is kept of {copy.id if copy else name}"
    if asked.only is not None:
        what = f"all that is kept of entry {asked.only} of {name}"
    there = copy is None and _is_there(hands.layout, name)
    stays = "; what it lacks cannot be restored then" if there else ""
    words = ["bsd archive forget", asked.text, *([asked.only] if asked.only else []), "--yes"]
    ask_first(f"Delete {what} for good{stays}?", f"`{' '.join(words)}`", "deleted")
    return asked


def _also(other: str, entry: str | None) -> str:
    """What to forget there; of an entry only that, in all that is kept under the name."""
    return f"{_ID.sub('', other)} {entry}" if entry else other


def _expires(one: GoneSession, keep: str) -> str:
    """Its time begins to run when it is noticed that it is gone."""
    if one.expires_at is not None:
        return minute(one.expires_at)
    counts = one.gone_at is None and keep != OFF and lifetime_seconds(keep) is not None
    return f"{keep} on" if counts else "never"


def _is_there(layout: Layout, name: SessionName) -> bool:
    try:
        return layout.session_file(name).exists()
    except BsdError:
        return False


def _parts(call: Call, text: str, *, changes: bool = True, live: bool = False) -> tuple[str, str]:
    """The agent and the rest of a name or id in the archive, which may be its beginning."""
    whole = archived_session(call.layout, text, live=live)
    if changes and whole != text:
        note(f"{text} is {whole}")
    name = SessionName.parse(whole)
    return name.agent, name.session


def _carry_out(call: Call, verb: Verb[Any, Any], asked: Any, tell: Tell) -> int:
    """Do a verb that only looks."""
    call.log(writes=False)
    return carry_out(call, verb, None, asked, VerbWords(tell))
