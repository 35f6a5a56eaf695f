"""`bsd leave`: restores all values, turns agents off, removes the service, and reports the rest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import click

from bsd.actions.context import ActionContext
from bsd.actions.leave import (
    LeftBehind,
    end_all_pauses,
    keeps_values,
    left_behind,
    out_of_reach,
    purge,
    sessions_to_restore,
)
from bsd.actions.restore import restore_all
from bsd.cli.agents import setup_context, wait_for_late_lines
from bsd.cli.call import BsdCommand, Call, NoRoot, ask_first, confirm
from bsd.cli.each_session import each_session
from bsd.cli.leave_report import (
    AgentOff,
    LeaveReport,
    ServiceGone,
    purge_question,
    tell_agents,
    tell_left,
    tell_plan,
    tell_service,
)
from bsd.cli.options import yes_option
from bsd.cli.outcomes import Outcomes, report
from bsd.cli.output import note, print_json, say, say_check
from bsd.cli.problem import Problem
from bsd.cli.progress import waiting
from bsd.cli.service import Origin, daemon_process, remove_service, service_of_root
from bsd.cli.service_manager import manager_here
from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Conflict
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import close_logs
from bsd.core.settings import SourceSettings
from bsd.daemon.instance import is_running
from bsd.maintenance import catalog
from bsd.maintenance.purge import own_paths
from bsd.planning.result import SessionResult, Status
from bsd.setup.switch import apply, plan_off
from bsd.transcripts.agents.programs import agent_setups, give_up_claims, layout_of

_STOP_SECONDS = 15.0  # for the daemon to finish its current work
_LOOK_SECONDS = 0.1
_FAILED = 1
_ADDING_UP = "adding up bsd's data"


@click.command("leave", cls=BsdCommand)
@click.option("--purge", "purges", is_flag=True, help="Delete bsd's own directory at the end.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@yes_option
@click.pass_obj
def leave_command(call: Call, /, purges: bool, dry_run: bool, yes: bool) -> int:
    """Leave bsd: put everything back, turn agents off, remove the service.

    Switches extraction off and stops the daemon. Puts every stored value back into its session,
    including excluded and paused sessions. Then turns off each agent whose sessions are all
    restored, as `bsd agents off` does, and reports the files that stay and why. If a session is in
    use, it is listed, and its agent stays on; run the command again later to continue.

    With --purge, bsd's own directory is deleted for good at the end, if all sessions are restored.
    bsd first asks, and lists the data that would be lost, such as copies of sessions that their
    program has deleted. Agents' programs, sessions and bsd.toml stay, and what was uploaded to a
    bucket.

    \b
    Examples:
      bsd leave --dry-run
      bsd leave
      bsd leave --purge
    """
    try:
        layout = call.layout = _with_agents_off(call)
    except NoRoot as missing:
        return _nothing_to_leave(call, missing.message, dry_run=dry_run)
    if not any(map(os.path.lexists, own_paths(layout))):
        why = f"there is no data of bsd in {layout.root}"
        return _nothing_to_leave(call, why, dry_run=dry_run)
    if dry_run:
        _foretell(call, layout, purges=purges)
        return 0
    call.refuse_if_readonly()
    if not yes:
        if not call.json:
            tell_plan(_plan(call, layout, purges=purges))
        ask_first("Leave bsd?", f"`bsd leave{' --purge' if purges else ''} --yes`")
    return _leave(call, layout, purges=purges, yes=yes)


def _with_agents_off(call: Call) -> Layout:
    """Return the layout, extended by agents that are off but whose program is on this machine.

    The sessions of an agent that was turned off may still contain placeholders.
    """
    layout, settings = call.layout, call.settings
    known = {source.kind for source in layout.sources}
    for kind, setup in agent_setups().items():
        directory = setup.directory(os.environ)
        if setup.is_root or kind in known or not directory.is_dir():
            continue
        more = SourceSettings(kind=kind, path=directory)
        with suppress(BsdError):  # its directory holds no sessions
            found = layout_of(layout.root, [*settings.sources, more], settings.exclude)
            layout = replace(layout, sources=(*layout.sources, *found.sources[-1:]))
    return layout


def _nothing_to_leave(call: Call, why: str, *, dry_run: bool) -> int:
    """Remove the service, the only thing of bsd here; returns the exit code."""
    note(f"bsd keeps nothing here: {why}")
    service = ServiceGone() if dry_run else _remove_service(call)
    if call.json:
        print_json(as_json(LeaveReport(dry_run=dry_run, complete=not service.problem)))
    return _FAILED if service.problem else 0


# --- a dry run ---


def _foretell(call: Call, layout: Layout, *, purges: bool) -> None:
    found = _plan(call, layout, purges=purges)
    if call.json:
        print_json(as_json(found))
        return
    tell_plan(found)
    say("\nThis was a dry run: nothing was changed.")


def _plan(call: Call, layout: Layout, *, purges: bool) -> LeaveReport:
    """Return the report of a dry run; changes nothing."""
    found = [info for info in catalog.sessions(layout.with_excluded()) if info.extracted_entries]
    setups = setup_context(call)
    agents = []
    for agent in agent_setups():
        plan = plan_off(setups, agent)
        if plan.changes or plan.problems:
            files = [str(edit.path) for edit in plan.changes]
            problems = [f"{edit.path}: {edit.problem}" for edit in plan.problems]
            agents.append(AgentOff(agent, plan.title, files=files, problems=problems))
    service = ServiceGone()
    manager = manager_here()
    with suppress(BsdError):
        origin, ours = service_of_root(call, manager)
        if ours:
            service = ServiceGone(file=str(manager.file), origin=origin.value)
    with call.context(changes=False) as context, waiting(_ADDING_UP):
        left = left_behind(context)
    return LeaveReport(
        dry_run=True,
        sessions_back=len(found),
        entries_back=sum(info.extracted_entries for info in found),
        bytes_back=sum(info.extracted_bytes for info in found),
        agents=agents,
        service=service,
        daemon=daemon_process(call),
        left=left,
        purge=purges,
        settings_file=str(call.settings_file),
    )


# --- leaving ---


@dataclass
class _Steps:
    """The results of the steps so far."""

    layout: Layout
    outcomes: Outcomes
    unread: dict[str, BsdError] = field(default_factory=dict)  # by agent or source
    agents: list[AgentOff] = field(default_factory=list)
    service: ServiceGone = field(default_factory=ServiceGone)
    left: LeftBehind | None = None
    watched: bool = False  # replaced versions of sessions may still get late lines

    @property
    def not_back(self) -> list[SessionResult]:
        """The sessions that are not restored: busy, failed, or left alone with stored values."""
        return [
            result
            for result in self.outcomes.results
            if result.status in {Status.BUSY, Status.FAILED}
            or (result.status is Status.LEFT_ALONE and self._keeps_values(result))
        ]

    def _keeps_values(self, result: SessionResult) -> bool:
        name = SessionName.parse(result.session)
        return bool(result.unavailable) or keeps_values(self.layout.with_excluded(), name)

    @property
    def is_complete(self) -> bool:
        """True if all sessions are restored, all agents are off, and the service is removed."""
        agents = all(agent.off and not agent.problems for agent in self.agents)
        stopped = self.outcomes.stopped_by is not None
        missing = self.not_back or self.unread
        return not (missing or self.service.problem or stopped or self.watched) and agents


def _leave(call: Call, layout: Layout, *, purges: bool, yes: bool) -> int:
    with call.context(changes=True) as context:
        _switch_off(call, context)
    service = _remove_service(call)
    steps = _Steps(layout, _restore(call, layout), dict(out_of_reach(layout)), service=service)
    for name, problem in steps.unread.items():
        Problem(f"sessions of {name} are not back: {problem.message}", 1, problem.hint).show()
    if steps.outcomes.stopped_by is None:
        # Once an agent is off, bsd no longer knows its sessions, and could not place late lines.
        steps.watched = not wait_for_late_lines(call)
        if steps.watched:
            hint = "`bsd leave` again in a minute"
            text = "no agent is turned off: replaced versions of sessions are still watched"
            Problem(text, _FAILED, hint).show()
        else:
            steps.agents = list(_turn_off(call, layout, steps))
        if not call.json:
            tell_agents(steps.agents)
        if steps.is_complete:
            _give_up_claims(layout)
        with call.context(changes=False) as context, waiting(_ADDING_UP):
            steps.left = left_behind(context)
    purged, complete = False, steps.is_complete
    if purges and steps.left is not None:
        if complete:
            lost = sum(len(result.unavailable) for result in steps.outcomes.results)
            purged = _purge(call, layout, purge_question(steps.left, lost), yes=yes)
            complete = purged
        else:
            why = "not everything is as it was before bsd"
            hint = "`bsd leave --purge` again, after the problems above are solved"
            Problem(f"bsd's directory is not deleted: {why}", _FAILED, hint).show()
    _tell(call, steps, purges=purges, purged=purged, complete=complete)
    return steps.outcomes.exit_code or (0 if complete else _FAILED)


def _switch_off(call: Call, context: ActionContext) -> None:
    """Switch extraction off and end pauses, so that no value is extracted again meanwhile."""
    try:
        if call.pruning.current.enabled:
            call.pruning.update({"enabled": False})
            note("`enabled` is false now: extraction is switched off")
        if ended := end_all_pauses(context):
            note(f"pauses have ended: {', '.join(ended)}")
    except BsdError as problem:  # values are restored all the same
        Problem(problem.message, problem.exit_code, problem.hint).show()


def _remove_service(call: Call) -> ServiceGone:
    """Remove the service of this root, and stop a daemon that was started in another way."""
    manager = manager_here()
    service = ServiceGone()
    try:
        origin, ours = service_of_root(call, manager)
        if ours:
            manager.check()
            remove_service(manager)
            service = ServiceGone(file=str(manager.file), origin=origin.value, removed=True)
        elif origin is not Origin.ABSENT:
            note(f"{manager.file} starts another bsd, or was not written by bsd: it stays")
    except BsdError as problem:
        service = ServiceGone(file=str(manager.file), problem=problem.message, hint=problem.hint)
    with suppress(NoRoot):
        service.ended_process = _end_daemon(call, call.layout)
        if is_running(call.layout) and not service.problem:
            service.problem = f"the daemon of {call.layout.root} still runs"
            service.hint = "stop it (a service manager may restart it), then `bsd leave` again"
    if not call.json:
        tell_service(service)
    return service


def _end_daemon(call: Call, layout: Layout) -> int | None:
    """Ask a running daemon to stop, and wait for it; returns its process id, None if none runs."""
    process = daemon_process(call)
    if process is None or not is_running(layout):
        return None
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    while is_running(layout) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    return process


def _restore(call: Call, layout: Layout, *, told: bool = True) -> Outcomes:
    """Put all values back into all sessions; a session that fails does not stop the others."""

    def put_back(context: ActionContext, name: SessionName) -> SessionResult:
        try:
            return restore_all(context, name, uninstalling=True)
        except BsdError as error:
            return SessionResult(str(name), Status.UNCHANGED).failed(error)

    try:
        names = sessions_to_restore(layout)
    except BsdError as problem:  # a root without agents
        note(problem.message)
        names = []
    outcomes = each_session(call, put_back, names, Status.RESTORED, may_go=True)
    if told and not call.json:
        report(call, outcomes, named=False)
    return outcomes


def _turn_off(call: Call, layout: Layout, steps: _Steps) -> Iterable[AgentOff]:
    """Turn off each agent whose sessions are all restored; yields a result for each agent."""
    waiting: dict[str, list[str]] = {}
    for result in steps.not_back:
        name = SessionName.parse(result.session)
        waiting.setdefault(_kind_of(layout, name.agent), []).append(result.session)
    for agent_or_source in steps.unread:
        waiting.setdefault(_kind_of(layout, agent_or_source), []).append(agent_or_source)
    for agent in agent_setups():
        setups = setup_context(call)
        try:
            plan = plan_off(setups, agent)
            if agent in waiting:
                yield AgentOff(agent, plan.title, waits_for=waiting[agent])
                continue
            if not plan.files and not plan.kept:
                continue
            done = apply(setups, plan)
        except BsdError as problem:
            yield AgentOff(agent, agent, problems=[problem.message])
            continue
        problems = [f"{edit.path}: {edit.problem}" for edit in plan.problems]
        problems += [f"{path}: {why}" for path, why in done.failed.items()]
        files = [str(path) for path in done.written]
        yield AgentOff(
            agent,
            plan.title,
            off=not problems,
            files=files,
            problems=problems,
            stays=[f"{kept.part} in {kept.path}: {kept.why}" for kept in plan.kept],
        )


def _give_up_claims(layout: Layout) -> None:
    """Let other roots serve the sources. If this fails, the remaining claims do no harm."""
    try:
        give_up_claims(layout)
    except BsdError as problem:
        note(problem.message)


def _kind_of(layout: Layout, agent: str) -> str:
    """Return the name that `bsd agents` uses for the program of an agent or source."""
    source = layout.source_of(agent)
    source = source or next((each for each in layout.sources if each.name == agent), None)
    if source is not None:
        return source.kind
    return next(kind for kind, setup in agent_setups().items() if setup.is_root)


# --- deleting bsd's directory ---


def _purge(call: Call, layout: Layout, question: str, *, yes: bool) -> bool:
    """Delete bsd's directory, after a question; returns True if it is deleted."""
    root = call.layout.root
    if not yes and not confirm(question, "`bsd leave --purge --yes`"):
        note(f"{root} stays: `bsd leave --purge` deletes bsd's data there")
        return False
    if (again := _changed_since(call, layout)) is not None:
        hint = "`bsd leave --purge` again"
        Problem(f"bsd's directory is not deleted: {again}", _FAILED, hint).show()
        return False
    with call.context(changes=True) as context:
        close_logs()  # the log goes, too
        try:
            done = purge(context)
        except Conflict as problem:
            Problem(problem.message, problem.exit_code, problem.hint).show()
            return False
    for path, why in done.failed.items():
        note(why if path in why else f"{path}: {why}")
    if not call.json:
        say_check("fail" if done.failed else "ok", f"deleted bsd's data in {root}")
    return not done.failed


def _changed_since(call: Call, layout: Layout) -> str | None:
    """Return why bsd's directory is still needed; None if it is not.

    Since the sessions were restored, a program may have copied a session, or written one from
    memory, with its placeholders; or a daemon may have been started.
    """
    if is_running(layout):
        return f"a daemon of {layout.root} runs"
    again = _Steps(layout, _restore(call, layout, told=False), dict(out_of_reach(layout)))
    _give_up_claims(layout)  # restoring a session claims its source again
    changed = again.outcomes.count(Status.RESTORED) + len(again.not_back) + len(again.unread)
    if again.outcomes.stopped_by is not None:
        return "it was interrupted"
    return "sessions have changed since they were put back" if changed else None


def _tell(call: Call, steps: _Steps, *, purges: bool, purged: bool, complete: bool) -> None:
    outcomes = steps.outcomes
    told = LeaveReport(
        dry_run=False,
        sessions_back=outcomes.count(Status.RESTORED),
        entries_back=outcomes.total("entries"),
        bytes_back=outcomes.total("bytes_after") - outcomes.total("bytes_before"),
        restored=outcomes.as_json(),
        agents=steps.agents,
        service=steps.service,
        left=None if purged else steps.left,
        purge=purges,
        purged=purged,
        complete=complete,
        settings_file=str(call.settings_file),
    )
    if call.json:
        print_json(as_json(told))
    else:
        tell_left(told, [result.session for result in steps.not_back])
