"""`bsd extract` and `bsd restore-all`: values into the store and back, in many sessions.

The way back is there before leaving bsd, or before an upgrade that needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from bsd.actions.parameters import KEYS, parameters
from bsd.actions.verbs import EXTRACT, RESTORE_ALL, Extract, RestoreAll
from bsd.cli.call import Call, ask_first, command, confirm
from bsd.cli.completion import SESSION, all_sessions
from bsd.cli.many import each_session, report
from bsd.cli.output import counted, note, print_json, say, size
from bsd.core.errors import ConfigError, Conflict, Invalid, os_problem
from bsd.core.files import write_all
from bsd.core.layout import SessionName
from bsd.maintenance import catalog
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.planning.plan import Means
from bsd.planning.restore import restored_copy
from bsd.planning.result import SessionResult, Status
from bsd.sessions.session import Session
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript


@command(
    "extract",
    """
    Without a name: all sessions of all agents. A session in use is waited for, at most 30 seconds,
    and left for the next time. The options below hold for this call only; `bsd config set` changes
    what holds always.

    \b
    Examples:
      bsd extract --dry-run
      bsd extract
      bsd extract main/4f2a --keep-recent 10
      bsd extract --trigger-types thinking,tool_result,tool_call --min-value-length 2000
    """,
)
@click.argument("sessions", nargs=-1, type=SESSION, metavar="[AGENT/SESSION]...")
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
@click.pass_obj
def extract(call: Call, /, sessions: tuple[SessionName, ...], dry_run: bool, **options: Any) -> int:
    settings = {field: value for field, value in options.items() if value is not None}
    names = list(dict.fromkeys(sessions)) or list(catalog.names(call.layout, strays=False))
    asked = Extract(dry_run, settings)
    outcomes = each_session(call, EXTRACT, asked, names, Status.EXTRACTED, may_go=not sessions)
    if not (sessions or outcomes.stopped_by):
        outcomes.results += [*_no_files(call), *_unreadable(call)]
    report(call, outcomes, named=bool(sessions))
    return outcomes.exit_code


extract.params[1:1] = parameters(Extract, own={"settings": None})


def _no_files(call: Call) -> Iterator[SessionResult]:
    """What nobody can work on, since something else lies where a session should be."""
    for name, path in catalog.no_files(call.layout):
        why, hint = f"{path} is not a regular file", "move it away, or put a plain file there"
        yield SessionResult(str(name), Status.LEFT_ALONE, reason=why, hint=hint)


def _unreadable(call: Call) -> Iterator[SessionResult]:
    """Agents whose sessions cannot be listed: so nothing was done to them."""
    for where, error in catalog.unreadable(call.layout):
        yield SessionResult(
            where, Status.FAILED, reason=error.message, hint=error.hint, error=type(error)
        )


@command(
    "restore-all",
    """
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
    """,
)
@click.argument("sessions", nargs=-1, type=SESSION, metavar="[AGENT/SESSION]...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--keep-enabled", is_flag=True, help="Leave the setting `enabled` as it is.")
@click.option(
    "--to",
    "copy",
    metavar="FILE",
    help="Write one session, as it would be, to a new file; the session stays as it is.",
)
@click.pass_obj
def restore_all(
    call: Call,
    /,
    sessions: tuple[SessionName, ...],
    yes: bool,
    keep_enabled: bool,
    copy: str | None,
) -> int:
    if copy is not None:
        return _copy(call, sessions, copy)
    # All of them: the store's index is a cache, and a placeholder may stand where it is lost.
    names = list(dict.fromkeys(sessions)) or all_sessions(call.layout)
    for name in sessions:
        # Before anybody is asked about a session that is not there.
        Session(call.layout, name).refuse_no_session()
    call.refuse_if_readonly()
    if names and not yes:
        _ask(call, names, list(map(str, sessions)))
    offers = not sessions and not keep_enabled
    problem = None
    try:
        if offers:
            _offer_to_disable(call, yes=yes)
        leaving = not call.pruning.current.enabled
    except ConfigError as broken:  # what is away comes back all the same
        leaving, problem = False, broken

    outcomes = each_session(call, RESTORE_ALL, RestoreAll(leaving), names, Status.RESTORED)
    if not (sessions or outcomes.stopped_by):
        outcomes.results += [*_no_files(call), *_unreadable(call)]
    report(call, outcomes, named=bool(sessions))
    if not sessions:
        _note_stores_without_transcript(call)
    if problem and offers:
        raise problem
    return outcomes.exit_code


def _note_stores_without_transcript(call: Call) -> None:
    """Whoever leaves bsd wants to know of what has no transcript to come back into."""
    if stores := sum(1 for _ in stores_without_transcript(call.layout)):
        text = "has no transcript" if stores == 1 else "have no transcripts"
        note(f"{counted(stores, 'store')} {text} now: `bsd verify` says where they may be")


def _copy(call: Call, sessions: tuple[SessionName, ...], path: str) -> int:
    """Write what one session would be; what cannot be edited, or is in use, can be had so."""
    if len(sessions) != 1:
        raise Invalid("--to writes one session", hint="bsd restore-all AGENT/SESSION --to FILE")
    queries = call.queries()

    def copied(
        source: Transcript, fmt: TranscriptFormat, means: Means
    ) -> tuple[int, dict[str, str]]:
        return restored_copy(source, fmt, means.stored, lambda raw: write_all(target, raw))

    Session(call.layout, sessions[0]).refuse_no_session()
    try:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already", hint="name a file that is not") from None
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error
    try:
        values, missing = queries.look(sessions[0], copied)
        os.fsync(target)
    except BaseException as error:  # half a copy is none
        os.unlink(path)
        if isinstance(error, OSError):
            raise os_problem(error, f"writing {path}") from error
        raise
    finally:
        os.close(target)
    if call.json:
        print_json({"session": str(sessions[0]), "values": values, "unavailable": missing})
    else:
        say(f"{path} is {sessions[0]} with {counted(values, 'value')} inline")
    for key, why in missing.items():
        note(f"{key} stays a placeholder: {why}")
    return 1 if missing else 0


def _ask(call: Call, names: list[SessionName], named: list[str]) -> None:
    wanted = set(names)
    infos = [info for info in catalog.sessions(call.layout) if info.name in wanted]
    entries = sum(info.extracted_entries for info in infos)
    amount = size(sum(info.extracted_bytes for info in infos))
    one = f"session {names[0]}" if len(names) == 1 else counted(len(names), "session")
    where = f"into {one} under {call.layout.root}"
    question = f"Put {counted(entries, 'entry')} ({amount}) back {where}?"
    unasked = f"`{' '.join(['bsd restore-all', *named, '--yes'])}`"
    ask_first(question, unasked)


def _offer_to_disable(call: Call, *, yes: bool) -> None:
    """Switch extraction off before anything comes back: it would leave again, behind our back."""
    if not call.pruning.current.enabled:
        return
    if not yes and not confirm("Set `enabled` to false, so that nothing is extracted again?", ""):
        note("`enabled` stays true: the next extraction starts again")
        return
    call.log(writes=True)
    call.pruning.update({"enabled": False})
    note("`enabled` is false now; `bsd config set enabled true` starts again")
