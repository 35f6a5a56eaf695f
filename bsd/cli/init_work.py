"""The steps of `bsd init` after agents are on: copies, first extraction, start at login."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bsd.actions.archive import copy_sessions
from bsd.actions.extract import extract
from bsd.cli.call import Call
from bsd.cli.each_session import each_session
from bsd.cli.init_report import AgentInit, Extraction, tell_copied, tell_extraction
from bsd.cli.output import note, say_check
from bsd.cli.problem import Problem
from bsd.cli.service import (
    LoginStart,
    daemon_process,
    install_service,
    login_start,
    restart_daemon,
)
from bsd.cli.service_manager import Manager
from bsd.core.errors import BsdError, Busy, LeftAlone
from bsd.maintenance.snapshots import SnapshotStatus
from bsd.planning.result import Status
from bsd.setup.discovery import AgentSessions, FoundAgent
from bsd.setup.switch import SetupPlan

_EXTRACT_SECONDS = 30.0  # for the first extraction; the daemon extracts the rest

Ask = Callable[[str], bool] | None  # None: agree without asking


@dataclass(eq=False, slots=True)
class InitAgent:
    """An agent, its sessions, and the plan for it.

    Attributes:
        plan: the changes to files; None: the agent stays as it is.
        to_copy: the sessions that are copied at once.
        is_new: this call turned it on.
    """

    found: FoundAgent
    told: AgentInit
    sessions: AgentSessions | None = None
    plan: SetupPlan | None = None
    to_copy: list[str] = field(default_factory=list)
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class FirstExtraction:
    """The result of the first extraction; if a signal ended it, `stop_code` is not 0."""

    told: Extraction | None
    stop_code: int = 0
    failed: bool = False


def copy_leaving(call: Call, agents: Sequence[InitAgent]) -> bool:
    """Copy the sessions that programs delete soon, of the agents that are on.

    Returns:
        False if some could not be copied. A session in use does not count: the daemon copies it.
    """
    leaving = [agent for agent in agents if agent.told.on and agent.to_copy]
    if not leaving:
        return True
    well = True
    with call.context(changes=True, wait=0.0) as context:
        for agent in leaving:
            try:
                done = copy_sessions(context, agent.to_copy)
            except BsdError as problem:
                well = False
                Problem(problem.message, problem.exit_code, problem.hint).show()
                continue
            copied = {one.session for one in done.sessions if one.status is SnapshotStatus.COPIED}
            agent.told.copied = len(copied & set(agent.to_copy))
            agent.told.to_copy -= agent.told.copied
            for one in done.sessions:
                if one.error is not None:
                    well &= one.status is not SnapshotStatus.FAILED
                    note(f"{one.session} was not copied: {one.reason}")
            if not call.json:
                tell_copied(agent.told)
    return well


def extract_idle(call: Call, agents: Sequence[InitAgent], ask: Ask) -> FirstExtraction | None:
    """Extract from the idle sessions of agents that this call turned on.

    Returns:
        None if no extraction was made: no sessions, extraction switched off, or the user declined.
    """
    new = [agent.sessions for agent in agents if agent.is_new and agent.sessions is not None]
    names = [name for sessions in new for name, _ in sessions.files]
    if not names:
        return None
    config = call.pruning.current
    if not config.enabled:
        note("nothing is extracted: the setting `enabled` is false")
        return None
    question = (
        "Extract now from the sessions that are idle? Each value can be restored"
        " (`bsd restore-all`: all of them)"
    )
    if ask is not None and not ask(question):
        return None
    try:
        done = each_session(
            call,
            extract,
            names,
            Status.EXTRACTED,
            may_go=True,
            waits=False,
            seconds=_EXTRACT_SECONDS,
        )
    except (Busy, LeftAlone) as problem:  # raised if there is only one session
        note(f"nothing is extracted: {problem.message}")
        return None
    except BsdError as problem:
        Problem(problem.message, problem.exit_code, problem.hint).show()
        return FirstExtraction(None, failed=True)
    told = Extraction(
        sessions=sum(result.entries > 0 for result in done.results),
        values=done.total("values"),
        bytes_saved=done.total("bytes_saved"),
        bytes_before=done.total("bytes_before"),
        busy=done.count(Status.BUSY),
        failed=done.count(Status.FAILED),
        not_begun=done.not_begun,
    )
    if not call.json:
        tell_extraction(told, config)
    if done.stopped_by is not None:
        note(
            "Stopped. `bsd init` continues with the start at login, `bsd extract` with the sessions"
        )
        return FirstExtraction(told, 128 + done.stopped_by, told.failed > 0)
    return FirstExtraction(told, failed=told.failed > 0)


def start_at_login(
    call: Call, manager: Manager, agents: Sequence[InitAgent], ask: Ask
) -> tuple[tuple[LoginStart, str], bool]:
    """Install the service, or name another way to run bsd.

    Returns:
        Whether bsd starts at login, with a sentence about it; and False if a step failed.
    """
    state, message = now = login_start(call, manager)
    has_new_source = any(agent.is_new and not agent.found.is_root for agent in agents)
    well = True
    try:
        match state:
            case LoginStart.ABSENT if ask is None or ask("Start bsd now and at each login?"):
                install_service(call, manager)
                _check(call, "ok", f"bsd is a service of {manager.name} now: `bsd status`")
                return login_start(call, manager), True
            case LoginStart.RUNS if has_new_source:
                restart_daemon(call, manager)
                return now, True
            case LoginStart.RUNS:
                return now, True
            case LoginStart.NO_MANAGER:
                _check(call, "warn", f"bsd does not start at login: {message}")
            case LoginStart.OTHER_FILE:
                _check(call, "warn", f"{message}: `bsd service install` asks what to do")
        if daemon_process(call) is None:
            note("`bsd run` manages the sessions for as long as it runs")
        elif has_new_source:
            restart_daemon(call, manager)
    except BsdError as problem:
        well = False
        Problem(problem.message, problem.exit_code, problem.hint).show()
    return now, well


def _check(call: Call, level: str, text: str) -> None:
    if not call.json:
        say_check(level, text)
