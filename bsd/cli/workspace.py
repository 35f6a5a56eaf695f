"""`bsd workspace`: directories in which programs run, and which are deleted when unused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from bsd.cli.call import BsdGroup, Call, NoRoot, ask_first
from bsd.cli.completion import offering
from bsd.cli.options import yes_option
from bsd.cli.output import counted, note, print_table, safe, say, size
from bsd.cli.stopping import stop_request
from bsd.core.errors import Invalid
from bsd.core.formatting import format_duration, iso_utc, parse_duration
from bsd.workspaces import ExecutionResult, Limits, PruneResult, actions
from bsd.workspaces.actions import WorkspaceRoot, rules_of
from bsd.workspaces.place import DEFAULT_ROOT
from bsd.workspaces.prune import Rules

root_option = click.option(
    "--workspace-root", "place", metavar="DIR", help="The directory that holds the workspaces."
)


def _known(call: Call, _: click.Context) -> Iterator[str]:
    place = call.settings.workspace_root
    return iter(sorted(os.listdir(place)) if place else ())


def _open(call: Call, place: str | None, *, writes: bool) -> WorkspaceRoot:
    """Return the workspaces of this call. Without an OpenClaw root there is no log or audit."""
    settings = call.settings
    try:
        layout = call.layout
        call.log(writes=writes)
    except NoRoot:
        if call.root is not None:  # the user named it
            raise
        layout = None
        if writes:
            call.refuse_if_readonly()
    root = Path(place) if place else settings.workspace_root or DEFAULT_ROOT
    return WorkspaceRoot(root, layout, rules_of(settings))


@click.group("workspace", cls=BsdGroup)
def workspace_group() -> None:
    """Run programs in directories that expire when unused.

    The workspaces are in --workspace-root, else in the directory of the setting workspace_root,
    else in the directory `workspace` here. Workspaces in use are never pruned.

    \b
    Examples:
      bsd workspace create build-7
      bsd workspace run build-7 -- python3 -c 'print(6 * 7)'
      bsd workspace list --sizes
      bsd workspace prune --older-than 24h --dry-run
      bsd workspace prune --max-count 100 --yes
      bsd workspace repair --dry-run
    """


@workspace_group.command("create")
@click.argument("session_id", metavar="[ID]", required=False)
@root_option
@click.pass_obj
def create_command(call: Call, /, session_id: str | None, place: str | None) -> None:
    """Create a workspace, or open the one with this ID; without an ID, a new one is generated."""
    answer = actions.create(_open(call, place, writes=True), session_id)
    call.answer(answer, tell_created)


def tell_created(made: actions.CreatedWorkspace) -> None:
    say(f"{made.session_id} {'is created' if made.created else 'already exists'}: {made.path}")


@workspace_group.command("touch")
@click.argument("session_id", metavar="ID", shell_complete=offering(_known))
@root_option
@click.pass_obj
def touch_command(call: Call, /, session_id: str, place: str | None) -> int:
    """Mark a workspace as used now. Exit code 1 if it has no metadata."""
    answer = actions.touch(_open(call, place, writes=True), session_id)
    call.answer(answer, tell_touched)
    return int(answer.metadata is None)


def tell_touched(done: actions.TouchedWorkspace) -> None:
    name = done.session_id
    if done.metadata is not None:
        say(f"{name} counts as used now, {iso_utc(done.metadata.updated_at)}")
    else:
        note(f"{name} has no usable metadata: `bsd workspace repair {name}` writes it")


@workspace_group.command("list")
@root_option
@click.option("--sizes", is_flag=True, help="Read the size of every file.")
@click.pass_obj
def list_command(call: Call, /, place: str | None, sizes: bool) -> None:
    """List the workspaces, the longest unused first."""
    answer = actions.list_workspaces(_open(call, place, writes=False), sizes=sizes)
    call.answer(answer, tell_workspaces)


def tell_workspaces(found: actions.Workspaces) -> None:
    if not found.workspaces:
        say(f"there are no workspaces in {found.workspace_root}")
        return
    sizes = any(workspace.bytes is not None for workspace in found.workspaces)
    columns = ["ID", "UNUSED", *(["SIZE"] if sizes else []), "RUNS", "LAST ERROR"]
    rows = []
    for workspace in found.workspaces:
        used = workspace.metadata
        amount = "?" if workspace.bytes is None else size(workspace.bytes)
        rows.append(
            [
                workspace.session_id,
                _hours(workspace.age_hours),
                *([amount] if sizes else []),
                str(used.execution_count) if used else "?",
                (used.last_error or "") if used else f"({workspace.detail})",
            ]
        )
    print_table(columns, rows, right=("UNUSED", "SIZE", "RUNS"), last_may_shrink=True)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "?"
    return "in the future" if hours < 0 else format_duration(int(hours * 3_600_000))


@workspace_group.command("run")
@click.argument("session_id", metavar="ID", shell_complete=offering(_known))
@click.argument("argv", metavar="-- ARGV...", nargs=-1, required=True, type=click.UNPROCESSED)
@root_option
@click.option(
    "--time-limit", metavar="SECONDS", type=float, help="Kill the program after this time."
)
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Set a variable for the program.")
@click.option(
    "--isolate/--no-isolate",
    default=True,
    help="Isolate the program with bubblewrap (refused if that does not work here), or run it"
    " with all of your rights.",
)
@click.option(
    "--readable", metavar="DIR", multiple=True, help="Let an isolated program read this directory."
)
@click.pass_obj
def run_command(
    call: Call,
    /,
    *,
    session_id: str,
    argv: tuple[str, ...],
    place: str | None,
    time_limit: float | None,
    env: tuple[str, ...],
    isolate: bool,
    readable: tuple[str, ...],
) -> int:
    """Run a program in a workspace. Exit code 1 if it fails; its own is in --json.

    An isolated program has no network, and can write only to its workspace. If bubblewrap does not
    work on this machine, the program runs only with --no-isolate. --json lists the limits that
    hold.
    """
    answer = actions.run(
        _open(call, place, writes=True),
        session_id,
        argv,
        limits=_limits(call, time_limit),
        env=_environment(env),
        isolate=isolate,
        readable=[Path(os.path.abspath(path)) for path in readable],
    )
    call.answer(answer, tell_run)
    return 0 if answer.succeeded else 1


def _limits(call: Call, seconds: float | None) -> Limits:
    limits: dict[str, Any] = asdict(call.settings.workspace_limits)
    if seconds is not None:
        if not 0 < seconds < float("inf"):
            raise Invalid("--time-limit must be a number of seconds, more than 0")
        limits["seconds"] = seconds
    return Limits(**limits)


def _environment(pairs: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise Invalid(f"--env {pair!r} is not of the form NAME=VALUE")
        variables[name] = value
    return variables


def tell_run(done: ExecutionResult) -> None:
    """Print the program's output, and to stderr notes on isolation, limits and errors."""
    for text, stream in ((done.stdout, sys.stdout), (done.stderr, sys.stderr)):
        stream.write(safe(text, lines=True) if stream.isatty() else text)
        stream.flush()
    if done.truncated:
        note(f"(output cut: {done.stdout_bytes:,} and {done.stderr_bytes:,} bytes in all)")
    if not done.isolated:
        note(f"(not isolated: {done.isolation})")
    for name, how in done.limits.items():
        if "not" in how.split():
            note(f"(limit {name}: {how})")
    if done.metadata is None:
        note("(without usable metadata: its use is not recorded, and it is never pruned)")
    if done.error:
        note(f"{done.argv[0]}: {done.error}")


@workspace_group.command("prune")
@root_option
@click.option(
    "--older-than", metavar="AGE", help='Workspaces unused for AGE: 24h, 7d, 30m, or "never".'
)
@click.option("--max-count", metavar="N", type=click.IntRange(0), help="Keep at most N workspaces.")
@click.option(
    "--max-bytes", metavar="N", type=click.IntRange(0), help="Keep at most N bytes in total."
)
@click.option("--dry-run", is_flag=True, help="List the workspaces; delete none.")
@yes_option
@click.pass_obj
def prune_command(
    call: Call,
    /,
    place: str | None,
    older_than: str | None,
    max_count: int | None,
    max_bytes: int | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete workspaces that are no longer used, the oldest first.

    Without an option, the settings apply: workspaces unused for workspace_max_age are deleted.
    """
    root = _open(call, place, writes=not dry_run)
    rules = _rules(root, older_than, max_count, max_bytes)
    if not (dry_run or yes):
        _ask(root, rules)
    bar = Progress(
        console=Console(stderr=True), transient=True, disable=dry_run or not sys.stderr.isatty()
    )
    task = bar.add_task("pruning")
    with stop_request() as request, bar:
        answer = actions.prune(
            root,
            rules,
            dry_run=dry_run,
            progress=lambda done, planned: bar.update(task, completed=done, total=planned),
            stopping=lambda: request.number is not None,
        )
    call.answer(answer, tell_pruned)
    return 1 if answer.errors else request.exit_code


def _rules(
    root: WorkspaceRoot, older_than: str | None, max_count: int | None, max_bytes: int | None
) -> Rules:
    """Return the rules of the options, or those of the settings if no option is given."""
    if older_than is None and max_count is None and max_bytes is None:
        return root.rules
    hours = None
    if older_than is not None and older_than.strip().lower() != "never":
        hours = parse_duration(older_than, minimum=0) / 3_600_000
    return Rules(hours, max_count, max_bytes)


def _ask(root: WorkspaceRoot, rules: Rules) -> None:
    """Ask before workspaces are deleted; raises Conflict if the answer is no."""
    found = actions.prune(root, rules, dry_run=True)
    if found.deleted_sessions or found.leftovers:
        count = counted(len(found.deleted_sessions), "workspace")
        what = f"{count} ({size(found.reclaimed_bytes)}) in {root.place.resolve()}"
        ask_first(f"Delete {what} for good?", "`bsd workspace prune --yes`", "deleted")


def tell_pruned(done: PruneResult) -> None:
    if done.dry_run:
        for session_id in done.deleted_sessions:
            say(session_id)
    for session_id, detail in done.details.items():
        note(f"{session_id} is skipped: {detail}")
    for session_id, error in done.errors.items():
        note(f"{session_id}: {error}")
    say(str(done))


@workspace_group.command("repair")
@click.argument("session_id", metavar="[ID]", required=False)
@root_option
@click.option("--dry-run", is_flag=True, help="List the repairs; write no file.")
@click.pass_obj
def repair_command(call: Call, /, session_id: str | None, place: str | None, dry_run: bool) -> int:
    """Write missing or broken metadata again, from the files' times; without an ID, in all."""
    answer = actions.repair(_open(call, place, writes=not dry_run), session_id, dry_run=dry_run)
    call.answer(answer, tell_repairs)
    return 1 if any(workspace.error for workspace in answer.workspaces) else 0


def tell_repairs(done: actions.Repairs) -> None:
    for workspace in done.workspaces:
        if workspace.error:
            note(f"{workspace.session_id}: {workspace.error}")
        elif workspace.metadata and workspace.reason:
            would = "would count" if done.dry_run else "counts"
            moment = iso_utc(workspace.metadata.updated_at)
            say(f"{workspace.session_id}: {workspace.detail}; it {would} as used at {moment}")
        else:
            say(f"{workspace.session_id} needs no repair")
    if not done.workspaces:
        say("no workspace needs a repair")
