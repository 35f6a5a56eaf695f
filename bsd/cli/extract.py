"""`bsd extract` and `bsd restore-all`: values into the store and back, in many sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from bsd.actions.extract import extract
from bsd.actions.restore import copy_restored, restore_all
from bsd.cli.call import BsdCommand, Call, ask_first, confirm
from bsd.cli.completion import KEYS
from bsd.cli.each_session import each_session
from bsd.cli.options import sessions_argument, yes_option
from bsd.cli.outcomes import Outcomes, report
from bsd.cli.output import counted, note, say, size
from bsd.core.errors import ConfigError, Conflict, Invalid, os_problem
from bsd.core.files import write_all
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.planning.result import SessionResult, Status
from bsd.sessions.session import Session


@click.command("extract", cls=BsdCommand)
@sessions_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--keep-recent", type=int, metavar="N", help="So many newest messages stay whole.")
@click.option("--min-value-length", type=int, metavar="N", help="Shortest value, in characters.")
@click.option("--keep-chars", type=int, metavar="N", help="Characters kept before a placeholder.")
@click.option(
    "--trigger-types",
    type=KEYS,
    metavar="T,…",
    help="thinking, tool_result, tool_call, assistant, user, system.",
)
@click.option("--age-threshold-hours", type=float, metavar="H", help="Leave younger entries alone.")
@click.option("--scope", metavar="all|display", help="display: only what no model is sent.")
@click.option("--prefix-bound", metavar="skip|extract", help="What signed thinking stands on.")
@click.option(
    "--turn-over",
    is_flag=True,
    help="The last turn of the named sessions has ended, whatever they say.",
)
@click.option(
    "--when", metavar="now|cold", help="cold: what a warm prompt cache holds stays. Usual: now."
)
@click.pass_obj
def extract_command(
    call: Call,
    /,
    sessions: tuple[SessionName, ...],
    dry_run: bool,
    turn_over: bool,
    **options: Any,
) -> int:
    """Move large old values into the store.

    Without a name: all sessions of all agents. A session in use is waited for, at most 30 seconds,
    and left for the next time. The options below hold for this call only; `bsd config set` changes
    what holds always.

    A turn that has not ended stays whole. It ends with its answer, an error or an abort, and after
    a day in which nothing is added. --turn-over says of the named sessions that it has ended before
    that; a session in use is waited for all the same.

    \b
    Examples:
      bsd extract --dry-run
      bsd extract
      bsd extract main/4f2a --keep-recent 10
      bsd extract main/4f2a --turn-over
      bsd extract --trigger-types thinking,tool_result,tool_call --min-value-length 2000
    """
    if turn_over and not sessions:
        text = "--turn-over needs the names of sessions: it cannot be said of all of them"
        raise Invalid(text, hint="bsd extract AGENT/SESSION --turn-over")
    settings = {name: value for name, value in options.items() if value is not None}
    names = list(dict.fromkeys(sessions)) or list(catalog.names(call.layout, strays=False))
    outcomes = each_session(
        call,
        lambda context, name: extract(
            context, name, dry_run=dry_run, settings=settings, turn_over=turn_over
        ),
        names,
        Status.EXTRACTED,
        dry_run=dry_run,
        may_go=not sessions,
    )
    _report_all(call, outcomes, named=bool(sessions))
    return outcomes.exit_code


def _unusable(layout: Layout) -> Iterator[SessionResult]:
    """Yield a result for each path that is no session file, and each agent that cannot be read."""
    for name, path in catalog.no_files(layout):
        why, hint = f"{path} is not a regular file", "move it away, or put a plain file there"
        yield SessionResult(str(name), Status.LEFT_ALONE, reason=why, hint=hint)
    for where, error in catalog.unreadable(layout):
        yield SessionResult(
            where, Status.FAILED, reason=error.message, hint=error.hint, error=type(error)
        )


@click.command("restore-all", cls=BsdCommand)
@sessions_argument
@yes_option
@click.option("--keep-enabled", is_flag=True, help="Leave the setting `enabled` as it is.")
@click.option(
    "--to",
    "copy",
    metavar="FILE",
    help="Write one session, as it would be, to a new file; the session stays as it is.",
)
@click.pass_obj
def restore_all_command(
    call: Call,
    /,
    sessions: tuple[SessionName, ...],
    yes: bool,
    keep_enabled: bool,
    copy: str | None,
) -> int:
    """Put everything back into its session.

    Without a name: all sessions of all agents. It asks first, and offers to set `enabled` to false
    before it begins, or the next extraction would start again; --yes agrees to both. With names,
    the setting is left as it is.

    With extraction switched off, no trace stays: each `_restored` that bsd has set goes, too, and
    files are byte for byte as they were before bsd, but for pins, edits, redactions, and what
    `retention` has deleted by then.

    \b
    Examples:
      bsd restore-all
      bsd restore-all --yes --keep-enabled
      bsd restore-all main/4f2a
      bsd restore-all main/4f2a --to whole.jsonl
    """
    if copy is not None:
        return _write_copy(call, sessions, copy)
    for name in sessions:
        Session(call.layout.with_excluded(), name).refuse_no_session()
    # All of them: the store's index is a cache, and a placeholder may stand where it is lost.
    names = list(dict.fromkeys(sessions)) or _all_sessions(call.layout)
    call.refuse_if_readonly()
    if names and not yes:
        _ask(call.layout, names, sessions)
    offers = not sessions and not keep_enabled
    problem = None
    try:
        if offers:
            _offer_to_disable(call, yes=yes)
        uninstalling = not call.pruning.current.enabled
    except ConfigError as error:  # unreadable settings do not keep values from coming back
        uninstalling, problem = False, error
    outcomes = each_session(
        call,
        lambda context, name: restore_all(context, name, uninstalling=uninstalling),
        names,
        Status.RESTORED,
    )
    _report_all(call, outcomes, named=bool(sessions))
    if problem and offers:
        raise problem
    return outcomes.exit_code


def _all_sessions(layout: Layout) -> list[SessionName]:
    """Return all sessions; those that are excluded if it cannot be read which they are."""
    try:
        return list(catalog.names(layout))
    except ConfigError:
        return list(catalog.names(layout.with_excluded()))


def _report_all(call: Call, outcomes: Outcomes, *, named: bool) -> None:
    """Print the outcomes; if no session was named, also the leftovers elsewhere."""
    if not (named or outcomes.stopped_by):
        outcomes.results += _unusable(call.layout)
    report(call, outcomes, named=named)
    if named or outcomes.aim is not Status.RESTORED:
        return
    if stores := sum(1 for _ in stores_without_transcript(call.layout)):
        text = "has no transcript" if stores == 1 else "have no transcripts"
        note(f"{counted(stores, 'store')} {text} now: `bsd verify` says where they may be")
    with suppress(ConfigError):
        if call.layout.exclusions():
            note("What is excluded was left out (`bsd exclude`): `bsd restore-all AGENT/SESSION`")


def _ask(layout: Layout, names: Sequence[SessionName], named: Sequence[SessionName]) -> None:
    """Ask whether to put the values back; raises Conflict if the answer is no."""
    wanted = set(names)
    infos = [info for info in catalog.sessions(layout) if info.name in wanted]
    entries = sum(info.extracted_entries for info in infos)
    amount = size(sum(info.extracted_bytes for info in infos))
    which = f"session {names[0]}" if len(names) == 1 else counted(len(names), "session")
    ask_first(
        f"Put {counted(entries, 'entry')} ({amount}) back into {which} under {layout.root}?",
        f"`{' '.join(['bsd restore-all', *map(str, named), '--yes'])}`",
    )


def _offer_to_disable(call: Call, *, yes: bool) -> None:
    """Switch extraction off before anything comes back, or it would leave again at once."""
    if not call.pruning.current.enabled:
        return
    if not yes and not confirm("Set `enabled` to false, so that nothing is extracted again?", ""):
        note("`enabled` stays true: the next extraction starts again")
        return
    call.log(writes=True)
    call.pruning.update({"enabled": False})
    note("`enabled` is false now; `bsd config set enabled true` starts again")


def _write_copy(call: Call, sessions: Sequence[SessionName], path: str) -> int:
    """Write the new form of one session, also of one that is in use or cannot be edited."""
    if len(sessions) != 1:
        raise Invalid("--to writes one session", hint="bsd restore-all AGENT/SESSION --to FILE")
    session = sessions[0]
    Session(call.layout.with_excluded(), session).refuse_no_session()
    try:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already", hint="name a file that is not") from None
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error
    try:
        with call.context(changes=False, session=session) as context:
            answer = copy_restored(context, session, lambda raw: write_all(target, raw))
        os.fsync(target)
    except BaseException as error:  # half a copy is none
        os.unlink(path)
        if isinstance(error, OSError):
            raise os_problem(error, f"writing {path}") from error
        raise
    finally:
        os.close(target)
    call.answer(
        answer,
        lambda answer: say(f"{path} is {session} with {counted(answer.values, 'value')} inline"),
    )
    for key, why in answer.unavailable.items():
        note(f"{key} stays a placeholder: {why}")
    return 1 if answer.unavailable else 0
