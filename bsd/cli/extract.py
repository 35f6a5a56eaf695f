"""`bsd extract` and `bsd restore-all`: move values into the store and back, in many sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from bsd.actions.extract import extract
from bsd.actions.restore import RestoredCopy, copy_restored, restore_all
from bsd.cli.call import BsdCommand, Call, ask_first, confirm
from bsd.cli.completion import KEYS
from bsd.cli.each_session import each_session
from bsd.cli.new_file import new_file
from bsd.cli.options import sessions_argument, yes_option
from bsd.cli.outcomes import Outcomes, report
from bsd.cli.output import counted, note, say, size
from bsd.core.errors import ConfigError, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.planning.result import SessionResult, Status
from bsd.sessions.session import Session


@click.command("extract", cls=BsdCommand)
@sessions_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--keep-recent", type=int, metavar="N", help="Leave the N newest messages whole.")
@click.option("--min-value-length", type=int, metavar="N", help="Shortest value, in characters.")
@click.option("--keep-chars", type=int, metavar="N", help="Characters kept before a placeholder.")
@click.option(
    "--trigger-types",
    type=KEYS,
    metavar="T,…",
    help="thinking, tool_result, tool_call, assistant, user, system.",
)
@click.option("--age-threshold-hours", type=float, metavar="H", help="Leave younger entries alone.")
@click.option("--scope", metavar="all|display", help="display: only values that no model is sent.")
@click.option("--prefix-bound", metavar="skip|extract", help="Entries covered by signed thinking.")
@click.option(
    "--turn-over",
    is_flag=True,
    help="Treat the last turn of the named sessions as ended.",
)
@click.option(
    "--when",
    metavar="now|cold|pays",
    help="cold: leave entries in a warm prompt cache; pays: leave them unless it pays. Usual: now.",
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

    Without a name: all sessions of all agents. If a session is in use, the call waits for it, at
    most 30 seconds, then leaves it for the next time. The options apply to this call only; `bsd
    config set` changes the settings.

    A turn that has not ended stays whole. A turn ends with its answer, an error or an abort, or
    after a day without new lines. --turn-over treats the last turn of the named sessions as ended
    before that; the call still waits for a session in use.

    \b
    Examples:
      bsd extract --dry-run
      bsd extract
      bsd extract main/4f2a --keep-recent 10
      bsd extract main/4f2a --turn-over
      bsd extract --trigger-types thinking,tool_result,tool_call --min-value-length 2000
    """
    if turn_over and not sessions:
        text = "--turn-over needs the names of sessions: it cannot apply to all of them"
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
        why, hint = f"{path} is not a regular file", "move it away, or put a regular file there"
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
    """Put all values back into their sessions.

    Without a name: all sessions of all agents. bsd asks first, and offers to set `enabled` to
    false, since otherwise the next extraction would take the values out again; --yes agrees to
    both. With names, the setting stays as it is.

    If extraction is switched off, bsd also removes each `_restored` member that it has set. The
    files are then byte for byte as they were before bsd, except for pins, edits, redactions, and
    values that `retention` has deleted.

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
    # All sessions: the store's index is a cache, and may be lost where placeholders remain.
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
    except ConfigError as error:  # values are restored even if settings are unreadable
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
    """Return all sessions that are not excluded; if the exclusions cannot be read, all sessions."""
    try:
        return list(catalog.names(layout))
    except ConfigError:
        return list(catalog.names(layout.with_excluded()))


def _report_all(call: Call, outcomes: Outcomes, *, named: bool) -> None:
    """Print the outcomes; if no session was named, also problems with other files and stores."""
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
            note("Excluded sessions were left out (`bsd exclude`): `bsd restore-all AGENT/SESSION`")


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
    """Switch extraction off, so that restored values are not extracted again at once."""
    if not call.pruning.current.enabled:
        return
    if not yes and not confirm("Set `enabled` to false, so that nothing is extracted again?", ""):
        note("`enabled` stays true: the next extraction takes values out again")
        return
    call.log(writes=True)
    call.pruning.update({"enabled": False})
    note("`enabled` is false now; `bsd config set enabled true` switches extraction on again")


def _write_copy(call: Call, sessions: Sequence[SessionName], path: str) -> int:
    """Write the restored form of one session to a new file; the session may be in use."""
    if len(sessions) != 1:
        raise Invalid("--to writes one session", hint="bsd restore-all AGENT/SESSION --to FILE")
    session = sessions[0]
    Session(call.layout.with_excluded(), session).refuse_no_session()
    with (
        new_file(path) as write,
        call.context(changes=False, session=session) as context,
    ):
        answer = copy_restored(context, session, write)
    return tell_copy(call, answer, path)


def tell_copy(call: Call, answer: RestoredCopy, path: str) -> int:
    """Answer a command that wrote a copy of a session to a file; return its exit code."""
    call.answer(
        answer,
        lambda answer: say(
            f"{path} is {answer.session} with {counted(answer.values, 'value')} inline"
        ),
    )
    for key, why in answer.unavailable.items():
        note(f"{key} stays a placeholder: {why}")
    return 1 if answer.unavailable else 0
