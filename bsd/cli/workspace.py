"""`bsd workspace`: directories in which programs run, and which go when nobody uses them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bsd.cli.call import (
    BsdCommand,
    Call,
    NoRoot,
    ask_first,
    group,
    library_command,
    offering,
    stop_request,
)
from bsd.cli.output import counted, note, print_table, safe, say, size
from bsd.core.errors import Invalid
from bsd.core.formatting import format_duration, iso_utc, parse_duration
from bsd.workspaces import ExecutionResult, Limits, PruneResult, actions, verbs
from bsd.workspaces.actions import WorkspaceRoot, rules_of
from bsd.workspaces.place import DEFAULT_ROOT
from bsd.workspaces.prune import Rules

if TYPE_CHECKING:
    from bsd.core.layout import Layout

_MORE = """
The workspaces lie in --workspace-root, else where the setting workspace_root says, else in the
directory `workspace` here. Pruning never touches one that is in use.

\b
Examples:
  bsd workspace create build-7
  bsd workspace run build-7 -- python3 -c 'print(6 * 7)'
  bsd workspace list --sizes
  bsd workspace prune --older-than 24h --dry-run
  bsd workspace prune --max-count 100 --yes
  bsd workspace repair --dry-run
"""


_PLACE = "The directory that holds the workspaces."
_ROOT = click.option("--workspace-root", "place", metavar="DIR", help=_PLACE)


workspace = group("workspace", _MORE)


# --- the root that is meant ---


def _root(call: Call, place: str | None, *, writes: bool = True) -> WorkspaceRoot:
    """The workspaces that are meant; logs and audits if there is an OpenClaw root."""
    settings = call.settings
    root = Path(place) if place else settings.workspace_root if settings else None
    rules = rules_of(settings) if settings else Rules()
    layout = _layout(call)
    if layout is not None:
        call.log(writes=writes)
    elif writes:
        call.refuse_if_readonly()
    return WorkspaceRoot(root or DEFAULT_ROOT, layout, rules)


def _layout(call: Call) -> Layout | None:
    """Workspaces need no OpenClaw directory: without one there is no log and no audit."""
    try:
        return call.layout
    except NoRoot:
        if call.root is not None:  # it was named
            raise
        return None


def _opening(
    call: Call, writes: bool, /, place: str | None = None
) -> AbstractContextManager[WorkspaceRoot]:
    return nullcontext(_root(call, place, writes=writes))


# --- to create, to use, to list ---


def _say_created(made: actions.CreatedWorkspace) -> None:
    say(f"{made.session_id} {'is made' if made.created else 'was there already'}: {made.path}")


def _say_touched(done: actions.TouchedWorkspace) -> None:
    name = done.session_id
    if done.metadata is not None:
        say(f"{name} counts as used now, {iso_utc(done.metadata.updated_at)}")
    else:
        note(f"{name} has no usable metadata: `bsd workspace repair {name}` makes some")


def _say_list(found: actions.Workspaces) -> None:
    if not found.workspaces:
        say(f"there are no workspaces in {found.workspace_root}")
        return
    sizes = any(one.bytes is not None for one in found.workspaces)
    columns = ["ID", "UNUSED", "RUNS", "LAST ERROR"]
    if sizes:
        columns.insert(2, "SIZE")
    rows = []
    for one in found.workspaces:
        known = one.metadata
        row = [
            one.session_id,
            _hours(one.age_hours),
            str(known.execution_count) if known else "?",
            (known.last_error or "") if known else f"({one.detail})",
        ]
        if sizes:
            row.insert(2, "?" if one.bytes is None else size(one.bytes))
        rows.append(row)
    print_table(columns, rows, right=("UNUSED", "SIZE", "RUNS"), last_may_shrink=True)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "?"
    return "in the future" if hours < 0 else format_duration(int(hours * 3_600_000))


def _root_option() -> click.Option:
    return click.Option(["--workspace-root", "place"], metavar="DIR", help=_PLACE)


def _there(call: Call, _: click.Context) -> Iterator[str]:
    place = call.settings.workspace_root if call.settings else None
    return iter(sorted(os.listdir(place)) if place else ())


_known = offering(_there)

for _command in (
    library_command(verbs.CREATE, "create", _opening, _say_created, also=[_root_option()]),
    library_command(
        verbs.TOUCH,
        "touch",
        _opening,
        _say_touched,
        completed={"session_id": _known},
        also=[_root_option()],
        failed=lambda done: done.metadata is None,
    ),
    library_command(verbs.LIST, "list", _opening, _say_list, also=[_root_option()]),
):
    workspace.add_command(_command)


# --- to run a program ---


@workspace.command("run", cls=BsdCommand)
@click.argument("session_id", metavar="ID", shell_complete=_known)
@click.argument("argv", metavar="-- ARGV...", nargs=-1, required=True, type=click.UNPROCESSED)
@_ROOT
@click.option("--time-limit", metavar="SECONDS", type=float, help="Kill it after so long.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Give it a variable, too.")
@click.option(
    "--isolate/--no-isolate",
    default=True,
    help="Isolate it with bubblewrap (unless that does not work here, then it is refused), or run"
    " it with all of your rights.",
)
@click.option(
    "--readable", metavar="DIR", multiple=True, help="Let an isolated program read this, too."
)
@click.pass_obj
def run(
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

    An isolated program has no network, and writes nothing but its workspace. If bubblewrap does not
    work here, it runs only with --no-isolate. --json says which limits hold.
    """
    done = actions.run(
        _root(call, place),
        session_id,
        argv,
        limits=_limits(call, time_limit),
        env=_environment(env),
        isolate=isolate,
        readable=[Path(os.path.abspath(each)) for each in readable],
    )
    call.answer(done, _show_run)
    return 0 if done.succeeded else 1


def _limits(call: Call, seconds: float | None) -> Limits:
    known = asdict(call.settings.workspace_limits) if call.settings else {}
    if seconds is not None:
        if not 0 < seconds < float("inf"):
            raise Invalid("--time-limit must be a number of seconds, more than 0")
        known["seconds"] = seconds
    return Limits(**known)


def _environment(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise Invalid(f"--env {pair!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def _show_run(done: ExecutionResult) -> None:
    """Its output as it is, and what there is to say of it to stderr."""
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
        note("(without usable metadata: its use is not noted, and it is never pruned)")
    if done.error:
        note(f"{done.argv[0]}: {done.error}")


# --- to prune ---


@workspace.command("prune", cls=BsdCommand)
@_ROOT
@click.option("--older-than", metavar="AGE", help='Unused for so long: 24h, 7d, 30m, or "never".')
@click.option("--max-count", metavar="N", type=click.IntRange(0), help="Let at most N stay.")
@click.option(
    "--max-bytes", metavar="N", type=click.IntRange(0), help="Let N bytes in all of them stay."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(
    call: Call,
    /,
    place: str | None,
    older_than: str | None,
    max_count: int | None,
    max_bytes: int | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete the workspaces that nobody uses any more, the oldest first.

    Without an option by the settings: those unused for workspace_max_age.
    """
    root = _root(call, place, writes=not dry_run)
    rules = _rules(root, older_than, max_count, max_bytes)
    if not (dry_run or yes):
        _ask(root, rules)
    with stop_request() as request, _progress() as progress:
        done = actions.prune(
            root,
            rules,
            dry_run=dry_run,
            progress=progress,
            stopping=lambda: request.number is not None,
        )
    call.answer(done, _show_prune)
    return 1 if done.errors else request.exit_code


def _rules(
    root: WorkspaceRoot, older_than: str | None, max_count: int | None, max_bytes: int | None
) -> Rules:
    """As the options say; as the settings say, if there is none."""
    if older_than is None and max_count is None and max_bytes is None:
        return root.rules
    hours = None
    if older_than is not None and older_than.strip().lower() != "never":
        hours = parse_duration(older_than, minimum=0) / 3_600_000
    return Rules(hours, max_count, max_bytes)


def _ask(root: WorkspaceRoot, rules: Rules) -> None:
    found = actions.prune(root, rules, dry_run=True)
    if not found.deleted_sessions and not found.leftovers:
        return
    what = f"{counted(len(found.deleted_sessions), 'workspace')} ({size(found.reclaimed_bytes)})"
    question = f"Delete {what} in {root.place.resolve()} for good?"
    ask_first(question, "`bsd workspace prune --yes`", "deleted")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Shows how far it is, on a terminal: workspaces that are done, and planned."""
    if not sys.stderr.isatty():
        yield lambda _done, _planned: None
        return
    from rich import console, progress  # it takes longer to load than most prunings

    bar = progress.Progress(console=console.Console(stderr=True), transient=True)
    task = bar.add_task("pruning")

    def show(done: int, planned: int) -> None:
        bar.start()  # once there is something to show; again it does nothing
        bar.update(task, completed=done, total=planned)

    try:
        yield show
    finally:
        bar.stop()


def _show_prune(done: PruneResult) -> None:
    if done.dry_run:
        for session_id in done.deleted_sessions:
            say(session_id)
    for session_id, detail in done.details.items():
        note(f"{session_id} is skipped: {detail}")
    for session_id, error in done.errors.items():
        note(f"{session_id}: {error}")
    say(str(done))


# --- to repair ---


@workspace.command("repair", cls=BsdCommand)
@click.argument("session_id", metavar="[ID]", required=False)
@_ROOT
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@click.pass_obj
def repair(call: Call, /, session_id: str | None, place: str | None, dry_run: bool) -> int:
    """Make missing or broken metadata anew from the files' times; without an ID in all."""
    root = _root(call, place, writes=not dry_run)
    done = actions.repair(root, session_id, dry_run=dry_run)
    call.answer(done, _show_repairs)
    return 1 if any(one.error for one in done.workspaces) else 0


def _show_repairs(done: actions.Repairs) -> None:
    for one in done.workspaces:
        if one.error:
            note(f"{one.session_id}: {one.error}")
        elif one.metadata and one.reason:
            would = "would count" if done.dry_run else "counts"
            moment = iso_utc(one.metadata.updated_at)
            say(f"{one.session_id}: {one.detail}; it {would} as used at {moment}")
        else:
            say(f"{one.session_id} needs no repair")
    if not done.workspaces:
        say("no workspace needs a repair")
