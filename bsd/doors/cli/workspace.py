"""`bsd workspace`: directories in which programs run, and which go when nobody uses them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.output import counted, note, print_json, print_table, safe, say, size

if TYPE_CHECKING:
    from bsd.foundation.layout import Layout
    from bsd.workspaces import ExecutionResult, Limits, PruneResult, Repair, SessionInfo
    from bsd.workspaces.caretaker import Caretaker, Rules

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


class _Workspace(click.Group, BsdCommand):
    """A group that understands the global options after its name, too."""


_ROOT = click.option(
    "--workspace-root", "place", metavar="DIR", help="The directory that holds the workspaces."
)


@click.group("workspace", cls=_Workspace, help=f"{COMMANDS['workspace'].help}\n\n{_MORE}")
def workspace() -> None:
    """All below."""


@workspace.command("create", cls=BsdCommand)
@click.argument("session_id", metavar="[ID]", required=False)
@_ROOT
@click.pass_obj
def create(call: Call, /, session_id: str | None, place: str | None) -> None:
    """Create a workspace, or open the one of this name; without an ID one is made up."""
    made = _caretaker(call, place).create(session_id)
    if call.json:
        created = {"created": made.created}
        print_json({"session_id": made.session_id, "path": str(made.path), **created})
    else:
        say(f"{made.session_id} {'is made' if made.created else 'was there already'}: {made.path}")


@workspace.command("run", cls=BsdCommand)
@click.argument("session_id", metavar="ID", shell_complete=complete.workspaces)
@click.argument("argv", metavar="-- ARGV...", nargs=-1, required=True, type=click.UNPROCESSED)
@_ROOT
@click.option("--time-limit", metavar="SECONDS", type=float, help="Kill it after so long.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Give it a variable, too.")
@click.option(
    "--isolate/--no-isolate",
    default=None,
    help="Insist on bubblewrap, or go without; otherwise it is used if it works here (for root it"
    " must).",
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
    isolate: bool | None,
    readable: tuple[str, ...],
) -> int:
    """Run a program in a workspace. Exit code 1 if it fails; its own is in --json.

    An isolated program has no network, and writes nothing but its workspace. Root's runs as another
    user, to whom what root has put into the workspace is given; outside a box root's runs only with
    --no-isolate. --json says which limits hold.
    """
    done = _caretaker(call, place).run(
        session_id,
        argv,
        limits=_limits(call, time_limit),
        env=_environment(env),
        isolate=isolate,
        readable=[Path(os.path.abspath(each)) for each in readable],
    )
    if call.json:
        print_json(done.as_json())
    else:
        _show_run(done)
    return 0 if done.succeeded else 1


@workspace.command("touch", cls=BsdCommand)
@click.argument("session_id", metavar="ID", shell_complete=complete.workspaces)
@_ROOT
@click.pass_obj
def touch(call: Call, /, session_id: str, place: str | None) -> int:
    """Note that a workspace is used now. Exit code 1 if it has no metadata to note that in."""
    metadata = _caretaker(call, place).touch(session_id)
    if call.json:
        document = metadata.as_json() if metadata else None
        print_json({"session_id": session_id, "metadata": document})
    elif metadata:
        say(f"{session_id} counts as used now, {metadata.as_json()['updated_at']}")
    else:
        note(f"{session_id} has no usable metadata: `bsd workspace repair {session_id}` makes some")
    return 0 if metadata else 1


@workspace.command("list", cls=BsdCommand)
@_ROOT
@click.option("--sizes", is_flag=True, help="Look at every file, and say what they take.")
@click.pass_obj
def list_(call: Call, /, place: str | None, sizes: bool) -> None:
    """List the workspaces, the longest unused first."""
    keeper = _caretaker(call, place, writes=False)
    found = keeper.sessions(sizes=sizes)
    if call.json:
        rows = [one.as_json() for one in found]
        print_json({"workspace_root": str(keeper.place), "workspaces": rows})
    else:
        _show_list(found, keeper.place, sizes=sizes)


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
    from bsd.doors.cli.interrupt import stop_request

    keeper = _caretaker(call, place, writes=not dry_run)
    rules = _rules(keeper, older_than, max_count, max_bytes)
    if not (dry_run or yes):
        _ask(keeper, rules)
    with stop_request() as request, _Bar() as bar:
        done = keeper.prune(
            rules,
            dry_run=dry_run,
            progress=bar.show,
            stopping=lambda: request.number is not None,
        )
    if call.json:
        print_json(done.as_json())
    else:
        _show_prune(done)
    return 1 if done.errors else request.exit_code


@workspace.command("repair", cls=BsdCommand)
@click.argument("session_id", metavar="[ID]", required=False)
@_ROOT
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@click.pass_obj
def repair(call: Call, /, session_id: str | None, place: str | None, dry_run: bool) -> int:
    """Make missing or broken metadata anew from the files' times; without an ID in all."""
    done = _caretaker(call, place, writes=not dry_run).repair(session_id, dry_run=dry_run)
    if call.json:
        print_json({"dry_run": dry_run, "workspaces": [one.as_json() for one in done]})
    else:
        _show_repairs(done, dry_run=dry_run)
    return 1 if any(one.error for one in done) else 0


def _caretaker(call: Call, place: str | None, *, writes: bool = True) -> Caretaker:
    """Whoever looks after the root that is meant; logs and audits if there is an OpenClaw root."""
    from bsd.workspaces.caretaker import Caretaker, Rules
    from bsd.workspaces.place import DEFAULT_ROOT

    settings = call.settings
    root = Path(place) if place else settings.workspace_root if settings else None
    rules = Rules.of(settings) if settings else Rules()
    layout = _layout(call)
    if layout is not None:
        call.log(writes=writes)
    elif writes:
        call.refuse_if_readonly()
    return Caretaker(root or DEFAULT_ROOT, layout, rules)


def _layout(call: Call) -> Layout | None:
    """Workspaces need no OpenClaw directory: without one there is no log and no audit."""
    from bsd.foundation.errors import ConfigError

    try:
        return call.layout
    except ConfigError:
        if call.root is not None:  # it was named
            raise
        return None


def _limits(call: Call, seconds: float | None) -> Limits:
    from bsd.foundation.errors import Invalid
    from bsd.workspaces import Limits

    known = call.settings.workspace_limits.model_dump() if call.settings else {}
    if seconds is not None:
        if not 0 < seconds < float("inf"):
            raise Invalid("--time-limit must be a number of seconds, more than 0")
        known["seconds"] = seconds
    return Limits(**known)


def _environment(pairs: tuple[str, ...]) -> dict[str, str]:
    from bsd.foundation.errors import Invalid

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise Invalid(f"--env {pair!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def _rules(
    keeper: Caretaker, older_than: str | None, max_count: int | None, max_bytes: int | None
) -> Rules:
    """As the options say; as the settings say, if there is none."""
    from bsd.foundation.spelling import parse_duration
    from bsd.workspaces.caretaker import Rules

    if older_than is None and max_count is None and max_bytes is None:
        return keeper.rules
    hours = None
    if older_than is not None and older_than.strip().lower() != "never":
        hours = parse_duration(older_than, minimum=0) / 3_600_000
    return Rules(hours, max_count, max_bytes)


def _ask(keeper: Caretaker, rules: Rules) -> None:
    from bsd.doors.cli.call import confirm
    from bsd.foundation.errors import Conflict

    found = keeper.prune(rules, dry_run=True)
    if not found.deleted_sessions and not found.leftovers:
        return
    what = f"{counted(len(found.deleted_sessions), 'workspace')} ({size(found.reclaimed_bytes)})"
    refusal = "`bsd workspace prune --yes`"
    if not confirm(f"Delete {what} in {keeper.place.resolve()} for good?", refusal):
        raise Conflict("nothing was deleted", hint=f"{refusal} does not ask")


class _Bar:
    """How far it is, on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, planned: int) -> None:
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("pruning", total=planned)
            self._bar.start()
        self._bar.update(self._task, completed=done)


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


def _show_list(found: list[SessionInfo], place: Path, *, sizes: bool) -> None:
    if not found:
        say(f"there are no workspaces in {place}")
        return
    columns = ["ID", "UNUSED", "RUNS", "LAST ERROR"]
    if sizes:
        columns.insert(2, "SIZE")
    rows = []
    for one in found:
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
    from bsd.foundation.spelling import format_duration

    if hours is None:
        return "?"
    return "in the future" if hours < 0 else format_duration(int(hours * 3_600_000))


def _show_prune(done: PruneResult) -> None:
    if done.dry_run:
        for session_id in done.deleted_sessions:
            say(session_id)
    for session_id, detail in done.details.items():
        note(f"{session_id} is skipped: {detail}")
    for session_id, error in done.errors.items():
        note(f"{session_id}: {error}")
    say(str(done))


def _show_repairs(done: list[Repair], *, dry_run: bool) -> None:
    for one in done:
        if one.error:
            note(f"{one.session_id}: {one.error}")
        elif one.metadata and one.reason:
            would = "would count" if dry_run else "counts"
            moment = one.metadata.as_json()["updated_at"]
            say(f"{one.session_id}: {one.detail}; it {would} as used at {moment}")
        else:
            say(f"{one.session_id} needs no repair")
    if not done:
        say("no workspace needs a repair")
