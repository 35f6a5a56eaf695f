"""Secrets: find keys and passwords in all text, page by page; redact a secret everywhere."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from bsd.actions.redact_secret import SecretRedacted, redact_secret
from bsd.actions.secrets import SecretList, secrets_page
from bsd.core.layout import SessionName
from bsd.http.dependencies import Agent, Context, Input, JsonRoute

router = APIRouter(prefix="/api/secrets", tags=["secrets"], route_class=JsonRoute)


@router.get("")
def secrets(
    context: Context,
    agent: Agent = None,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> SecretList:
    """Search for secrets for a short time, newest sessions first; `cursor` continues the search.

    The answer names a secret by its hash, and shows only its first characters.
    """
    return context.query(secrets_page, agent=agent, cursor=cursor)


class RedactBody(Input):
    """The sessions in which the secret was found."""

    sessions: Annotated[
        list[Annotated[str, Field(max_length=500)]],
        Field(max_length=200, default_factory=list, description="Names as AGENT/SESSION"),
    ]


@router.post("/{hash}/redact")
def redact(
    context: Context,
    hash: Annotated[str, Path(pattern=r"^[0-9a-f]{8,16}$")],
    body: RedactBody | None = None,
    *,
    dry_run: bool = False,
) -> SecretRedacted:
    """Replace every occurrence of a secret by `[redacted-RULE]`. This cannot be undone."""
    names = tuple(map(SessionName.parse, body.sessions if body else ()))
    return context.run(redact_secret, hash, sessions=names, dry_run=dry_run)
