"""What many machines share: their state, their sessions, and a search in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import OMIT_EMPTY
from bsd.fleet.catalogue.answers import FleetHost


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """A part of the fleet that cannot be used, and the reason."""

    part: Annotated[str, Field(description="bucket, database or uploads")]
    error: str
    hint: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The hosts, this one first, as far as the catalogue or the bucket knows them."""

    host: str
    bucket: str | None
    database: Annotated[bool, Field(description="True if there is a catalogue")]
    hosts: tuple[FleetHost, ...]
    warnings: tuple[str, ...]
    problems: tuple[FleetProblem, ...]


def fleet_status(context: ActionContext) -> FleetStatus:
    """Return the state of all hosts; a part that does not answer is listed as a problem."""
    settings = context.fleet
    return FleetStatus(settings.host, settings.bucket, settings.database is not None, (), (), ())
