"""`bsd secrets`: keys and passwords in sessions, stores and archive, and their redaction."""

from __future__ import annotations

import click

from bsd.actions.redact_secret import SecretRedacted, redact_secret
from bsd.actions.secrets import ListedPlace, SecretList, find_secrets
from bsd.cli.call import BsdGroup, Call, ask_first
from bsd.cli.options import agent_option, sessions_argument, yes_option
from bsd.cli.output import counted, note, safe, say, say_wrapped, size
from bsd.cli.problem import Problem
from bsd.core.layout import SessionName

_SHOWN = 5  # places of one secret
_LIST = "list"


class _SecretsGroup(BsdGroup):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; if no command is named, they belong to `list`."""
        if not {"-h", "--help"} & {*args[:1]} and not any(word in self.commands for word in args):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group("secrets", cls=_SecretsGroup)
def secrets_group() -> None:
    """Find keys and passwords in sessions and archive, and replace them.

    `bsd secrets` lists them for all sessions, or for the named ones, with their places in sessions,
    stores and archive. The rules are those of gitleaks, and no text leaves this machine. A secret
    is never printed in full: the list shows its first characters, its length, and a hash as its
    name. Ctrl-C ends the search with the secrets found so far.

    \b
    Examples:
      bsd secrets
      bsd secrets main/4f2a --json
      bsd secrets redact 5f16a8f2c1d0b3e4 --dry-run
      bsd secrets redact 5f16a8f2 --in main/4f2a
    """


@secrets_group.command(_LIST)
@sessions_argument
@agent_option
@click.pass_obj
def list_command(call: Call, /, sessions: tuple[SessionName, ...], agent: str | None) -> int:
    """List the secrets and their places. `bsd secrets` alone does the same."""
    with call.context(changes=False, ends_early=True) as context:
        answer = find_secrets(context, sessions, agent=agent)
    call.answer(answer, tell_secrets)
    return answer.unread[0].problem.exit_code if answer.unread else 0


def tell_secrets(found: SecretList) -> None:
    for secret in found.secrets:
        say(f"{secret.rule}  {secret.masked}  {secret.hash}", style="1")
        shown = secret.places[:_SHOWN]
        for place in shown:
            say(f"  {_where(place)}")
        if secret.count > len(shown):
            say(f"  … and {counted(secret.count - len(shown), 'place')} more")
        say()
    if found.unlisted:
        note(f"{counted(found.unlisted, 'place')} of other secrets: too many to list.")
    if found.secrets:
        many = counted(len(found.secrets), "secret")
        say(f"{many} in {counted(found.places, 'place')}, in {size(found.scanned)} of text")
        say("`bsd secrets redact HASH` replaces one everywhere. Then have a new key issued.")
    else:
        say(f"No secrets were found in {size(found.scanned)} of text.")
    if found.stopped:
        note(f"Stopped after {size(found.scanned)} of {size(found.total)}.")
    for left in found.unread:
        text = f"{left.session} was not searched: {left.error}"
        Problem(text, left.problem.exit_code, left.problem.hint).show()


def _where(place: ListedPlace) -> str:
    keys = ", ".join(place.keys) or "in no text"
    entry = f"  {place.entry_id}" if place.entry_id else ""
    where = "" if place.where == "transcript" else f"  ({place.where})"
    return f"{place.session}  #{place.index}{entry}  {keys}{where}"


@secrets_group.command("redact")
@click.argument("hash", metavar="HASH")
@click.option(
    "--in",
    "sessions",
    metavar="AGENT/SESSION",
    multiple=True,
    help="A session that has the secret; makes a search of all sessions unnecessary.",
)
@click.option(
    "--dry-run", is_flag=True, help="List its places, and those that stay; change nothing."
)
@yes_option
@click.pass_obj
def redact_command(
    call: Call, /, hash: str, sessions: tuple[str, ...], dry_run: bool, yes: bool
) -> int:
    """Replace a secret everywhere by `[redacted-RULE]`.

    Replaces it in all sessions, extracted values, the archive, copies and undo data; this cannot be
    undone. The command lists the places that it cannot change, with `--dry-run` without changing
    others: ids, headers, thinking that is signed by its provider, sessions that are excluded or in
    use, and other files with the secret. If the command is interrupted, run it again to continue.
    HASH is from the list of `bsd secrets`; its first 8 digits or more are enough.

    A key in a session was sent to a model provider: have a new key issued in any case.
    """
    names = tuple(map(SessionName.parse, sessions))
    if not (dry_run or yes):
        ask_first(
            f"Replace the secret {hash} everywhere? This cannot be undone.",
            f"bsd secrets redact {hash} --yes",
        )
    with call.context(changes=not dry_run) as context:
        answer = redact_secret(context, hash, sessions=names, dry_run=dry_run)
    call.answer(answer, tell_redacted)
    problem = next((each.problem for each in answer.sessions if each.problem), None)
    if problem is not None and not dry_run:
        return problem.exit_code
    return 0 if answer.complete or dry_run else 1


def tell_redacted(done: SecretRedacted) -> None:
    say("  ".join(filter(None, (done.rule, done.masked, done.hash))), style="1")
    for session in done.sessions:
        if session.error is not None:
            hint = session.problem.hint if session.problem else None
            code = session.problem.exit_code if session.problem else 1
            stays = "would still have it" if done.dry_run else "still has it"
            Problem(f"{session.session} {stays}: {session.error}", code, hint).show()
            continue
        parts = [counted(session.entries, "entry"), counted(session.stored, "stored line")]
        parts += [counted(session.copies, "line") + " of copies and undo data"]
        say(f"  {session.session}  " + ", ".join(part for part in parts if part[0] != "0"))
        for entry in session.forgotten:
            say(f"    {entry}: its extracted values can no longer be restored")
        if session.bound:
            many = counted(len(session.bound), "changed entry")
            say(f"    a later signature covers {many}: the provider may refuse the session now")
    for left in done.left:
        place = " ".join(filter(None, (left.session, left.entry)))
        stays = "would be left" if done.dry_run else "left"
        note(f"  {stays}: {f'{place}: ' if place else ''}{left.why}")
    for path in done.still_in:
        note(f"  {'would still be' if done.dry_run else 'still'} in {safe(path)}")
    say("bsd cannot reach copies in these places:")
    for where in done.unreached:
        say_wrapped(f"  {where}", 4)
    if done.dry_run:
        say("Nothing was changed.")
    elif done.complete:
        say("bsd knows of no remaining copy. Have a new key issued all the same.")
    else:
        say("Some copies are left. `bsd trash delete ID` and `bsd archive forget` remove more.")
