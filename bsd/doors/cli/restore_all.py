"""`bsd restore-all`: everything back inline, before leaving bsd or an upgrade that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command, confirm
from bsd.doors.cli.output import counted, note, print_json, say, size

if TYPE_CHECKING:
    from bsd.doors.cli.many import Progressed
    from bsd.foundation.layout import SessionName
    from bsd.session.surgeon import Surgeon
    from bsd.surgery.result import SessionResult


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
    from bsd.doors.cli.many import each_session
    from bsd.doors.cli.many_report import report
    from bsd.doors.cli.names import all_sessions
    from bsd.foundation.errors import ConfigError
    from bsd.surgery.result import Status

    if copy is not None:
        return _copy(call, sessions, copy)
    # All of them: the store's index is a cache, and a placeholder may stand where it is lost.
    names = list(dict.fromkeys(sessions)) or all_sessions(call.layout)
    for name in sessions:
        call.layout.session_file(name)  # before anybody is asked about a session that is not there
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

    def work(surgeon: Surgeon, name: SessionName, progress: Progressed) -> SessionResult:
        return surgeon.restore_all(name, leaving=leaving, progress=progress)

    outcomes = each_session(call, names, work, Status.RESTORED)
    report(call, outcomes, named=bool(sessions))
    if not sessions:
        _note_lone_stores(call)
    if problem and offers:
        raise problem
    return outcomes.exit_code


def _note_lone_stores(call: Call) -> None:
    """Whoever leaves bsd wants to know of what has no transcript to come back into."""
    from bsd.care.leftovers import lone_stores

    if stores := sum(1 for _ in lone_stores(call.layout)):
        text = "has no transcript" if stores == 1 else "have no transcripts"
        note(f"{counted(stores, 'store')} {text} now: `bsd verify` says where they may be")


def _copy(call: Call, sessions: tuple[SessionName, ...], path: str) -> int:
    """Write what one session would be; what cannot be edited, or is in use, can be had so."""
    import os

    from bsd.foundation.errors import Conflict, Invalid, os_problem
    from bsd.foundation.files import write_all

    if len(sessions) != 1:
        raise Invalid("--to writes one session", hint="bsd restore-all AGENT/SESSION --to FILE")
    examiner = call.examiner()
    call.layout.session_file(sessions[0])
    try:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already", hint="name a file that is not") from None
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error
    try:
        values, missing = examiner.restored_copy(sessions[0], lambda raw: write_all(target, raw))
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
    from bsd.care import catalog
    from bsd.foundation.errors import Conflict

    wanted = set(names)
    infos = [info for info in catalog.sessions(call.layout) if info.name in wanted]
    entries = sum(info.extracted_entries for info in infos)
    amount = size(sum(info.extracted_bytes for info in infos))
    one = f"session {names[0]}" if len(names) == 1 else counted(len(names), "session")
    where = f"into {one} under {call.layout.root}"
    question = f"Put {counted(entries, 'entry')} ({amount}) back {where}?"
    unasked = f"`{' '.join(['bsd restore-all', *named, '--yes'])}`"
    if not confirm(question, unasked):
        raise Conflict("nothing was changed", hint=f"{unasked} does not ask")


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
