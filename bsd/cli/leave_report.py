"""The report of `bsd leave`, as JSON and as text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.leave import LeftBehind
from bsd.cli.output import counted, note, say, say_check, say_wrapped, size
from bsd.core.answers import OMIT_EMPTY, Internal

_MOST_NAMED = 10


@dataclass(slots=True)
class AgentOff:
    """An agent that is turned off (in a dry run: would be)."""

    agent: str
    title: Internal[str]
    off: bool = False
    files: list[str] = field(default_factory=list)  # that were, or would be, changed
    problems: Annotated[list[str], OMIT_EMPTY] = field(default_factory=list)
    stays: Annotated[list[str], OMIT_EMPTY] = field(default_factory=list)  # with reasons
    waits_for: Annotated[
        list[str], Field(description="Sessions that are not back: it stays on"), OMIT_EMPTY
    ] = field(default_factory=list)


@dataclass(slots=True)
class ServiceGone:
    """The service that is removed (in a dry run: would be); `file` is null if there is none."""

    file: str | None = None
    origin: Annotated[str | None, OMIT_EMPTY] = None
    removed: bool = False
    ended_process: Annotated[
        int | None, Field(description="A daemon outside the service that was stopped"), OMIT_EMPTY
    ] = None
    problem: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(slots=True, kw_only=True)
class LeaveReport:
    """The answer of `bsd leave`, for a dry run too. Sizes are bytes."""

    dry_run: bool
    sessions_back: int = 0
    entries_back: int = 0
    bytes_back: int = 0
    restored: Annotated[
        dict[str, Any] | None, Field(description="The answer of `restore-all`"), OMIT_EMPTY
    ] = None
    agents: list[AgentOff] = field(default_factory=list)
    service: ServiceGone = field(default_factory=ServiceGone)
    daemon: Annotated[
        int | None, Field(description="The process of the daemon, which would end"), OMIT_EMPTY
    ] = None
    left: Annotated[
        LeftBehind | None, Field(description="The data that stays in bsd's directory")
    ] = None
    settings_file: Annotated[str | None, Field(description="bsd.toml, which stays")] = None
    purge: bool = False
    purged: bool = False
    complete: Annotated[bool, Field(description="All restored, turned off and removed")] = False


def tell_plan(found: LeaveReport) -> None:
    """Print the plan of `bsd leave`."""
    entries, amount = counted(found.entries_back, "entry"), size(found.bytes_back)
    where = counted(found.sessions_back, "session")
    say_wrapped(f"put {entries} ({amount}) back into {where}, and switch extraction off")
    for agent in found.agents:
        say(f"turn {agent.title} off{':' if agent.files else ''}")
        for file in agent.files:
            say(f"  {file}")
        for problem in agent.problems:
            note(problem)
    if found.service.file:
        say(f"stop the service and remove {found.service.file}")
    if found.daemon is not None:
        say(f"end the daemon (process {found.daemon})")
    if found.left is not None:
        verb = "delete bsd's data in" if found.purge else "leave bsd's data in"
        lines = list(_kept(found.left))
        say_wrapped(f"{verb} {found.left.root} ({size(found.left.bytes)}){':' if lines else ''}")
        for line in lines:
            say_wrapped(f"  {line}", 4)


def tell_service(service: ServiceGone) -> None:
    """Print the results for the service and the daemon."""
    if service.removed:
        say_check("ok", f"the service is stopped, {service.file} is removed")
    if service.ended_process is not None:
        say_check("ok", f"the daemon (process {service.ended_process}) has ended")
    if service.problem is not None:
        note(service.problem + (f"\nTry: {service.hint}" if service.hint else ""))


def tell_agents(agents: Sequence[AgentOff]) -> None:
    """Print the result for each agent."""
    for agent in agents:
        if agent.waits_for:
            count = counted(len(agent.waits_for), "session")
            say_check("warn", f"{agent.title} stays on: {count} not restored yet")
        elif agent.off:
            changed = ", ".join(agent.files)
            say_check("ok", f"{agent.title} is off" + (f": changed {changed}" if changed else ""))
        else:
            say_check("fail", f"{agent.title} is off in part")
        for line in (*agent.problems, *agent.stays):
            note(line)


def tell_left(report: LeaveReport, not_back: Sequence[str]) -> None:
    """Print the data that stays and the reason, then the next step."""
    left = report.left
    if left is not None:
        say()
        lines = list(_kept(left))
        about = "it holds" if lines else "none of it is needed any more"
        say_wrapped(
            f"bsd's data stays in {left.root} ({size(left.bytes)}): {about}{':' if lines else ''}"
        )
        for line in lines:
            say_wrapped(f"  {line}", 4)
        if report.complete and not report.purge:
            say("`bsd leave --purge` deletes it, after a question.")
    if report.complete and report.settings_file and os.path.lexists(report.settings_file):
        say_wrapped(f"{report.settings_file} stays: delete it if you no longer need it.")
    for name in not_back[:_MOST_NAMED]:
        note(f"{name} is not restored")
    if (more := len(not_back) - _MOST_NAMED) > 0:
        note(f"… and {counted(more, 'session')} more")
    if not_back:
        hint = "when these sessions are idle and the problems above are solved"
        note(f"Try: `bsd leave` again {hint}; it continues where it stopped")
    elif not report.complete and not (report.purge and left is not None):
        note("Try: `bsd leave` again; it continues where it stopped")
    elif report.complete:
        say_check("ok", "bsd has left; its package is still installed")


def _kept(left: LeftBehind) -> Iterator[str]:
    """Yield a line for each kind of data that exists only here, with the command to get it back."""
    if left.gone_sessions:
        sessions = f"{counted(left.gone_sessions, 'session')} ({size(left.gone_bytes)})"
        how = "`bsd archive list`, `bsd archive bring-back AGENT/SESSION`"
        yield f"{sessions} that their program has deleted: {how}"
    if left.trash_sessions:
        sessions = f"{counted(left.trash_sessions, 'session')} ({size(left.trash_bytes)})"
        yield f"{sessions} in the trash: `bsd trash list`, `bsd trash restore ID`"
    if left.stores:
        values = f"values of {counted(left.stores, 'session')} ({size(left.stores_bytes)})"
        yield f"{values} whose transcript is not there: `bsd verify` says where it may be"
    if left.orphans:
        yield f"{counted(left.orphans, 'file')} of late lines without a place: `bsd verify`"
    if left.facts_bytes:
        yield f"facts of agents ({size(left.facts_bytes)}): `bsd memory`"


def purge_question(left: LeftBehind, not_back: int) -> str:
    """Return the question before bsd's directory is deleted; it lists the data that would be lost.

    Args:
        not_back: the number of values that could not be restored, as they are missing or damaged.
    """
    question = f"Delete bsd's data in {left.root} ({size(left.bytes)}) for good?"
    lines = list(_kept(left))
    if not_back:
        lines.append(f"{counted(not_back, 'value')} that could not be restored, as listed above")
    if not lines:
        return f"{question} None of it is needed any more."
    return "\n".join(["This would be lost for good:", *(f"  {line}" for line in lines), question])
