"""`bsd undo`: undoes one change to a session, or all changes by bsd since a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from bsd.actions.history import list_history, undo
from bsd.actions.undo_since import SessionUndone, UndoneSince, UndoStatus, undo_since
from bsd.cli import completion
from bsd.cli.call import BsdCommand, Call, ask_first
from bsd.cli.options import yes_option
from bsd.cli.output import counted, note, print_table, say, say_wrapped, size
from bsd.cli.problem import Problem
from bsd.core.errors import Busy, Invalid
from bsd.core.layout import SessionName
from bsd.planning.undo import PastOperation, Undone

_DRY = "\nThis was a dry run: nothing was changed."


@click.command("undo", cls=BsdCommand)
@click.argument(
    "session", type=completion.SESSION, required=False, metavar="[AGENT/SESSION]", default=None
)
@click.argument("op", type=click.IntRange(min=1), required=False, metavar="[OP]")
@click.option(
    "--since",
    metavar="MOMENT",
    help="All extractions since then: yesterday, today, 2h, 14:30, 2026-11-25.",
)
@click.option(
    "--agent",
    metavar="AGENT",
    shell_complete=completion.agents,
    help="With --since: only the sessions of this agent.",
)
@click.option("--dry-run", is_flag=True, help="Show the effect; change nothing.")
@yes_option
@click.pass_obj
def undo_command(
    call: Call,
    /,
    session: SessionName | None,
    op: int | None,
    since: str | None,
    agent: str | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Undo changes to sessions.

    Every line that the operation changed is put back, exact to the byte. OP is a number from `bsd
    history`; without it, the newest operation that is not undone. An older operation can be undone
    if no later one changed the same entries; entries of an extraction that were restored since stay
    as they are. Undoing an undo applies the operation again. Values that an undone extraction puts
    back stay until you extract the session by hand. Undoing a restore extracts its values again:
    the command asks first.

    `--since` undoes every extraction since then, and all that the daemon did by itself, session by
    session, the newest first. Changes that you or an agent asked for stay. A session that is in
    use, or whose later changes are in conflict, is left as it is and listed with the reason. The
    command shows the effect, and asks first.

    \b
    Examples:
      bsd undo main/4f2a --dry-run
      bsd undo main/4f2a
      bsd undo main/4f2a 12
      bsd undo --since yesterday --dry-run
      bsd undo --since 2h --agent main --yes
    """
    if since is None:
        if session is None:
            raise Invalid(
                "name a session, or a moment",
                hint="`bsd undo AGENT/SESSION`, or `bsd undo --since yesterday`",
            )
        if agent is not None:
            raise Invalid("--agent needs --since", hint=f"`bsd undo {session}`")
        return _undo_one(call, session, op, dry_run=dry_run, yes=yes)
    if op is not None:
        raise Invalid(
            "OP names one operation, and --since many",
            hint=f"`bsd undo {session} {op}`, or `bsd undo {session} --since {since}`",
        )
    return _undo_many(call, since, agent, session, dry_run=dry_run, yes=yes)


# --- one operation ---


def _undo_one(call: Call, session: SessionName, op: int | None, *, dry_run: bool, yes: bool) -> int:
    with call.context(changes=not dry_run) as context:
        if not (yes or dry_run):
            op = _ask(list_history(context, session).operations, session, op)
        answer = undo(context, session, op, dry_run=dry_run)
    call.answer(answer, lambda answer: tell_undone(answer, session))
    return 0


def _ask(operations: Sequence[PastOperation], session: SessionName, op: int | None) -> int | None:
    """Ask before a restore is undone; returns the operation to undo, as it was shown.

    Raises:
        Conflict: the answer is no.
    """
    operation = _to_be_undone(operations, op)
    if operation is None or not _is_restore(operation.action):
        return op
    values = f"{counted(operation.values, 'value')} of {counted(operation.entries, 'entry')}"
    ask_first(
        f"Undo operation {operation.operation} ({operation.action}, {operation.at[:19]} UTC): "
        f"extract {values} from {session} again?",
        f"`bsd undo {session}{'' if op is None else f' {op}'} --yes`",
    )
    return operation.operation


def _to_be_undone(operations: Sequence[PastOperation], op: int | None) -> PastOperation | None:
    """Return the operation `op`, or the newest that can be undone; None if there is none."""
    for operation in operations:
        if operation.operation == op:
            return operation
        if op is None and operation.undoes is None and operation.state != "undone":
            return operation
    return None


def _is_restore(action: str) -> bool:
    return action.startswith("restore")


def tell_undone(answer: Undone, session: SessionName) -> None:
    operation = f"operation {answer.undone} ({answer.action}, {answer.at[:19]} UTC)"
    if answer.effect is not None:
        say(f"`bsd undo {session} {answer.undone}` undoes {operation} of {session}:")
        for sentence in answer.effect.consequence:
            say(f"  {sentence}")
        say(_DRY)
        return
    out = ", whose values are extracted again" if _is_restore(answer.action) else ""
    say(f"Undid {operation} of {session}: {counted(len(answer.entries), 'entry')}{out}")
    if answer.stays:
        say(f"  Restored meanwhile, and left as they are: {counted(len(answer.stays), 'entry')}")
    if answer.gone:
        say(f"  Deleted by another program since: {counted(len(answer.gone), 'entry')}")
    for number in answer.operations:
        say(f"  `bsd undo {session} {number}` does it again")
    if answer.action == "extract":
        note(
            f"The values stay inline until `bsd extract {session}` extracts them again, or "
            f"`bsd set-extractable {session} ENTRY unset` lets the daemon extract an entry"
        )


# --- all since a moment ---


def _undo_many(
    call: Call,
    since: str,
    agent: str | None,
    session: SessionName | None,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    if not (dry_run or yes):
        with call.context(changes=False, ends_early=True) as context:
            foreseen = undo_since(context, since, agent=agent, session=session, dry_run=True)
        if call.stop_code or not foreseen.undone:
            return _report(call, replace(foreseen, dry_run=False))
        note("\n".join(_totals(foreseen)))
        named = [str(session)] if session else []
        unasked = ["bsd undo", *named, f"--since {since}", *([f"--agent {agent}"] if agent else [])]
        operations = counted(foreseen.operations, "operation")
        ask_first(
            f"Undo {operations} in {counted(foreseen.undone, 'session')}?",
            f"`{' '.join([*unasked, '--yes'])}`",
        )
    with call.context(changes=not dry_run, ends_early=True) as context:
        answer = undo_since(context, since, agent=agent, session=session, dry_run=dry_run)
    return _report(call, answer)


def _report(call: Call, answer: UndoneSince) -> int:
    call.answer(answer, tell_undone_since)
    for one in answer.sessions:
        if one.doubt is not None:
            note(f"{one.session}: {one.doubt}. They stay (try: `bsd history {one.session}`)")
        match one.status:
            case UndoStatus.FAILED:
                Problem(f"{one.session}: {one.reason}", _exit_code(one), one.hint).show()
            case UndoStatus.BUSY:
                Problem(f"{one.session}: {one.reason}", Busy.exit_code, one.hint).show()
            case UndoStatus.LEFT:
                hint = f" (try: {one.hint})" if one.hint else ""
                note(f"{one.session} was left as it is: {one.reason}{hint}")
            case UndoStatus.UNCHANGED:
                note(f"{one.session}: {one.reason}")
    if answer.not_begun:
        note(f"Stopped: {counted(answer.not_begun, 'session')} not begun")
    return call.stop_code or _code(answer)


def _code(answer: UndoneSince) -> int:
    """Return the exit code: 0 if all is undone.

    Else the code of the errors (1 if they differ), 4 if sessions are only busy, 1 if some were
    left.
    """
    failed = {_exit_code(one) for one in answer.sessions if one.status is UndoStatus.FAILED}
    if failed:
        return failed.pop() if len(failed) == 1 else 1
    statuses = {one.status for one in answer.sessions}
    if UndoStatus.BUSY in statuses:
        return Busy.exit_code
    return int(UndoStatus.LEFT in statuses or any(one.doubt for one in answer.sessions))


def _exit_code(one: SessionUndone) -> int:
    return one.error.exit_code if one.error else 1


def tell_undone_since(answer: UndoneSince) -> None:
    rows = [_row(one, dry_run=answer.dry_run) for one in answer.sessions]
    if rows:
        columns = ("SESSION", "", "OPERATIONS", "VALUES", "GROWS BY", "TOKENS")
        print_table(columns, rows, right=columns[2:])
        say()
    for line in _totals(answer):
        say_wrapped(line, 4)
    if answer.dry_run:
        say(_DRY)
    elif answer.undone:
        note("The values stay inline until you extract a session by hand.")


def _row(one: SessionUndone, *, dry_run: bool) -> tuple[str, ...]:
    would = "would be " if dry_run and one.status is UndoStatus.UNDONE else ""
    effect = one.effect
    if effect is None:
        done = f"{len(one.operations)} of {one.found}" if one.operations else f"0 of {one.found}"
        return one.session, f"{would}{one.status}", done, "", "", ""
    grown = effect.bytes_after - effect.bytes_before
    return (
        one.session,
        f"{would}{one.status}",
        f"{len(one.operations):,}",
        f"{effect.values_back:,}",
        ("−" if grown < 0 else "") + size(abs(grown)),
        f"{'~' if effect.tokens else ''}{effect.tokens:,}",
    )


def _totals(answer: UndoneSince) -> list[str]:
    if not answer.undone:
        moment = answer.since[:16].replace("T", " ")
        return [f"bsd has made no changes since {moment} UTC that are left to undo"]
    would = "would be undone" if answer.dry_run else "undone"
    operations = counted(answer.operations, "operation")
    where = f"in {counted(answer.undone, 'session')}"
    lines = [f"{operations} {where} {would}:"]
    return [*lines, *(f"  {sentence}" for sentence in answer.total.consequence)]
