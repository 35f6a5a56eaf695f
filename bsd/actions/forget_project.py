"""Forget all sessions of a project for good (`maintenance/forget_project.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.search import UnreadSession
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError
from bsd.maintenance.forget import Forget
from bsd.maintenance.forget_project import (
    ForgetResult,
    KeptProject,
    KeptSession,
    find_project,
    forget_project,
)
from bsd.maintenance.vanished import prompts_of_agents


@dataclass(frozen=True, kw_only=True)
class ForgottenSession:
    """The data of a session that was deleted (with `dry_run`: would be). Sizes are bytes."""

    session: str
    files: int
    bytes: int
    in_place: Annotated[bool, Field(description="True if its transcript exists")]
    error: Annotated[
        str | None, Field(description="Why the session was not forgotten"), OMIT_EMPTY
    ] = None
    problem: Internal[BsdError | None] = None


@dataclass(frozen=True, kw_only=True)
class ForgottenProject:
    """The data of a project that was deleted (with `dry_run`: would be). Sizes are bytes."""

    project: Annotated[str, Field(description="The project, as the request names it")]
    agents: tuple[str, ...]
    dry_run: bool
    sessions: tuple[ForgottenSession, ...]
    files: Annotated[int, Field(description="Including the copies of its memory")]
    bytes: int
    memory_files: int
    kept_by: Annotated[
        tuple[str, ...],
        Field(description="Sessions of other projects that still contain the same entries"),
    ]
    in_place: Annotated[
        int,
        Field(description="Number of its sessions that still exist, and may be copied again"),
    ]
    prompts: Annotated[int, Field(description="Number of its prompts in its program's own history")]
    failed: int
    unread: Annotated[
        tuple[UnreadSession, ...],
        Field(description="Sessions whose initial working directory could not be read"),
        OMIT_EMPTY,
    ] = ()


def forget_whole_project(
    context: ActionContext, project: str, *, dry_run: bool = False
) -> ForgottenProject:
    """Delete for good all data that bsd stores of a project's sessions, and of its memory.

    Args:
        project: an agent's name, or a directory: the sessions that began in it or below it.
        dry_run: return the data that would be deleted, and delete none.

    Raises:
        NotFound: bsd stores no data of the project.
        Invalid: no agent can have such a name.
    """
    layout = context.layout
    kept = find_project(layout, project)
    if dry_run:
        sessions = [
            _session(each, each.files, each.size)
            for each in kept.sessions
            if each.files or not each.in_place
        ]
        return _answer(context, project, kept, sessions, (), dry_run=True)
    keep = context.config.current.trash_retention
    forgetting = Forget(
        layout, trash_keep=keep, everywhere=True, actor=context.actor, budget=context.budget
    )
    by_name = {each.name: each for each in kept.sessions}
    results, done, total = [], 0, sum(each.size for each in kept.sessions)
    for result in forget_project(forgetting, layout, kept, actor=context.actor):
        results.append(result)
        done += by_name[result.name].size
        context.progress(done, total)  # raises if a signal has come, which ends the run
    sessions = [_result(by_name[result.name], result) for result in results]
    others: set[str] = set()
    for result in results:
        if result.forgotten is not None:
            others.update(result.forgotten.kept_by)
    own = {str(name) for name in by_name}
    kept_by = tuple(sorted(each for each in others if each.partition("@")[0] not in own))
    context.cleaned()
    return _answer(context, project, kept, sessions, kept_by, dry_run=False)


def _session(kept: KeptSession, files: int, size: int) -> ForgottenSession:
    return ForgottenSession(session=str(kept.name), files=files, bytes=size, in_place=kept.in_place)


def _result(kept: KeptSession, result: ForgetResult) -> ForgottenSession:
    if result.forgotten is not None:
        return _session(kept, result.forgotten.files, result.forgotten.bytes)
    problem = result.problem
    return ForgottenSession(
        session=str(kept.name),
        files=0,
        bytes=0,
        in_place=kept.in_place,
        error=problem.message if problem else None,
        problem=problem,
    )


def _answer(
    context: ActionContext,
    project: str,
    kept: KeptProject,
    sessions: list[ForgottenSession],
    kept_by: tuple[str, ...],
    *,
    dry_run: bool,
) -> ForgottenProject:
    memory_files = sum(files for files, _ in kept.memory.values())
    memory_bytes = sum(size for _, size in kept.memory.values())
    return ForgottenProject(
        project=project,
        agents=kept.agents,
        dry_run=dry_run,
        sessions=tuple(sessions),
        files=sum(each.files for each in sessions) + memory_files,
        bytes=sum(each.bytes for each in sessions) + memory_bytes,
        memory_files=memory_files,
        kept_by=kept_by,
        in_place=sum(each.in_place for each in kept.sessions),
        prompts=prompts_of_agents(context.layout, set(kept.agents)),
        failed=sum(each.error is not None for each in sessions),
        unread=tuple(
            UnreadSession(str(name), problem.message, problem)
            for name, problem in kept.unread.items()
        ),
    )
