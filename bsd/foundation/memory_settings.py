"""The table `[memory]` of the settings file (SPEC §10)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.functional_validators import field_validator

from bsd.foundation.decay_classes import LANGUAGES, LIFETIMES, REFRESHED
from bsd.foundation.errors import Invalid
from bsd.foundation.spelling import MINUTE, WEEK, lifetime_seconds

_LONGEST = 5200 * WEEK  # a century


def _lifetime(value: object) -> object:
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
_Lifetime = Annotated[int | None, BeforeValidator(_lifetime)]
_Place = Annotated[Path, AfterValidator(_place)]
_Words = Annotated[tuple[Annotated[str, AfterValidator(_word)], ...], Field(())]


class Words(BaseModel):
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
    words: dict[str, Words] = Field(
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
