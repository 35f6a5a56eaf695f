"""Show and search sessions of which only the prompts are left (`maintenance/vanished.py`).

The prompts are in the history of the session's program. There is neither a transcript nor a copy.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.maintenance.vanished import VanishedSession, prompts_of, vanished_sessions
from bsd.store.search_words import Matcher, Snippet
from bsd.transcripts.agents.program import RememberedPrompt

PROMPTS_ONLY = "prompts only"


@dataclass(frozen=True, kw_only=True)
class PromptsOnlySession:
    """A session whose prompts are left in its program's history. Times are ISO 8601."""

    schema_name: ClassVar[str] = "PromptsOnly"

    session: str
    agent: str
    project: Annotated[str, Field(description="The working directory")]
    title: str | None
    started: str
    updated: str
    prompts: Annotated[int, Field(description="Number of prompts")]
    status: str = PROMPTS_ONLY


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of a user. The time is ISO 8601."""

    time: str
    text: str


@dataclass(frozen=True, kw_only=True)
class PromptsShown:
    """A session of which only prompts are left, with a page of the prompts."""

    session: PromptsOnlySession
    prompts: tuple[Prompt, ...]
    next: Annotated[int | None, Field(description="The `from` of the next page")]


@dataclass(frozen=True, slots=True)
class FoundPrompt:
    """A prompt that contains all the words.

    `matches` are pairs [start, end) of character positions in the snippet.
    """

    session: str
    project: str
    time: str
    snippet: str
    matches: tuple[tuple[int, int], ...]
    status: str = PROMPTS_ONLY


def prompts_only_session(session: VanishedSession) -> PromptsOnlySession:
    """Return the description of a session for an answer."""
    return PromptsOnlySession(
        session=str(session.name),
        agent=session.name.agent,
        project=session.project,
        title=session.title,
        started=iso_utc(session.first),
        updated=iso_utc(session.last),
        prompts=session.prompts,
    )


def show_prompts(
    context: ActionContext, session: str, *, start: int, limit: int
) -> PromptsShown | None:
    """Return a page of the prompts of a session; None if the history does not have the session."""
    with suppress(BsdError):
        name = SessionName.parse(session)
        vanished, prompts = prompts_of(context.layout, name, context.now())
        if (found := vanished.find(name)) is not None:
            page = tuple(Prompt(iso_utc(each.time), each.text) for each in prompts)
            end = start + limit
            return PromptsShown(
                session=prompts_only_session(found),
                prompts=page[start:end],
                next=end if len(page) > end else None,
            )
    return None


def no_copy(context: ActionContext, session: str) -> NotFound | None:
    """Return the error for a session of which only the prompts are left; None for any other."""
    with suppress(BsdError):
        name = SessionName.parse(session)
        found = vanished_sessions(context.layout, context.now(), name.agent).find(name)
        if found is not None:
            return NotFound(
                f"only the prompts of {name} are left: its program has deleted the session, and"
                " there is no copy of it",
                hint=f"`bsd archive show {name}` shows them",
            )
    return None


def search_prompts(
    context: ActionContext, words: str, *, agent: str | None, limit: int
) -> tuple[FoundPrompt, ...]:
    """Find prompts of sessions of which only the prompts are left, the newest first."""
    found: list[tuple[SessionName, RememberedPrompt, Snippet]] = []
    with closing(Matcher(words)) as matcher:

        def look(name: SessionName, prompt: RememberedPrompt) -> None:
            if matcher.may_hold(prompt.text) and (snippet := matcher.snippet(prompt.text)):
                found.append((name, prompt, snippet))

        vanished = vanished_sessions(context.layout, context.now(), agent, look=look)
    listed = {session.name for session in vanished.sessions}
    newest_first = sorted(found, key=lambda each: each[1].time, reverse=True)
    return tuple(
        FoundPrompt(str(name), prompt.project, iso_utc(prompt.time), snippet.text, snippet.matches)
        for name, prompt, snippet in newest_first
        if name in listed
    )[:limit]
