"""`bsd agents`: agents' programs on this machine, and bsd's additions to their configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bsd.actions.agents import AgentTurned
from bsd.actions.in_flight import wait_for_in_flight
from bsd.cli.call import BsdGroup, Call, ask_first, confirm
from bsd.cli.completion import offering
from bsd.cli.options import yes_option
from bsd.cli.output import counted, note, print_json, print_table, say
from bsd.cli.service import restart_daemon
from bsd.cli.service_manager import manager_here
from bsd.cli.stopping import StopRequest
from bsd.core.answers import as_json
from bsd.core.errors import Busy
from bsd.core.files import make_private_dir
from bsd.core.locations import settings_file
from bsd.setup.additions import SetupContext
from bsd.setup.commands import setup_commands
from bsd.setup.states import AgentState, available
from bsd.setup.stored import stored_sessions
from bsd.setup.switch import (
    SetupDone,
    SetupPlan,
    apply,
    lacks_permission,
    plan_off,
    plan_on,
    setup_of,
)
from bsd.transcripts.agents.programs import agent_setups, elsewhere, layout_of
from bsd.transcripts.agents.setup_files import SetupPart

if TYPE_CHECKING:
    from bsd.core.settings import Settings

_FAILED = 1


@click.group("agents", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def agents(context: click.Context) -> None:
    """List the agents on this machine; turn one on or off.

    \b
    Examples:
      bsd agents
      bsd agents on claude-code
      bsd agents on codex --dry-run
      bsd agents off codex
    """
    if context.invoked_subcommand is None:
        context.invoke(list_agents)


@agents.command("list")
@click.pass_obj
def list_agents(call: Call) -> None:
    """List the agents that bsd knows, and which parts of bsd are set up for each."""
    found = available(setup_context(call), time.time())
    if call.json:
        print_json({"agents": [as_json(state) for state in found]})
        return
    rows = [
        (
            state.agent,
            "on" if state.on else "off",
            str(state.sessions) if state.found else "",
            ", ".join(part for part, there in state.parts.items() if there) or "nothing",
            str(state.directory) if state.found else f"not here ({state.directory})",
        )
        for state in found
    ]
    columns = ("AGENT", "", "SESSIONS", "SET UP", "DIRECTORY")
    print_table(columns, rows, right=("SESSIONS",), wraps=("SET UP", "DIRECTORY"))
    for state in found:
        if state.problem is not None:
            note(f"{state.title}: {state.problem}" + (f"\nTry: {state.hint}" if state.hint else ""))
    if waiting := [state for state in found if _waits(state)]:
        say(f"Try: `bsd agents on {waiting[0].agent}`")


def _waits(state: AgentState) -> bool:
    return bool(state.sessions) and not state.on and not state.turned_off


name_argument = click.argument(
    "name", metavar="NAME", shell_complete=offering(lambda _call, _: agent_setups())
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change; change nothing."
)


@agents.command("on")
@name_argument
@click.option(
    "--no-permission",
    is_flag=True,
    help="Let the agent's program ask before each call of bsd's tools.",
)
@dry_run_option
@yes_option
@click.pass_obj
def turn_on(call: Call, name: str, no_permission: bool, dry_run: bool, yes: bool) -> int:
    """Turn an agent on: manage its sessions, and give it bsd's tools.

    Adds the agent's sessions to bsd.toml, and to the configuration of its program the MCP server, a
    skill, and for Claude Code hooks and the permission to call the tools. Each file is shown as a
    diff first, and its other content stays byte for byte. An entry that already exists is left as
    it is. `bsd agents off` removes the additions.

    \b
    Examples:
      bsd agents on claude-code
      bsd agents on codex --dry-run
      bsd agents on pi --yes
    """
    context = setup_context(call)
    permission = not no_permission
    if permission and not (yes or dry_run):
        permission = wants_permission(
            context, name, lambda text: confirm(text, _unasked("on", name))
        )
    plan = plan_on(context, name, permission=permission)
    return _carry_out(call, context, plan, dry_run=dry_run, yes=yes)


@agents.command("off")
@name_argument
@click.option("--force", is_flag=True, help="Also remove additions that were changed since.")
@dry_run_option
@yes_option
@click.pass_obj
def turn_off(call: Call, name: str, force: bool, dry_run: bool, yes: bool) -> int:
    """Remove everything that `bsd agents on` added for an agent.

    The sessions are not changed, and the values that bsd extracted stay in its store and archive.
    While the agent is on, `bsd restore-all` puts them back. An addition that was changed since bsd
    made it stays, unless --force is given.

    \b
    Examples:
      bsd agents off codex
      bsd agents off claude-code --dry-run
    """
    context = setup_context(call)
    plan = plan_off(context, name, force=force)
    stored = stored_sessions(context.layout, name)
    return _carry_out(call, context, plan, dry_run=dry_run, yes=yes, stored=stored)


def wants_permission(context: SetupContext, name: str, ask: Callable[[str], bool]) -> bool:
    """Ask whether an agent may call bsd's tools without confirmation.

    Returns True without a question if its program already allows it, or has no such rule.
    """
    if not lacks_permission(context, name):
        return True
    return ask(f"May {setup_of(name).title}'s agents call bsd's tools without asking?")


def setup_context(call: Call, settings: Settings | None = None) -> SetupContext:
    """Return the context for changes to agents' configuration; the root need not exist.

    Args:
        settings: replace the settings of the call.

    Raises:
        ConfigError: the settings are broken.
    """
    settings = settings or call.settings
    options: list[str] = []
    if call.root or os.environ.get("OPENCLAW_ROOT") or os.environ.get("BRAINSURGEON_AGENTS_DIR"):
        options += ["--root", os.path.abspath(settings.root)]
    file = Path(os.path.abspath(call.settings_file.expanduser()))
    # The program that starts the server may not pass on the variables of this shell.
    if file != settings_file({"HOME": os.environ.get("HOME", "")}):
        options += ["--config", str(file)]
    commands = setup_commands(tuple(options), settings.socket)
    environ: Mapping[str, str] = os.environ
    if (settings.root / "agents").is_dir():  # the root is OpenClaw's directory
        environ = {**environ, "OPENCLAW_ROOT": str(settings.root)}
    return SetupContext(layout_of(settings.root, settings.sources), file, environ, commands)


def _note_other_root(call: Call, *, name: str) -> None:
    """Print a note if another root serves the sources of an agent."""
    layout = layout_of(call.settings.root, call.settings.sources)
    for source in layout.sources:
        if source.kind == name and (why := elsewhere(layout, source)):
            note(f"{why}: this root only reads it\nTry: bsd sources claim {source.name}")


def _unasked(turn: str, name: str) -> str:
    return f"`bsd agents {turn} {name} --yes`"


def _carry_out(
    call: Call,
    context: SetupContext,
    plan: SetupPlan,
    *,
    dry_run: bool,
    yes: bool,
    stored: int | None = None,
) -> int:
    """Show a plan, ask, and carry it out; returns the exit code."""
    if not call.json:
        tell_plan(plan)
        if stored:
            note(_stays(plan, stored))
    done: SetupDone | None = None
    if not dry_run:
        call.refuse_if_readonly()
        if plan.changes and not yes:
            ask_first(f"Turn {plan.title} {plan.turn}?", _unasked(plan.turn, plan.agent))
        if call.root is None and plan.turn == "on":
            make_private_dir(context.layout.root)
        if plan.ends_source and not wait_for_late_lines(call, plan.agent):
            raise Busy(
                f"{plan.title} stays on: replaced versions of its sessions are still watched",
                hint=f"`bsd pause {plan.agent}`, then `bsd agents off {plan.agent}` in a minute",
            )
        done = apply(context, plan)
    if call.json:
        print_json(as_json(AgentTurned.of(context, plan, done, stored)))
    elif done is not None:
        tell_done(plan, done)
    if done is not None and context.settings_file in done.written:
        call.forget_settings()
        _note_other_root(call, name=plan.agent)
        restart_daemon(call, manager_here())
    return _FAILED if plan.problems or (done is not None and done.failed) else 0


def wait_for_late_lines(call: Call, kind: str | None = None) -> bool:
    """Wait until replaced versions of sessions are no longer watched for late lines.

    Args:
        kind: the agent whose sessions are meant; None: all agents.

    Returns:
        False if some versions are still watched after the longest wait.
    """
    is_told = False

    def sleep(seconds: float) -> None:
        nonlocal is_told
        if not is_told:
            note("(waiting up to a minute while replaced versions of sessions are watched)")
            is_told = True
        (call.stop or StopRequest()).sleep(seconds)

    with call.context(changes=True) as context:
        return wait_for_in_flight(context, sleep, kind=kind)


def _stays(plan: SetupPlan, stored: int) -> str:
    return (
        f"bsd keeps values of {counted(stored, 'session')} of {plan.title}. They stay in its store"
        " and archive, and placeholders stay in the sessions: `bsd restore-all` puts the values"
        " back while the agent is on"
    )


def tell_plan(plan: SetupPlan) -> None:
    """Print the diffs of a plan, and the parts that stay as they are."""
    for edit in plan.files:
        if edit.diff:
            say(edit.diff.rstrip("\n"))
        if edit.problem is not None:
            _note_problem(str(edit.path), edit.problem, edit.hint)
    for kept in plan.kept:
        note(f"({kept.part} in {kept.path}: {kept.why}; it stays)")


def tell_done(plan: SetupPlan, done: SetupDone) -> None:
    """Print the files that were written, and those that were not."""
    for path in done.written:
        say(f"wrote {path}" if path.exists() else f"removed {path}")
    for path_, why in done.failed.items():
        _note_problem(path_, why, done.hints.get(path_))
    if _stays_in_settings(plan, done):
        say(f"{plan.title} is not {plan.turn}: its entry in bsd.toml was not changed")
    elif plan.problems or done.failed:
        say(f"{plan.title} is {plan.turn} in part: the files with problems were not changed")
    elif not done.written:
        say(f"nothing to change: {plan.title} is {plan.turn}")
    elif plan.turn == "on":
        say(f"{plan.title} is on; `bsd agents off {plan.agent}` removes all of this")
    elif setup_of(plan.agent).is_root:
        say(f"bsd still manages {plan.title}'s sessions: its directory is bsd's root")
    else:
        say(f"{plan.title} is off")


def _stays_in_settings(plan: SetupPlan, done: SetupDone) -> bool:
    """Return True if the agent's entry in bsd.toml could not be changed, or stays there."""
    return any(
        SetupPart.SOURCE in edit.parts and (edit.problem or str(edit.path) in done.failed)
        for edit in plan.files
    ) or (plan.turn == "off" and any(kept.part is SetupPart.SOURCE for kept in plan.kept))


def _note_problem(path: str, problem: str, hint: str | None) -> None:
    where = "" if path in problem else f"{path}: "
    note(f"{where}{problem}" + (f"\nTry: {hint}" if hint else ""))
