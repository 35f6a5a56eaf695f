"""get_context: what an agent may know of its session (seed 001)."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.agents.dialect import Format
from bsd.surgery.plan import Means
from bsd.surgery.view import Context, context
from bsd.text.reader import Transcript
from bsd.verbs.verb import Route, Verb


@dataclass(frozen=True, slots=True)
class GetContext:
    """Nothing but the session."""


def _query(source: Transcript, fmt: Format, _: GetContext, means: Means) -> Context:
    return context(means.name, source, fmt)


GET_CONTEXT = Verb(
    name="get_context",
    arguments=GetContext,
    answer=Context,
    query=_query,
    route=Route(
        "GET",
        "/api/sessions/{agent}/{session}/context",
        "context",
        "What an agent may know of its session: sizes, what is away, what could be.",
    ),
    about="""
    Lists every entry with the six-digit hash of its content, its size, and whether it can be or
    has been extracted.
    """,
    examples=(
        "bsd context main/4f2a",
        "bsd context main/4f2a --json | jq -r '.extracted_ids[]'",
    ),
)
