"""`bsd archive` for the hosts that share a bucket: list, bring back, verify, forget."""

from __future__ import annotations

import click

from bsd.actions.other_hosts import (
    RemoteForgotten,
    RemoteList,
    RemoteSession,
    RemoteVerification,
    bring_back_remote,
    copy_back_remote,
    forget_remote,
    verify_remote,
)
from bsd.cli.call import BsdCommand, Call, ask_first
from bsd.cli.extract import tell_copy
from bsd.cli.new_file import new_file
from bsd.cli.output import (
    counted,
    minute,
    note,
    one_line,
    print_table,
    safe,
    say,
    say_wrapped,
    size,
)
from bsd.core.errors import Invalid
from bsd.fleet.hosts import split_host
from bsd.maintenance.bring_back import BroughtBack

host_option = click.option(
    "--host", metavar="HOST", help="A host that shares the bucket; '*': all of them."
)


def remote_name(call: Call, text: str) -> tuple[str, str] | None:
    """Return the host and the session of `HOST:AGENT/SESSION`; None for a session of this root."""
    return split_host(call.layout, text) if call.settings.fleet.bucket or "~" in text else None


def tell_hosts(found: RemoteList) -> None:
    if found.hosts:
        hosts = [
            (
                f"{host.name}{' (this host)' if host.is_this else ''}",
                f"{host.sessions:,}",
                size(host.size),
                minute(host.updated) if host.updated else "never",
                "silent for a week: lost?" if host.seems_lost else "",
            )
            for host in found.hosts
        ]
        columns = ("HOST", "SESSIONS", "SIZE", "LAST PUSH (UTC)", "")
        print_table(columns, hosts, right=("SESSIONS", "SIZE"))
        say()
    rows = [
        (
            session.id if _is_twice(found, session.host, session.session) else _short(session),
            size(session.size),
            minute(session.updated),
            minute(session.gone_at) if session.gone_at else "",
            one_line(session.title or "", 60),
        )
        for session in found.sessions
    ]
    if rows:
        columns = ("SESSION", "SIZE", "UPDATED (UTC)", "GONE (UTC)", "TITLE")
        spare = ("GONE (UTC)", "UPDATED (UTC)")
        print_table(columns, rows, right=("SIZE",), last_may_shrink=True, spare=spare)
        say()
    if found.more:
        say(f"… and {counted(found.more, 'session')} more: --limit {len(rows) + found.more}")
    count = counted(len(rows) + found.more, "session")
    say_wrapped(f"{count} of {counted(len(found.hosts), 'host')} in {found.bucket}")
    for host in found.hosts:
        for problem in host.problems:
            note(f"{host.name}: {problem}")
    for warning in found.warnings:
        note(warning)


def _short(session: RemoteSession) -> str:
    return f"{session.host}:{session.session}"


def _is_twice(found: RemoteList, host: str, session: str) -> bool:
    return sum((each.host, each.session) == (host, session) for each in found.sessions) > 1


def bring_back_from(
    call: Call, host: str, session: str, *, renamed: str | None, copy: str | None
) -> int:
    """Bring a session of another host back, or write it to the file `copy`."""
    if copy is not None:
        with new_file(copy) as write, call.context(changes=False) as context:
            written = copy_back_remote(context, host, session, write)
        return tell_copy(call, written, copy)
    with call.context(changes=True) as context:
        answer = bring_back_remote(context, host, session, renamed=renamed)
    call.answer(answer, tell_back)
    return int(bool(answer.unavailable))


def tell_back(done: BroughtBack) -> None:
    others = len(done.sessions) - 1
    more = f", with {counted(others, 'session')} that belong to it" if others else ""
    say(f"{done.session} is back{more}: {counted(done.files, 'file')}, {size(done.bytes)}")
    say(f"  {done.path}")
    if done.memory:
        say(f"  also back, from the project's memory: {', '.join(map(safe, done.memory))}")
    for path in done.memory_stays:
        note(f"{safe(path)} differs from its copy, and was not replaced")
    for key in done.keys:
        say(f"  sessions.json lists it as {key} again")
    for key in done.keys_taken:
        note(f"sessions.json has another {key} by now, which was not replaced")
    for what, why in done.unavailable.items():
        note(f"{what} stays a placeholder: {why}")
    for why in done.left_out:
        note(f"not brought back, as there is no copy: {why}")
    if done.resume is not None:
        say(f"  Continue it: {done.resume}")
    if done.advice is not None:
        note(done.advice)


def forget_on_all(
    call: Call, host: str, session: str, *, entry: str | None, lost: bool, yes: bool
) -> int:
    """Let all hosts forget a session of another host."""
    if entry is not None:
        raise Invalid(
            "one entry of a session is forgotten on a host that has the session",
            hint=f"`bsd archive bring-back {host}:{session}`, then "
            f"`bsd archive forget {session} {entry}` here, and "
            f"`bsd archive forget {host}:{session}` if that host is lost",
        )
    if not yes:
        command = f"bsd archive forget {host}:{session}{' --lost' if lost else ''} --yes"
        question = f"Delete the data of {session} of host {host} for good, on all hosts?"
        ask_first(question, f"`{command}`", "deleted")
    with call.context(changes=True) as context:
        answer = forget_remote(context, host, session, lost=lost)
    call.answer(answer, tell_forgotten_on_all)
    return 0


def tell_forgotten_on_all(done: RemoteForgotten) -> None:
    say(f"all hosts that share the bucket forget {done.session} at their next push")
    if done.waits:
        say_wrapped(
            f"{done.host} deletes its objects itself when it runs; if it is lost: --lost deletes"
            " them at once"
        )
    else:
        say(f"deleted for good: {counted(done.objects, 'object')} of {done.host}")


def tell_waiting(why: str | None) -> None:
    if why is not None:
        note(f"the shared data will be deleted when it can be reached: {safe(why)}")


@click.command("verify", cls=BsdCommand)
@click.option("--remote", is_flag=True, help="Check the archive in the bucket.")
@host_option
@click.option("--full", is_flag=True, help="Read every object, and check its hash.")
@click.pass_obj
def verify_command(call: Call, /, remote: bool, host: str | None, full: bool) -> int:
    """Check that the bucket has all that its manifests list.

    Reads the chain of manifests of this host, or of HOST, and compares the list of its objects and
    their sizes with them. --full downloads every object and checks its hash. Exit code 1 if there
    is a problem. `bsd verify` checks the archive on this machine.

    \b
    Examples:
      bsd archive verify --remote
      bsd archive verify --remote --host '*' --full
    """
    if not remote:
        raise Invalid(
            "--remote is needed: this command checks the bucket",
            hint="`bsd verify` checks the archive on this machine",
        )
    with call.context(changes=False) as context:
        answer = verify_remote(context, host, full=full)
    call.answer(answer, tell_verified_hosts)
    return int(not answer.clean)


def tell_verified_hosts(found: RemoteVerification) -> None:
    for host in found.hosts:
        for problem in host.problems:
            note(f"{host.name}: {problem}")
        read = f", {size(host.read)} read" if found.full else ""
        say(
            f"{host.name}: {counted(host.files, 'file')} ({size(host.bytes)}) in "
            f"{counted(host.objects, 'object')}, manifest {host.generation:,}{read}"
        )
        if host.again:
            say(f"Lost files that are whole here: {host.again}. Try: `bsd archive push`")
    for warning in found.warnings:
        note(warning)
    say("No problems." if found.clean else "There are problems.")
