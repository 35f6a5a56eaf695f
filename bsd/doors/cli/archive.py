"""`bsd archive`: sessions that their program has deleted, and what is kept of any."""

from __future__ import annotations

import re

import click

from bsd.doors.cli.arguments import parameters
from bsd.doors.cli.call import BsdCommand, Call, ask_first, group, stop_request
from bsd.doors.cli.output import counted, note, one_line, print_json, print_table, say, size
from bsd.doors.cli.verb_words import print_entries, print_hits
from bsd.doors.cli.verbs import CallHands
from bsd.foundation.definition import Answer
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import SessionName
from bsd.foundation.setting import OFF
from bsd.foundation.spelling import lifetime_seconds
from bsd.verbs.archive import (
    ARCHIVE_BRING_BACK,
    ARCHIVE_FORGET,
    ARCHIVE_LIST,
    ARCHIVE_SEARCH,
    ARCHIVE_SHOW,
    BringBackGone,
    ForgetKept,
    GoneSession,
    ListGone,
    SearchGone,
    ShowGone,
    kept_session,
)
from bsd.verbs.verb import perform

_ID = re.compile(r"@[0-9a-f]{8}\Z")  # what an id has after the name
_MORE = """
A session that has been at rest for a day is copied, for as long as the setting `archive_sessions`
says once it is gone. AGENT/SESSION is its name; an ID is what the list shows, for sessions that had
one name. What you delete with `bsd delete` is in the trash instead.

\b
Examples:
  bsd archive list
  bsd archive search '"connection refused"'
  bsd archive show claude-code:-home-me/8463c716-a2ea-4c14-9efa-87158ebd9f20
  bsd archive bring-back main/4f2a
  bsd archive bring-back main/4f2a --as main/4f2a-old
  bsd archive forget main/4f2a --yes
  bsd archive forget main/4f2a 1c556fa0
"""


archive = group("archive", _MORE, usual="list")


@archive.command("list", cls=BsdCommand, params=parameters(ListGone))
@click.pass_obj
def list_gone(call: Call, /, agent: str | None = None, limit: int = 100) -> int:
    """List sessions that their program has deleted, those used last first."""
    call.log(writes=False)
    found = perform(ARCHIVE_LIST, CallHands(call), None, ListGone(agent, limit))
    if _told(call, found):
        return 0
    names = [one.session for one in found.sessions]
    rows = [
        (
            one.id if names.count(one.session) > 1 else one.session,
            size(one.size),
            size(one.kept_bytes),
            _moment(one.updated),
            _moment(one.gone_at) if one.gone_at else "just now",
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
    return 0


@archive.command("search", cls=BsdCommand)
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.pass_obj
def search(call: Call, /, words: tuple[str, ...], agent: str | None, limit: int) -> int:
    """Find entries of sessions that are gone."""
    call.log(writes=False)
    hands = CallHands(call)
    try:
        found = perform(
            ARCHIVE_SEARCH, hands, None, SearchGone(" ".join(words), agent, limit, read=True)
        )
    finally:
        hands.finished()
    if not _told(call, found):
        print_hits(found.results)
        say(counted(len(found.results), "entry") if found.results else "Nothing was found.")
    return 0


@archive.command("show", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.pass_obj
def show(call: Call, /, session: str, start: int, limit: int) -> int:
    """Show the entries of a session that is gone."""
    call.log(writes=False)
    agent, name = _parts(session)
    found = perform(ARCHIVE_SHOW, CallHands(call), None, ShowGone(agent, name, start, limit))
    if not _told(call, found):
        print_entries(found.entries)
        if found.next is not None:
            say(f"`bsd archive show {session} --from {found.next}` goes on")
    return 0


@archive.command("bring-back", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.option("--as", "renamed", metavar="AGENT/SESSION", help="Bring it back under this name.")
@click.pass_obj
def bring_back(call: Call, /, session: str, renamed: str | None) -> int:
    """Put a session where its program finds it, with all that belongs to it."""
    with stop_request() as request:
        asked = BringBackGone(*_parts(session), renamed)
        done = perform(ARCHIVE_BRING_BACK, CallHands(call, request), None, asked)
    if not _told(call, done):
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
    return request.exit_code or int(bool(done.unavailable))


@archive.command("forget", cls=BsdCommand)
@click.argument("session", metavar="AGENT/SESSION")
@click.argument("entry", required=False, metavar="[ENTRY]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def forget(call: Call, /, session: str, entry: str | None, yes: bool) -> int:
    """Delete for good what is kept of a session, gone or not, or of one entry.

    In store, archive, trash, history and search index, at once. The session itself stays, if it is
    in its place; what it lacks can no longer be restored then.
    """
    with stop_request() as request:
        hands = CallHands(call, request)
        agent, name = _parts(session)
        if not yes:
            _ask_about(call, session, entry)
        done = perform(ARCHIVE_FORGET, hands, None, ForgetKept(agent, name, entry))
    if not _told(call, done):
        what = f"entry {entry} of {session}" if entry else session
        say(
            f"nothing is kept of {what} any more: {counted(done.files, 'file')}, {size(done.bytes)}"
        )
        if done.in_transcript:
            note(f"{done.session} is in its place, and may still say it")
        for other in done.kept_by:
            note(f"{other} still keeps it: `bsd archive forget {_also(other, entry)}`")
    return request.exit_code


def _ask_about(call: Call, session: str, entry: str | None) -> None:
    name, copy = kept_session(call.layout, session)
    what = f"all that is kept of {copy.id if copy else name}"
    if entry is not None:
        what = f"all that is kept of entry {entry} of {name}"
    stays = "" if copy or not _is_there(call, name) else "; what it lacks cannot be restored then"
    words = ["bsd archive forget", session, *([entry] if entry else []), "--yes"]
    refusal = f"`{' '.join(words)}`"
    ask_first(f"Delete {what} for good{stays}?", refusal, "deleted")


def _also(other: str, entry: str | None) -> str:
    """What to forget there; of an entry only that, in all that is kept under the name."""
    return f"{_ID.sub('', other)} {entry}" if entry else other


def _expires(one: GoneSession, keep: str) -> str:
    """Its time begins to run when it is noticed that it is gone."""
    if one.expires_at is not None:
        return _moment(one.expires_at)
    counts = one.gone_at is None and keep != OFF and lifetime_seconds(keep) is not None
    return f"{keep} on" if counts else "never"


def _is_there(call: Call, name: SessionName) -> bool:
    try:
        return call.layout.session_file(name).exists()
    except BsdError:
        return False


def _parts(text: str) -> tuple[str, str]:
    name = SessionName.parse(text)
    return name.agent, name.session


def _told(call: Call, answer: Answer) -> bool:
    """Tell programs what was answered; whether that is all who ask."""
    if call.json:
        print_json(answer.as_json())
    return call.json


def _moment(text: str) -> str:
    return text[:16].replace("T", " ")
