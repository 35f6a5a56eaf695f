"""`bsd extract`: values into the store, or with --dry-run a report of what would go there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.tool_commands import KEYS

if TYPE_CHECKING:
    from bsd.doors.cli.many import Progressed
    from bsd.foundation.layout import SessionName
    from bsd.session.examiner import Examiner
    from bsd.session.surgeon import Surgeon
    from bsd.surgery.result import SessionResult


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
@click.pass_obj
def extract(call: Call, /, sessions: tuple[SessionName, ...], dry_run: bool, **options: Any) -> int:
    from bsd.doors.cli.many import each_session, look_at_each
    from bsd.doors.cli.many_report import report
    from bsd.doors.cli.names import all_sessions
    from bsd.surgery.result import Status

    overrides = {field: value for field, value in options.items() if value is not None}

    def work(surgeon: Surgeon, name: SessionName, progress: Progressed) -> SessionResult:
        return surgeon.extract(name, by_hand=True, overrides=overrides, progress=progress)

    def look(examiner: Examiner, name: SessionName, progress: Progressed) -> SessionResult:
        return examiner.extraction(name, by_hand=True, overrides=overrides, progress=progress)

    names = list(dict.fromkeys(sessions)) or all_sessions(call.layout)
    if dry_run:
        outcomes = look_at_each(call, names, look, Status.EXTRACTED, may_go=not sessions)
    else:
        outcomes = each_session(call, names, work, Status.EXTRACTED, may_go=not sessions)
    report(call, outcomes, named=bool(sessions))
    return outcomes.exit_code
