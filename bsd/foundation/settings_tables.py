"""The tables of the settings file (`settings`): [memory], [[sources]], [workspace_limits]."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.functional_validators import field_validator

from bsd.foundation.errors import Invalid
from bsd.foundation.locations import expand
from bsd.foundation.setting import check_cron
from bsd.foundation.spelling import (
    LANGUAGES,
    LIFETIMES,
    MINUTE,
    NEVER,
    REFRESHED,
    WEEK,
    lifetime_seconds,
)

# --- [memory] (SPEC §10) ---

_LONGEST = 5200 * WEEK  # a century


def _lifetime_of_class(value: object) -> object:
    """Turn `14d` into seconds, and `never` into None."""
    if not isinstance(value, str):
        raise ValueError("a lifetime is a text")  # noqa: TRY004 - pydantic reports ValueError only
    try:
        seconds = lifetime_seconds(value, minimum=MINUTE, maximum=_LONGEST)
    except Invalid as problem:
        raise ValueError(problem.message) from None
    return None if seconds is None else int(seconds)


def _place(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():  # it would mean another place wherever bsd is started
        raise ValueError("relative")
    return path


def _word(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.lower()


_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
_Lifetime = Annotated[int | None, BeforeValidator(_lifetime_of_class)]
_Place = Annotated[Path, AfterValidator(_place)]
_Words = Annotated[tuple[Annotated[str, AfterValidator(_word)], ...], Field(())]


class ClassWords(BaseModel):
    """What tells that a fact belongs to a class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: _Words = Field((), description="a list of texts that a key holds")
    texts: _Words = Field((), description="a list of words and phrases that stand in the text")
    entities: tuple[str, ...] = Field((), description="a list of whole names of entities")


class MemorySettings(BaseModel):
    """Where the facts are, how long each class lives, and what belongs to which."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool | None = Field(
        None, description="true or false; left out, the daemon cares for what bsd created"
    )
    database: _Place | None = Field(None, description="a path, absolute or from ~")
    vectors: _Place | None = Field(None, description="a path, absolute or from ~")
    ttl: dict[_Name, _Lifetime] = Field(
        default_factory=dict,
        description='lifetimes by class from 1m on, or "never", as in ephemeral = "1h"',
    )
    refresh: tuple[str, ...] = Field(
        REFRESHED, description="a list of classes that live on when they are recalled"
    )
    languages: tuple[str, ...] = Field(
        (), description=f"a list of languages beside English: {', '.join(LANGUAGES)}"
    )
    words: dict[str, ClassWords] = Field(
        default_factory=dict,
        description="tables by class, as in [memory.words.active] with keys, texts, entities",
    )

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        if not set(LANGUAGES).issuperset(languages):
            raise ValueError("unknown")
        return languages

    @field_validator("refresh", "words")
    @classmethod
    def _known_classes(cls, value: Any, info: ValidationInfo) -> Any:
        known = {*LIFETIMES, *info.data.get("ttl", {})}
        if not known.issuperset(value):
            raise ValueError("unknown class")
        return value


# --- [[sources]] ---

_SOURCE_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._@-]{0,63}$"


class SourceSettings(BaseModel):
    """A directory of another program's sessions that is to be watched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Annotated[str, Field(min_length=1)]  # which are known, bsd.agents.owners says
    path: Path
    name: Annotated[str, Field(pattern=_SOURCE_NAME)] | None = None  # else the kind is its name

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


# --- [workspace_limits], and other settings of workspaces ---

HOURLY = "0 * * * *"
_MOST = 1 << 50


def _age(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text, minimum=MINUTE) is None else text.strip()
    except Invalid as problem:
        raise ValueError(problem.message) from None


def no_boolean(value: object) -> object:
    """Refuse what Python would take for 0 or 1."""
    if isinstance(value, bool):
        raise ValueError("a boolean is no number")  # noqa: TRY004 - pydantic reports ValueError only
    return value


_Whole = Annotated[int, BeforeValidator(no_boolean), Field(ge=0, le=_MOST)]
WorkspaceCron = Annotated[str, AfterValidator(check_cron)]
WorkspaceAge = Annotated[str, AfterValidator(_age)]
WorkspaceMost = _Whole


class WorkspaceLimits(BaseModel):
    """The table `[workspace_limits]`: what a program that is run in a workspace may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: Annotated[float, BeforeValidator(no_boolean)] = Field(
        60.0, ge=0, le=604_800, allow_inf_nan=False, description="a number between 0 and 604800"
    )
    cpu_seconds: _Whole = Field(60, description="a whole number, 0 for no limit")
    memory_bytes: _Whole = Field(4 << 30, description="a whole number, 0 for no limit")
    processes: _Whole = Field(512, description="a whole number, 0 for no limit")
    file_bytes: _Whole = Field(256 << 20, description="a whole number, 0 for no limit")
    disk_bytes: _Whole = Field(8 << 30, description="a whole number, 0 for no limit")
    output_bytes: _Whole = Field(1 << 20, description="a whole number")
