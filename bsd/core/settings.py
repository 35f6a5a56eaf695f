"""What is fixed at start (SPEC §4): the table. `settings_reader` reads and checks it.

A setting is one line: its name, its type with what a value must be, its default, and the words for
that, which a bad value is answered with. A table of the file (`[memory]`) is a field whose type is
a dataclass. Nothing here loads pydantic, which checks the values: a daemon would keep its 10 MB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints
from urllib.parse import urlsplit

from annotated_types import Ge, Le, MinLen

from bsd.core.config import check_cron
from bsd.core.errors import Invalid
from bsd.core.formatting import (
    LANGUAGES,
    LIFETIMES,
    MINUTE,
    NEVER,
    REFRESHED,
    WEEK,
    lifetime_seconds,
)

PREFIX = "BRAINSURGEON_"  # of variables in the environment
AT_ONCE = "at once"  # marks what a running daemon follows
_WORDS = "words"  # in the metadata of a field

_MOST_WORKERS = 8  # unless somebody says more: each has a child, of some 50 MB
_LONGEST = 5200 * WEEK  # a century
_MOST = 1 << 50


# --- what a value must be, beyond its type ---


@dataclass(frozen=True)
class _Read:
    """Metadata of a type: what pydantic calls when it checks a value of it."""

    read: Callable[..., Any]
    _how: ClassVar[str]  # by which function of `core_schema`

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - only pydantic asks

        return getattr(core_schema, self._how)(self._called, handler(source))

    def _called(self, value: Any) -> Any:
        return self.read(value)


class Before(_Read):
    """`read` is given what came, and what it returns is checked."""

    _how = "no_info_before_validator_function"


class After(_Read):
    """`read` is given a value of the type, and returns what it becomes."""

    _how = "no_info_after_validator_function"


class Beside(_Read):
    """`read` is given a value of the type, and the table's fields before it."""

    _how = "with_info_after_validator_function"

    def _called(self, value: Any, info: Any = None) -> Any:
        return self.read(value, info.data)


def _like(pattern: str) -> After:
    def check(text: str) -> str:
        if not re.search(pattern, text):
            raise ValueError(pattern)
        return text

    return After(check)


def _no_boolean(value: object) -> object:
    """Refuse what Python would take for 0 or 1."""
    if isinstance(value, bool):
        raise ValueError("a boolean is no number")  # noqa: TRY004 - pydantic reports ValueError only
    return value


def _listed(value: object) -> object:
    """Split a list that came as text with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise ValueError(text)
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(text)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _address(value: object) -> object:
    if isinstance(value, str):
        try:
            return HttpAddress.parse(value)
        except Invalid as problem:
            raise ValueError(problem.message) from None
    return value


def _level(value: object) -> object:
    if isinstance(value, str):
        value = value.strip().lower()
    return "warn" if value == "warning" else value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _age(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text, minimum=MINUTE) is None else text.strip()
    except Invalid as problem:
        raise ValueError(problem.message) from None


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


def _language(text: str) -> str:
    if text not in LANGUAGES:
        raise ValueError("unknown")
    return text


def _known_classes(value: Any, before: Mapping[str, Any]) -> Any:
    if not {*LIFETIMES, *before.get("ttl", {})}.issuperset(value):
        raise ValueError("unknown class")
    return value


_Text = Annotated[str, MinLen(1)]
_Texts = Annotated[tuple[_Text, ...], Before(_listed)]
_Origins = Annotated[tuple[Annotated[str, After(_origin)], ...], Before(_listed)]
_Amount = Annotated[int, Ge(0), Le(_MOST), Before(_no_boolean)]  # 0: no limit
_Class = Annotated[str, _like(r"^[a-z][a-z0-9_-]{0,31}$")]
_Lifetime = Annotated[int | None, Before(_lifetime_of_class)]
_Place = Annotated[Path, After(_place)]
_Words = tuple[Annotated[str, After(_word)], ...]
_Languages = tuple[Annotated[str, After(_language)], ...]


def line(words: str, default: Any = MISSING) -> Any:
    """A field of a table, and what a value of it must be, as in `workers must be …`."""
    if isinstance(default, type):
        return field(default_factory=default, metadata={_WORDS: words})
    return field(default=default, metadata={_WORDS: words})


# --- the tables of the file: [memory] (SPEC §10), [[sources]], [workspace_limits] ---


class Table:
    """A table of the settings file, all of whose keys are known."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class ClassWords(Table):
    """What tells that a fact belongs to a class."""

    keys: _Words = line("a list of texts that a key holds", ())
    texts: _Words = line("a list of words and phrases that stand in the text", ())
    entities: tuple[str, ...] = line("a list of whole names of entities", ())


@dataclass(frozen=True, slots=True)
class MemorySettings(Table):
    """Where the facts are, how long each class lives, and what belongs to which."""

    enabled: bool | None = line(
        "true or false; left out, the daemon cares for what bsd created", None
    )
    database: _Place | None = line("a path, absolute or from ~", None)
    vectors: _Place | None = line("a path, absolute or from ~", None)
    ttl: dict[_Class, _Lifetime] = line(
        'lifetimes by class from 1m on, or "never", as in ephemeral = "1h"', dict
    )
    refresh: Annotated[tuple[str, ...], Beside(_known_classes)] = line(
        "a list of classes that live on when they are recalled", REFRESHED
    )
    languages: _Languages = line(f"a list of languages beside English: {', '.join(LANGUAGES)}", ())
    words: Annotated[dict[str, ClassWords], Beside(_known_classes)] = line(
        "tables by class, as in [memory.words.active] with keys, texts, entities", dict
    )


@dataclass(frozen=True, slots=True)
class SourceSettings(Table):
    """A directory of another program's sessions that is to be watched."""

    kind: _Text  # which are known, bsd.transcripts.agents.programs says
    path: Path
    # Else the kind is its name.
    name: Annotated[str, _like(r"^[A-Za-z0-9_-][A-Za-z0-9._@-]{0,63}$")] | None = None

    @property
    def called(self) -> str:
        """How the names of its agents begin."""
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class WorkspaceLimits(Table):
    """What a program that is run in a workspace may use."""

    seconds: Annotated[float, Ge(0), Le(604_800), Before(_no_boolean)] = line(
        "a number between 0 and 604800", 60.0
    )
    cpu_seconds: _Amount = line("a whole number, 0 for no limit", 60)
    memory_bytes: _Amount = line("a whole number, 0 for no limit", 4 << 30)
    processes: _Amount = line("a whole number, 0 for no limit", 512)
    file_bytes: _Amount = line("a whole number, 0 for no limit", 256 << 20)
    disk_bytes: _Amount = line("a whole number, 0 for no limit", 8 << 30)
    output_bytes: _Amount = line("a whole number", 1 << 20)


# --- all of them ---


class HttpAddress(NamedTuple):
    """Where the HTTP API listens on TCP; port 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HttpAddress:
        """Read `HOST:PORT`, an IPv6 address in brackets; raises Invalid."""
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})", text)
        if not found or int(found[3]) > 65_535:
            raise Invalid(
                f"{text!r} is not an address to listen on",
                hint="write HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000",
            )
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_HOURLY = "0 * * * *"


@dataclass(frozen=True, slots=True)
class Settings:
    """Fixed for the life of the process, but for what is marked `AT_ONCE`.

    All else but the root and the tables has a variable in the environment (`VARIABLES`).
    """

    root: Path = line("the path of the OpenClaw directory, absolute or from ~")
    socket: Path = line("the path of the socket, absolute or from ~")
    api_keys: _Texts = line("a list of keys (in the environment: with commas)", ())
    cors_origins: _Origins = line(
        "a list of origins like https://bs.example.com (no path, no *)", ()
    )
    readonly: bool = line("true or false", default=False)
    http: Annotated[HttpAddress | None, Before(_address)] = line(
        "HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000", None
    )
    http_open: bool = line("true or false", default=False)  # beyond loopback, without keys
    workers: Annotated[int, Ge(0), Le(32), Before(_no_boolean)] = line(
        f"a whole number between 0 (one a core, {_MOST_WORKERS} at most) and 32", 0
    )
    debounce_seconds: Annotated[float, Ge(0), Le(3600), Before(_no_boolean)] = line(
        "a number between 0 and 3600", 2.0
    )
    # Nothing is planned on a file younger than 2 s (DESIGN §4), so less would be a lie.
    quiet_seconds: Annotated[float, Ge(2), Le(3600), Before(_no_boolean)] = line(
        "a number between 2 and 3600", 2.0
    )
    log_level: Annotated[
        Literal["trace", "debug", "info", "warn", "error"], Before(_level), AT_ONCE
    ] = line("trace, debug, info, warn or error", "info")
    log_format: Annotated[Literal["auto", "json", "console"], Before(_lower), AT_ONCE] = line(
        "auto, json or console", "auto"
    )
    auto_refresh_ms: Annotated[int, Ge(0), Le(86_400_000), Before(_no_boolean), AT_ONCE] = line(
        "a whole number between 0 (off) and 86400000", 10_000
    )
    workspace_root: Path | None = line(
        "the path of the directory of workspaces, absolute or from ~", None
    )
    workspace_cron: Annotated[str, After(check_cron)] = line(
        f'a valid cron expression (e.g., "{_HOURLY}")', _HOURLY
    )
    workspace_max_age: Annotated[str, After(_age)] = line(
        'a duration of 1m to 52w, such as "24h", or "never"', "24h"
    )
    workspace_max_count: _Amount = line("a whole number, 0 for no limit", 0)
    workspace_max_bytes: _Amount = line("a whole number, 0 for no limit", 0)
    workspace_limits: WorkspaceLimits = line("a table: [workspace_limits]", WorkspaceLimits)
    memory: MemorySettings = line("a table: [memory]", MemorySettings)
    sources: tuple[SourceSettings, ...] = line(
        "tables [[sources]], each with `kind`, `path` (absolute or from ~) and, if it"
        " shall not be called like its kind, `name` (letters, digits and . _ @ -)",
        (),
    )

    @property
    def threads(self) -> int:
        """How many workers there are."""
        return self.workers or max(1, min(os.cpu_count() or 1, _MOST_WORKERS))

    def __repr__(self) -> str:
        return f"<settings of {self.root}>"  # keys shall stand in no log


_IN_FILE_ONLY = {"root", "workspace_limits", "memory", "sources"}  # the root has older variables
# Environment variable → setting. Where two name the same one, the first that is set counts.
VARIABLES = {"AUTO_REFRESH_MS": "auto_refresh_ms"} | {
    f"{PREFIX}{one.name.upper()}": one.name
    for one in fields(Settings)
    if one.name not in _IN_FILE_ONLY
}


def types_of(table: type) -> dict[str, Any]:
    """The types of a table's settings by name, with what a value of each must be."""
    return get_type_hints(table, include_extras=True)


def words_of(table: type, name: str) -> str:
    """What a value of a setting must be, as in `workers must be …`."""
    return str(next(one.metadata[_WORDS] for one in fields(table) if one.name == name))


def table_of(kind: Any) -> type | None:
    """The table that a setting is, by its type."""
    return kind if isinstance(kind, type) and issubclass(kind, Table) else None
