"""`bsd archive`: sessions that their program has deleted, and copies of all sessions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from bsd.actions.archive import (
    MOST_GONE,
    CopiesKept,
    FoundGone,
    GoneEntries,
    GoneList,
    GoneSession,
    bring_back,
    copy_back,
    copy_sessions,
    forget,
    kept_session,
    list_archive,
    search_archive,
    show_archived,
)
from bsd.actions.forget_project import ForgottenProject, forget_whole_project
from bsd.actions.other_hosts import list_hosts_archive, pass_on_forgetting
from bsd.actions.vanished import PromptsShown
from bsd.cli import completion
from bsd.cli.call import BsdGroup, Call, ask_first
from bsd.cli.each_session import is_there
from bsd.cli.entries import print_entries
from bsd.cli.extract import tell_copy
from bsd.cli.names import archived_session
from bsd.cli.new_file import new_file
from bsd.cli.options import agent_option, sessions_argument, yes_option
from bsd.cli.other_hosts import (
    bring_back_from,
    forget_on_all,
    host_option,
    remote_name,
    tell_back,
    tell_hosts,
    tell_waiting,
    verify_command,
)
from bsd.cli.output import (
    counted,
    minute,
    note,
    one_line,
    print_table,
    say,
    say_wrapped,
    size,
)
from bsd.cli.problem import Problem
from bsd.cli.push import push_command
from bsd.cli.search import print_commands, print_hits, print_snippet
from bsd.core.config import OFF
from bsd.core.errors import Busy, Invalid
from bsd.core.formatting import lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.forget import Forgotten
from bsd.maintenance.snapshots import SnapshotStatus

_MOST_AGENTS = 3  # named in a message
_ORIGIN = re.compile(r"@[0-9a-f]{8}\Z")  # the part of an id in the archive after the name

session_argument = click.argument("session", metavar="AGENT/SESSION")  # it may be gone


@click.group("archive", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def archive_group(context: click.Context, /) -> Any:
    """Bring back sessions that their program has deleted.

    The daemon copies each session that has been idle for a day. A session that its program will
    delete within a week is copied at once. `bsd archive keep` copies sessions without a daemon.
    After a session is gone, its copy is kept for as long as the setting `archive_sessions` says.
    AGENT/SESSION is the session's name, or the beginning of only one name; an ID, from `bsd archive
    list`, tells sessions with the same name apart. Sessions that you delete with `bsd delete` are
    in the trash instead.

    \b
    Examples:
      bsd archive list
      bsd archive keep
      bsd archive search '"connection refused"'
      bsd archive show claude-code:-home-me/8463c716-a2ea-4c14-9efa-87158ebd9f20
      bsd archive bring-back main/4f2a
      bsd archive bring-back main/4f2a --as main/4f2a-old
      bsd archive bring-back main/4f2a --to 4f2a.jsonl
      bsd archive forget main/4f2a --yes
      bsd archive forget main/4f2a 1c556fa0
      bsd archive forget --project /home/me/shop --dry-run
      bsd archive list --host '*'
      bsd archive bring-back laptop:main/4f2a
      bsd archive verify --remote
    """
    if context.invoked_subcommand is None:
        return context.invoke(list_command)
    return None


@archive_group.command("list")
@click.option("--agent")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@host_option
@click.pass_obj
def list_command(call: Call, /, agent: str | None, limit: int, host: str | None) -> None:
    """List sessions that their program has deleted, the most recently used first.

    Some sessions have no copy, but the history of their program still names them: only their
    prompts are left. `bsd archive show` shows these.

    With --host, the sessions that a host has in the bucket that you share ([fleet] in bsd.toml),
    deleted or not.
    """
    if host is not None:
        with call.context(changes=False) as context:
            others = list_hosts_archive(context, host, agent=agent, limit=limit)
        call.answer(others, tell_hosts)
        return
    with call.context(changes=False) as context:
        answer = list_archive(context, agent=agent, limit=limit)
    call.answer(answer, tell_gone)


def tell_gone(found: GoneList) -> None:
    names = [session.session for session in found.sessions]
    rows = [
        (
            session.id if names.count(session.session) > 1 else session.session,
            size(session.size),
            size(session.kept_bytes),
            minute(session.updated),
            minute(session.gone_at) if session.gone_at else "just now",
            _expires(session, found.keep),
            one_line(session.title or "", 60),
        )
        for session in found.sessions
    ]
    if rows:
        columns = ("SESSION", "SIZE", "KEPT", "UPDATED (UTC)", "GONE (UTC)", "EXPIRES", "TITLE")
        spare = ("KEPT", "UPDATED (UTC)", "GONE (UTC)")
        print_table(columns, rows, right=("SIZE", "KEPT"), last_may_shrink=True, spare=spare)
        say()
    if found.more:
        say(f"… and {counted(found.more, 'session')} more: --limit {len(rows) + found.more}")
    use = found.copies
    gone = f"{len(rows) + found.more:,} of them" if rows else "none of them"
    say_wrapped(
        f"{counted(use.sessions, 'session')} copied ({size(use.content)} in {size(use.kept)}), "
        f"{gone} gone; archive_sessions is {found.keep}"
    )
    _tell_prompts_only(found)


def _tell_prompts_only(found: GoneList) -> None:
    rows = [
        (
            session.session,
            session.project,
            minute(session.updated),
            f"{session.prompts:,}",
            one_line(session.title or "", 60),
        )
        for session in found.prompts_only
    ]
    if rows:
        count = len(rows) + (found.prompts_only_more or 0)
        say()
        say(f"Prompts only ({counted(count, 'session')} that had no copy):")
        say()
        columns = ("SESSION", "PROJECT", "UPDATED (UTC)", "PROMPTS", "FIRST PROMPT")
        spare = ("PROMPTS", "PROJECT")
        print_table(columns, rows, right=("PROMPTS",), last_may_shrink=True, spare=spare)
    if found.prompts_only_more:
        more = found.prompts_only_more
        limit = min(len(rows) + more, MOST_GONE)
        say(f"… and {counted(more, 'session')} more: --limit {limit}")
    for problem in found.problems:
        note(problem)


def _expires(session: GoneSession, keep: str) -> str:
    """Return when a copy expires; the time counts from when bsd finds the session gone."""
    if session.expires_at is not None:
        return minute(session.expires_at)
    counts = session.gone_at is None and keep != OFF and lifetime_seconds(keep) is not None
    return f"{keep} on" if counts else "never"


@archive_group.command("keep")
@sessions_argument
@click.option(
    "--dry-run", is_flag=True, help="List the sessions that would be copied; change nothing."
)
@click.pass_obj
def keep_command(call: Call, /, sessions: tuple[SessionName, ...], dry_run: bool) -> int:
    """Copy sessions now, starting with those that their program will delete soonest.

    Without a name: all agents' sessions whose copies are missing or out of date. With names:
    these sessions, and the sessions that are parts of them. bsd does not wait until a session has
    been idle for a day; a session in use is left for later (exit code 4).
    """
    with call.context(changes=not dry_run) as context:
        answer = copy_sessions(context, list(map(str, sessions)), dry_run=dry_run)
    call.answer(answer, lambda answer: tell_copies(answer, named=bool(sessions)))
    failed = set()
    for session in answer.sessions:
        if session.error is not None:
            code = session.error.exit_code
            Problem(f"{session.session}: {session.reason}", code, session.hint).show()
            failed |= {code} if session.status is SnapshotStatus.FAILED else set()
    if failed:
        return failed.pop() if len(failed) == 1 else 1
    busy = any(session.status is SnapshotStatus.BUSY for session in answer.sessions)
    return Busy.exit_code if busy else 0


def tell_copies(done: CopiesKept, *, named: bool) -> None:
    would = "would be " if done.dry_run else ""
    rows = [(copy.session, f"{would}{copy.status}", size(copy.size)) for copy in done.sessions]
    if rows and (named or done.dry_run):
        print_table(("SESSION", "", "SIZE"), rows, right=("SIZE",))
        say()
    amount = f" ({size(done.bytes_read)} read, {size(done.bytes_packed)} of it new)"
    for why in done.left_out:
        note(f"not copied: {why}")
    if done.memory:
        say(f"{counted(len(done.memory), 'file')} of the memory of projects copied")
    before = sum(copy.status is SnapshotStatus.UNCHANGED for copy in done.sessions)
    say(
        f"{counted(done.copied, 'session')} {would}copied{'' if done.dry_run else amount},"
        f" {before:,} copied before"
    )


@archive_group.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@agent_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.pass_obj
def search_command(call: Call, /, words: tuple[str, ...], agent: str | None, limit: int) -> None:
    """Find entries of sessions that are gone.

    If a session has no copy, only its prompts are searched.
    """
    with call.context(changes=False) as context:
        answer = search_archive(context, " ".join(words), agent=agent, limit=limit, read=True)
    call.answer(answer, tell_found)


def tell_found(found: FoundGone) -> None:
    print_hits(found.results)
    for prompt in found.prompts:
        say(f"{prompt.session}  {minute(prompt.time)}  {prompt.status}", style="1")
        print_snippet(prompt.snippet, prompt.matches)
    count = counted(len(found.results), "entry") if found.results else ""
    prompts = counted(len(found.prompts), "prompt") if found.prompts else ""
    say(" and ".join(filter(None, (count, prompts))) or "Nothing was found.")
    print_commands(found.results)


@archive_group.command("show")
@session_argument
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.pass_obj
def show_command(call: Call, /, session: str, start: int, limit: int) -> None:
    """Show the entries of a session that is gone.

    If the session has no copy, its prompts are shown.
    """
    name = archived_session(call.layout, session)
    with call.context(changes=False) as context:
        answer = show_archived(context, name, start=start, limit=limit)
    call.answer(answer, lambda answer: tell_entries(answer, name))


def tell_entries(found: GoneEntries | PromptsShown, name: str) -> None:
    if isinstance(found, PromptsShown):
        one = found.session
        say(f"{one.session}: {one.status}, in {one.project}; there is no copy of it")
        for prompt in found.prompts:
            say()
            say(minute(prompt.time), style="1")
            say(prompt.text)
    else:
        print_entries(found.entries)
    if found.next is not None:
        say(f"`bsd archive show {name} --from {found.next}` shows the next entries")
    if isinstance(found, GoneEntries) and found.session.resume:
        say(f"Continue it, after `bsd archive bring-back {name}`: {found.session.resume}")


@archive_group.command("bring-back")
@session_argument
@click.option("--as", "renamed", metavar="AGENT/SESSION", help="Bring it back under this name.")
@click.option(
    "--to", "copy", metavar="FILE", help="Write it to a new file instead, with all its values."
)
@click.pass_obj
def bring_back_command(call: Call, /, session: str, renamed: str | None, copy: str | None) -> int:
    """Put a session and its parts back to where its program finds them.

    With --to, bsd writes only the session itself, as JSON lines; also if its program keeps sessions
    in a database, to which bsd never writes.

    HOST:AGENT/SESSION is a session of another host that shares your bucket, or of this host before
    its archive was lost. If a source or an agent of this root has the name HOST, write HOST~ID as
    `bsd archive list --host '*'` does.
    """
    if copy is not None and renamed is not None:
        raise Invalid("--as and --to exclude each other", hint="leave one of them out")
    if (remote := remote_name(call, session)) is not None:
        return bring_back_from(call, *remote, renamed=renamed, copy=copy)
    name = _archived(call, session)
    if copy is not None:
        with new_file(copy) as write, call.context(changes=False) as context:
            written = copy_back(context, name, write)
        return tell_copy(call, written, copy)
    with call.context(changes=True) as context:
        answer = bring_back(context, name, renamed=renamed)
    call.answer(answer, tell_back)
    return int(bool(answer.unavailable))


def _archived(call: Call, text: str, *, live: bool = False) -> str:
    """Return the full name or id of a session in the archive; print it if its beginning was typed.

    Args:
        live: also accept sessions that still exist.

    Raises:
        Invalid: several names begin with `text`.
        NotFound: no name begins with `text`.
    """
    name = archived_session(call.layout, text, live=live)
    if name != text:
        note(f"{text} is {name}")
    return name


@archive_group.command("forget")
@click.argument("session", required=False, metavar="[AGENT/SESSION]")
@click.argument("entry", required=False, metavar="[ENTRY]")
@click.option(
    "--project",
    metavar="P",
    shell_complete=completion.agents,
    help="All sessions of this agent, or of this directory.",
)
@click.option(
    "--dry-run", is_flag=True, help="With --project: list the data that would be deleted."
)
@click.option("--lost", is_flag=True, help="With HOST: it will not come back.")
@yes_option
@click.pass_obj
def forget_command(
    call: Call,
    /,
    session: str | None,
    entry: str | None,
    project: str | None,
    dry_run: bool,
    lost: bool,
    yes: bool,
) -> int:
    """Delete for good the data that bsd keeps of a session, an entry or a project.

    Deletes it at once from the store, archive, trash, history and search index, whether the session
    is gone or not. A session that still exists is not changed, but its extracted values can no
    longer be restored, even if another session keeps the same text. If an ENTRY is given, bsd
    searches the files that belong to the session for the same text, and lists those that contain
    it.

    `--project` is for projects that you have deleted on purpose, as `claude purge` does. P is the
    name of an agent, or a directory. A directory selects all sessions of every agent that began in
    it or below it, with their subagents and the copy of the project's memory. Sessions that still
    exist are copied again while they exist.

    If you share a bucket ([fleet] in bsd.toml), the data is deleted there, too, and all other hosts
    that share it forget it at their next push. HOST:AGENT/SESSION is a session of another host: all
    hosts forget it. If that host is lost (--lost), or has been silent for a week, its objects are
    deleted at once.
    """
    if (session is None) == (project is None):
        raise Invalid(
            "name either a session or a project",
            hint="`bsd archive forget AGENT/SESSION`, or `bsd archive forget --project P`",
        )
    if project is not None:
        return _forget_project(call, project, dry_run=dry_run, yes=yes)
    if dry_run or session is None:
        raise Invalid("--dry-run needs --project", hint="name a project with --project")
    if (remote := remote_name(call, session)) is not None:
        return forget_on_all(call, *remote, entry=entry, lost=lost, yes=yes)
    if lost:
        raise Invalid("--lost needs a session of another host", hint="HOST:AGENT/SESSION")
    name = _archived(call, session, live=True)
    with call.context(changes=True) as context:
        if not yes:
            _ask_about(call.layout, name, entry)
        answer = forget(context, name, entry=entry)
        waits = pass_on_forgetting(context)
    call.answer(answer, lambda answer: tell_forgotten(answer, name, entry))
    tell_waiting(waits)
    return 0


def _forget_project(call: Call, project: str, *, dry_run: bool, yes: bool) -> int:
    if not (dry_run or yes):
        with call.context(changes=False) as context:
            kept = forget_whole_project(context, project, dry_run=True)
        what = f"the data of {counted(len(kept.sessions), 'session')} of"
        question = f"Delete {what} {_named(kept.agents)} for good ({size(kept.bytes)})?"
        ask_first(question, f"`bsd archive forget --project {project} --yes`", "deleted")
    with call.context(changes=not dry_run) as context:
        answer = forget_whole_project(context, project, dry_run=dry_run)
        waits = None if dry_run else pass_on_forgetting(context)
    call.answer(answer, tell_forgotten_project)
    tell_waiting(waits)
    failed = [one.problem for one in answer.sessions if one.problem is not None]
    for unread in answer.unread:
        text = f"{unread.session} may belong to this project: {unread.error}"
        Problem(text, unread.problem.exit_code, unread.problem.hint).show()
        failed.append(unread.problem)
    for one in answer.sessions:
        if one.problem is not None:
            Problem(f"{one.session}: {one.error}", one.problem.exit_code, one.problem.hint).show()
    codes = {problem.exit_code for problem in failed}
    return codes.pop() if len(codes) == 1 else int(bool(codes))


def _named(agents: Sequence[str]) -> str:
    more = len(agents) - _MOST_AGENTS
    return ", ".join(agents[:_MOST_AGENTS]) + (f" and {counted(more, 'agent')} more" * (more > 0))


def tell_forgotten_project(done: ForgottenProject) -> None:
    if done.dry_run and done.sessions:
        rows = [(one.session, f"{one.files:,}", size(one.bytes)) for one in done.sessions]
        print_table(("SESSION", "FILES", "SIZE"), rows, right=("FILES", "SIZE"))
        say()
    count = counted(len(done.sessions) - done.failed, "session")
    amount = f"{counted(done.files, 'file')}, {size(done.bytes)}"
    memory = f", {done.memory_files:,} of memory" if done.memory_files else ""
    would = "would be forgotten" if done.dry_run else "forgotten"
    say(f"{count} of {_named(done.agents)} {would}: {amount}{memory}")
    if done.in_place:
        are = "1 session is" if done.in_place == 1 else f"{done.in_place:,} sessions are"
        note(f"{are} still there, and copied again until their program deletes them")
    if done.prompts:
        note(f"the history of their program still has {counted(done.prompts, 'prompt')} of it")
    for other in done.kept_by:
        note(f"{other} still keeps some of it: `bsd archive forget {other}`")


def _ask_about(layout: Layout, text: str, entry: str | None) -> None:
    name, copy = kept_session(layout, text)
    what = f"the data of {copy.id if copy else name}"
    if entry is not None:
        what = f"the data of entry {entry} of {name}"
    there = copy is None and is_there(layout, name)
    stays = "; its extracted values can then no longer be restored" if there else ""
    words = ["bsd archive forget", text, *([entry] if entry else []), "--yes"]
    ask_first(f"Delete {what} for good{stays}?", f"`{' '.join(words)}`", "deleted")


def tell_forgotten(done: Forgotten, name: str, entry: str | None) -> None:
    what = f"entry {entry} of {name}" if entry else name
    say(f"deleted the data of {what} for good: {counted(done.files, 'file')}, {size(done.bytes)}")
    if done.in_transcript:
        note(f"{done.session} still exists, and may still contain it")
    for other in done.kept_by:
        # For an entry, the command names the session: it covers all copies under that name.
        other_words = f"{_ORIGIN.sub('', other)} {entry}" if entry else other
        note(f"{other} still keeps it: `bsd archive forget {other_words}`")
    for where in done.said_in:
        note(
            f"{where} contains the same text: `bsd archive forget SESSION` deletes copies; "
            "bsd does not delete files of the program"
        )


archive_group.add_command(push_command)
archive_group.add_command(verify_command)
