"""The settings of sources (`[[sources]]`), as `bsd.foundation.settings` checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from bsd.foundation.locations import expand

_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._@-]{0,63}$"


class SourceSettings(BaseModel):
    """A directory of another program's sessions that is to be watched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Annotated[str, Field(min_length=1)]  # which are known, bsd.agents.owners says
    path: Path
    name: Annotated[str, Field(pattern=_NAME)] | None = None  # else the kind is its name

    @property
    def called(self) -> str:
        """How the names of its agents begin."""
        return self.name or self.kind


def with_whole_paths(given: object, environ: Mapping[str, str]) -> object:
    """What a file says of sources, `~` in paths written out; what is no path stays as it is."""
    if not isinstance(given, list):
        return given
    return [_with_whole_path(each, environ) for each in given]


def _with_whole_path(given: Any, environ: Mapping[str, str]) -> Any:
    if not isinstance(given, dict) or not isinstance(path := given.get("path"), str):
        return given
    # A relative path would mean another place in every directory bsd is started in.
    whole = str(expand(path, environ)) if re.match("/|~(/|$)", path) else None
    return {**given, "path": whole}


def objection(sources: Sequence[SourceSettings], root: Path) -> str | None:
    """Why these sources cannot stand together; None if they can."""
    for number, source in enumerate(sources):
        for other in sources[:number]:
            if other.called == source.called:
                return f"two sources are called {source.called}: give one of them another `name`"
            if _overlap(other.path, source.path):
                return f"{source.path} is named twice, or one source lies in the other"
        if _overlap(root, source.path):
            return f"the source {source.path} and bsd's root {root} lie in each other"
    return None


def _overlap(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)
