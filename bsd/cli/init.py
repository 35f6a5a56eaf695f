"""`bsd init`: finds the agents on this machine, and sets bsd up for them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import click

from bsd.actions.context import ActionContext
from bsd.actions.setup import foretell_extraction
from bsd.cli.agents import setup_context, wants_permission
from bsd.cli.call import BsdCommand, Call
from bsd.cli.init_report import (
    AgentInit,
    Extraction,
    FileDiff,
    InitReport,
    tell_agent,
    tell_diffs,
    tell_done,
)
from bsd.cli.init_work import Ask, InitAgent, copy_leaving, extract_idle, start_at_login
from bsd.cli.output import note, print_json, say
from bsd.cli.progress import Progress
from bsd.cli.service import LoginStart, login_start
from bsd.cli.service_manager import manager_here
from bsd.core.answers import as_json
from bsd.core.config import OFF, PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout
from bsd.core.locations import named_root, read_settings_file, usual_roots
from bsd.core.logs import configure_logs
from bsd.sessions.commit.reach import unreached
from bsd.setup.additions import SetupContext
from bsd.setup.discovery import AgentSessions, FoundAgent, find_agents, sessions_of
from bsd.setup.record import read_record
from bsd.setup.switch import apply, plan_on, setup_of
from bsd.setup.unserved import note_told
from bsd.transcripts.agents.setup_files import SetupPart

_LOOK_SECONDS = 5.0  # for the dry run of one agent's sessions
_YES = "bsd init --yes"


@click.command("init", cls=BsdCommand)
@click.option("--yes", is_flag=True, help="Agree to everything; do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what was found and what would change.")
@click.option("--no-extract", is_flag=True, help="Extract nothing now.")
@click.option("--no-service", is_flag=True, help="Do not start bsd at login.")
@click.option(
    "--no-permission", is_flag=True, help="Let agents' programs ask before bsd's tools are called."
)
@click.pass_obj
def init_command(
    call: Call, yes: bool, dry_run: bool, no_extract: bool, no_service: bool, no_permission: bool
) -> int:
    """Find the agents on this machine, and manage their sessions.

    Shows for each agent its sessions, their size, how much would be extracted, and how many
    sessions its program will delete within a week. Then asks for each agent whether bsd should
    manage it, and shows the files that change: bsd.toml, and the agent's own configuration, which
    gets bsd's tools. Sessions that will be deleted soon are copied at once, and values are
    extracted from idle sessions. Finally asks whether bsd should start at login. Steps that are
    already done are skipped. `bsd restore-all` and `bsd agents off` take all of this back.

    \b
    Examples:
      bsd init --dry-run
      bsd init
      bsd init --yes
      bsd init --yes --no-extract --no-service
    """
    setup = _Init(call, permission=not no_permission)
    setup.look()
    setup.tell_found()
    if not setup.has_to_do(service=not no_service):
        return setup.finish(told=setup.why_nothing())
    asks = not (yes or dry_run or call.json) and sys.stdin.isatty()
    if dry_run or not (yes or asks):
        return setup.foretell(dry_run=dry_run, service=not no_service)
    call.refuse_if_readonly()
    return setup.carry_out(
        _ask if asks else None, extracts=not no_extract, installs_service=not no_service
    )


def _ask(question: str) -> bool:
    return click.confirm(question, default=True, err=True)


class _Init:
    """One call of `bsd init`."""

    def __init__(self, call: Call, *, permission: bool) -> None:
        self._call = call
        self._permission = permission
        self._agents: list[InitAgent] = []
        self._root = call.settings.root
        if os.path.lexists(self._root) and not self._root.is_dir():
            raise ConfigError(
                f"{self._root} is not a directory",
                hint=f"name the root with --root DIR, or `root` in {call.settings_file}",
            )
        self._writes_root = self._is_to_write_root()
        self._wrote_root = False
        self._extraction: Extraction | None = None
        self._service = (LoginStart.ABSENT, "")
        self._failed = False

    # --- the agents on this machine ---

    def look(self) -> None:
        """Find the agents, and compute the changes for them; changes no file."""
        call = self._call
        # A root that does not exist yet has no log; errors are printed anyway.
        settings = call.settings
        configure_logs(None, settings.log_level, settings.log_format, stderr_level="error")
        context = self._setup_context()
        self._agents = [
            InitAgent(found, _told(found)) for found in find_agents(context.layout, context.environ)
        ]
        if not self._agents:
            raise NotFound(
                "no agent has sessions in its usual directory on this machine",
                hint=f"name another directory under [[sources]] in {call.settings_file}, or"
                " OpenClaw's with --root DIR",
            )
        for agent in self._agents:
            try:
                self._look_at(agent)
            except (BsdError, OSError) as error:
                problem = os_problem(error, f"looking at {agent.found.directory}")
                agent.told.problem, agent.told.hint = problem.message, problem.hint
        # A directory that is itself a root is not a failure.
        self._failed = any(
            agent.told.problem and not (agent.found.is_root and agent.found.problem)
            for agent in self._agents
        )
        self._service = login_start(call, manager_here())

    def _look_at(self, agent: InitAgent) -> None:
        found, told = agent.found, agent.told
        if found.problem is not None:
            return
        kind = None if found.is_root else found.kind
        agent.sessions = sessions = sessions_of(found.layout, kind, time.time())
        told.sessions, told.parts, told.bytes = sessions.sessions, sessions.parts, sessions.bytes
        told.deleted_soon = len(sessions.deleted_soon)
        with Progress() as bar:
            context = _context(found.layout, lambda done, of=None: bar(done, of, found.title))
            if not found.served:
                told.would_leave = foretell_extraction(
                    context, sessions.files, seconds=_LOOK_SECONDS
                )
        agent.to_copy = _to_copy(found, sessions, context.config.current)
        told.to_copy = len(agent.to_copy)
        self._plan(agent)

    def _plan(self, agent: InitAgent, *, permission: bool = True) -> None:
        """Plan the changes to an agent's files, from their current content."""
        found, told = agent.found, agent.told
        context = self._setup_context()
        if found.served and found.directory != setup_of(found.kind).directory(context.environ):
            return  # the user configured another directory by hand
        if found.kind in read_record(context.layout).turned_off:
            agent.plan, told.files = None, []
            told.notes = [f"you turned it off; `bsd agents on {found.kind}` turns it on"]
            return
        plan = plan_on(context, found.kind, root=self._writes_root)
        # The permission is for the tools; if the user has refused it, bsd does not ask again.
        adds_tools = any(SetupPart.MCP in edit.parts for edit in plan.changes)
        if permission and self._permission and adds_tools:
            plan = plan_on(context, found.kind, permission=True, root=self._writes_root)
        agent.plan = plan
        told.files = [FileDiff(str(edit.path), edit.diff) for edit in plan.changes]
        problems = [f"{edit.path}: {edit.problem}" for edit in plan.problems]
        told.notes = [*(agent.sessions.problems if agent.sessions else ()), *problems]

    def has_to_do(self, *, service: bool) -> bool:
        """Return whether a step is left to do."""
        agents = self._agents
        if any(_is_to_turn_on(agent) or agent.told.to_copy for agent in agents):
            return True
        is_on = any(agent.told.on for agent in agents)
        return service and is_on and self._service[0] is LoginStart.ABSENT

    def why_nothing(self) -> str:
        """Return the message for a call that has no step left to do."""
        if any(agent.told.on for agent in self._agents):
            return "everything is set up; nothing was changed"
        return "bsd manages none of these agents; nothing was changed"

    # --- output ---

    def tell_found(self) -> None:
        """Print the agents that were found."""
        if self._call.json:
            return
        for agent in self._agents:
            tell_agent(agent.told)
        new = "" if self._root.is_dir() else ", which does not exist yet"
        say(f"bsd keeps its data in {self._root}{new}; settings are in {self._call.settings_file}")
        say()

    def foretell(self, *, dry_run: bool, service: bool) -> int:
        """Show the changes, without making them; for a dry run, or if bsd cannot ask.

        Returns:
            The exit code: 0 for a dry run, else that of a refusal.
        """
        if not self._call.json:
            for agent in self._agents:
                tell_diffs(agent.told)
            if service:
                say(f"start at login: {self._service[1]}")
        refusal = Invalid("this command asks first, but there is no terminal", hint=_YES)
        if not dry_run and not self._call.json:
            raise refusal
        if self._call.json:
            hint = None if dry_run else _YES
            print_json(as_json(self._report(dry_run=dry_run, to_do=True, hint=hint)))
        else:
            say("\nThis was a dry run: nothing was changed.")
        return 0 if dry_run else refusal.exit_code

    def finish(self, told: str | None = None) -> int:
        """Print the changes that were made, and how to take them back; returns the exit code.

        Args:
            told: a message to print instead.
        """
        changed = any(agent.told.changed or agent.told.copied for agent in self._agents)
        if self._call.json:
            print_json(as_json(self._report(dry_run=False, to_do=False, hint=None)))
        elif told is not None:
            say(told)
        elif changed:
            say()
            say("To take it back: `bsd restore-all` puts all stored values back, and")
            say("`bsd agents off NAME` removes the additions to an agent's files.")
        else:
            say("nothing was changed")
        return 1 if self._failed else 0

    def _report(self, *, dry_run: bool, to_do: bool, hint: str | None) -> InitReport:
        agents = [agent.told for agent in self._agents]
        return InitReport(
            dry_run=dry_run,
            root=str(self._root),
            root_written=self._wrote_root,
            settings_file=str(self._call.settings_file),
            agents=agents,
            to_do=to_do,
            changed=any(agent.changed or agent.copied for agent in agents),
            extraction=self._extraction,
            service=self._service[0].value,
            service_message=self._service[1],
            hint=hint,
        )

    # --- actions ---

    def carry_out(self, ask: Ask, *, extracts: bool, installs_service: bool) -> int:
        """Turn agents on, copy, extract, and start at login; returns the exit code.

        Args:
            ask: asks before each step; None: agree to everything.
        """
        call, agents = self._call, self._agents
        self.turn_on(ask)
        self._failed |= not copy_leaving(call, agents)
        if extracts and (first := extract_idle(call, agents, ask)) is not None:
            self._extraction, code = first.told, first.stop_code
            self._failed |= first.failed
            if code:
                self.finish()
                return code
        if installs_service and any(agent.told.on for agent in agents):
            self._service, done = start_at_login(call, manager_here(), agents, ask)
            self._failed |= not done
        return self.finish()

    def turn_on(self, ask: Ask) -> None:
        """Turn on each agent that is off or incomplete, if the user agrees."""
        refused = []
        for agent in filter(_is_to_turn_on, self._agents):
            try:
                if not self._turn_on(agent, ask):
                    refused.append(agent.found)
            except BsdError as problem:
                self._failed = True
                agent.told.problem, agent.told.hint = problem.message, problem.hint
            if not self._call.json:
                tell_done(agent.told)
        if any(agent.told.changed for agent in self._agents):
            self._call.forget_settings()
        note_told(self._setup_context().layout, [found.kind for found in refused])

    def _turn_on(self, agent: InitAgent, ask: Ask) -> bool:
        """Write the files of one agent; returns False if the user declines."""
        found, told = agent.found, agent.told
        self._plan(agent)  # bsd.toml has changed since, if another agent came first
        if ask is not None:
            tell_diffs(told)
            if not ask(f"Let bsd manage {found.title}?"):
                if found.is_root and not found.served:
                    self._leave_root_alone()
                return False
            self._ask_for_permission(agent, ask)
        self._make_root()
        assert agent.plan is not None  # noqa: S101 - `_is_to_turn_on` has looked
        done = apply(self._setup_context(), agent.plan)
        told.changed, told.on, agent.is_new = True, True, not found.served
        self._wrote_root |= self._writes_root
        self._writes_root = False
        self._failed |= bool(done.failed)
        kept = {str(edit.path): edit.problem for edit in agent.plan.problems} | done.failed
        for path, why in kept.items():
            note(f"{path} stays as it is: {why}")
        told.notes = [f"{path}: {why}" for path, why in kept.items()]
        self._say_what_is_in_the_way(found)
        return True

    def _ask_for_permission(self, agent: InitAgent, ask: Callable[[str], bool]) -> None:
        plan = agent.plan
        if plan is None or not any(SetupPart.PERMISSION in edit.parts for edit in plan.changes):
            return
        if not wants_permission(self._setup_context(), agent.found.kind, ask):
            self._plan(agent, permission=False)

    def _leave_root_alone(self) -> None:
        """Use bsd's own root, as the user declined the agent whose directory would be the root."""
        call = self._call
        if call.root is None and named_root(None, os.environ) is None:
            call.root = str(usual_roots(os.environ)[1])
            call.forget_settings()
            self._root, self._writes_root = call.settings.root, True

    def _make_root(self) -> None:
        if not self._root.is_dir():
            try:
                make_private_dir(self._root)
            except OSError as error:
                raise os_problem(error, f"making {self._root}") from error
        self._call.log(writes=True)

    def _say_what_is_in_the_way(self, found: FoundAgent) -> None:
        for source in found.layout.sources:
            if source.kind == found.kind and (
                problem := unreached(self._setup_context().layout, source)
            ):
                note(f"{problem.why}\nTry: {problem.remedy}")

    # --- root and settings ---

    def _is_to_write_root(self) -> bool:
        """Return whether bsd.toml must name the root.

        Raises:
            ConfigError: bsd.toml names another root.
        """
        call = self._call
        in_file = read_settings_file(call.settings_file, required=False).get("root")
        if isinstance(in_file, str) and in_file:
            named = named_root(None, {"HOME": os.environ.get("HOME", "")}, in_file)
            if named != self._root:
                raise ConfigError(
                    f"{call.settings_file} names the root {named}, and this call {self._root}",
                    hint=f"change `root` in {call.settings_file} first, or name another file with"
                    " --config",
                )
            return False
        if named_root(call.root, os.environ) is not None:
            return True
        _, own = usual_roots(os.environ)
        if self._root != own:
            return False
        # The service does not see the variables of this shell.
        is_usual = own == usual_roots({"HOME": os.environ.get("HOME", "")})[1]
        return not (is_usual and (own / ".brainsurgeon").is_dir())

    def _setup_context(self) -> SetupContext:
        return setup_context(self._call)


def _told(found: FoundAgent) -> AgentInit:
    return AgentInit(
        kind=found.kind,
        title=found.title,
        directory=str(found.directory),
        on=found.served,
        problem=found.problem,
        hint=found.hint,
    )


def _is_to_turn_on(agent: InitAgent) -> bool:
    if agent.plan is None or agent.told.problem is not None:
        return False
    return not agent.found.served or bool(agent.plan.changes)


def _context(layout: Layout, progress: Callable[..., None]) -> ActionContext:
    """Return the context of a dry run, for which the root need not exist."""
    config = ConfigService(layout.config_file, create=False)
    return ActionContext(layout=layout, config=config, progress=progress)


def _to_copy(found: FoundAgent, sessions: AgentSessions, config: PruningConfig) -> list[str]:
    """Return the sessions without a copy that are deleted soon; none if copies are switched off."""
    if config.archive_sessions.strip().casefold() == OFF:
        return []
    return [str(name) for name in sessions.without_copy(found.layout)]
