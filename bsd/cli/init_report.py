"""The findings, plans and results of `bsd init`, as JSON and as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from bsd.actions.setup import WouldLeave
from bsd.cli.output import counted, note, say, say_check, share, size
from bsd.core.answers import OMIT_EMPTY
from bsd.core.config import PruningConfig
from bsd.core.formatting import NEVER
from bsd.setup.discovery import SOON_DAYS


@dataclass(slots=True)
class FileDiff:
    """A file to which something is added, as a unified diff."""

    path: str
    diff: str


@dataclass(slots=True)
class AgentInit:
    """One agent's program, and the work of `bsd init` for it. Sizes are bytes."""

    kind: str
    title: str
    directory: str
    on: Annotated[bool, Field(description="bsd manages its sessions")]
    changed: Annotated[bool, Field(description="It was turned on, or completed, by this call")] = (
        False
    )
    sessions: Annotated[
        int | None, Field(description="Without their parts; null: not readable")
    ] = None
    parts: Annotated[int | None, Field(description="Such as subagents")] = None
    bytes: int | None = None
    would_leave: WouldLeave | None = None
    deleted_soon: Annotated[
        int, Field(description=f"Sessions that the program deletes within {SOON_DAYS} days")
    ] = 0
    to_copy: Annotated[int, Field(description="Those of them that have no copy yet")] = 0
    copied: int = 0
    files: list[FileDiff] = field(default_factory=list)
    notes: Annotated[list[str], OMIT_EMPTY] = field(default_factory=list)
    problem: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(slots=True)
class Extraction:
    """The result of the first extraction. Sizes are bytes."""

    sessions: int
    values: int
    bytes_saved: int
    bytes_before: int
    busy: int
    failed: int
    not_begun: Annotated[int, Field(description="Sessions that are left for the daemon")]


@dataclass(slots=True)
class InitReport:
    """The answer of `bsd init`."""

    dry_run: bool
    root: str
    root_written: Annotated[bool, Field(description="bsd.toml names the root by this call")]
    settings_file: str
    agents: list[AgentInit]
    to_do: Annotated[bool, Field(description="Steps are left that this call did not do")]
    changed: bool
    extraction: Annotated[Extraction | None, Field(description="Null: none was made")]
    service: Annotated[str, Field(description="runs, absent, other_file or no_manager")]
    service_message: str
    hint: Annotated[str | None, OMIT_EMPTY] = None


def tell_agent(agent: AgentInit) -> None:
    """Print an agent's sessions, and the notes about it."""
    say(f"{agent.title}: {agent.directory}")
    if agent.problem:
        say(f"  {agent.problem}")
        if agent.hint:
            say(f"  Try: {agent.hint}")
    if agent.sessions is None:
        return
    parts = f" and {counted(agent.parts, 'subagent')}" if agent.parts else ""
    say(f"  {counted(agent.sessions, 'session')}{parts}, {size(agent.bytes or 0)}")
    if agent.would_leave is not None:
        say(f"  {_leaves(agent.would_leave)}")
    if agent.deleted_soon:
        say(f"  {_deleted_soon(agent)}")
    for text in agent.notes:
        say(f"  {text}")
    if agent.on and not agent.files:
        say("  bsd manages it")


def _leaves(told: WouldLeave) -> str:
    if told.sessions and not told.read_sessions:
        return "its sessions are too large to tell quickly how much would be extracted"
    if told.values and not told.bytes_saved:
        return f"{counted(told.values, 'value')} would be extracted from files that keep their size"
    percent = share(told.bytes_saved, told.bytes)
    if not told.is_sample:
        return f"{size(told.bytes_saved)} ({percent}) would be extracted by default"
    read = f"{told.read_sessions:,} of {counted(told.sessions, 'session')}"
    return (
        f"about {size(told.bytes_saved)} ({percent}) would be extracted by default,"
        f" from a sample of {read}"
    )


def _deleted_soon(agent: AgentInit) -> str:
    will = f"{counted(agent.deleted_soon, 'session')} will be deleted by {agent.title}"
    text = f"{will} within {SOON_DAYS} days"
    if agent.to_copy:
        return f"{text}; bsd keeps copies from now on"
    return f"{text}; bsd has copies"


def tell_diffs(agent: AgentInit) -> None:
    """Print the additions to each file, as diffs."""
    for file in agent.files:
        say(file.diff.rstrip("\n"))


def tell_done(agent: AgentInit) -> None:
    """Print whether an agent was turned on."""
    if agent.problem:
        say_check("fail", f"{agent.title}: {agent.problem}")
        if agent.hint:
            note(f"Try: {agent.hint}")
    elif agent.changed:
        files = f" ({counted(len(agent.files), 'file')} changed)" if agent.files else ""
        say_check("ok", f"bsd manages {agent.title} now{files}")


def tell_copied(agent: AgentInit) -> None:
    """Print how many sessions were copied for an agent."""
    if agent.copied:
        what = counted(agent.copied, "session")
        say_check("ok", f"copied {what} that {agent.title} deletes within {SOON_DAYS} days")


def tell_extraction(done: Extraction, config: PruningConfig) -> None:
    """Print the result of the first extraction, and how long the values are kept."""
    if done.values:
        values = f"{counted(done.values, 'value')} of {counted(done.sessions, 'session')}"
        percent = share(done.bytes_saved, done.bytes_before)
        say_check("ok", f"extracted {values}: {size(done.bytes_saved)} ({percent}) saved")
        later = "the archive keeps them, compressed" if config.archive else "they are deleted"
        kept = "for ever" if config.retention == NEVER else f"for {config.retention}, then {later}"
        say(f"  the store keeps them as they were {kept}")
    else:
        say("nothing was extracted")
    if done.not_begun:
        say(f"  {counted(done.not_begun, 'session')} left for `bsd run`, or `bsd extract`")
    if done.busy:
        say(f"  {counted(done.busy, 'session')} in use left for later")
    if done.failed:
        say_check("fail", f"{counted(done.failed, 'session')} failed; `bsd extract` says why")
