"""The settings that are fixed at start (SPEC §4): each setting is a field of `Settings`.

They come from the command line, the environment, `bsd.toml` and the defaults, in this order. A
table of the file (`[memory]`) is a field whose type is a model. Settings that can be changed at run
time are in `bsd.core.config`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from bsd.core.config import check_cron
from bsd.core.errors import ConfigError, FieldError, Invalid
from bsd.core.exclude import check_pattern
from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.fleet_settings import FleetSettings
from bsd.core.formatting import (
    LANGUAGES,
    LIFETIMES,
    MINUTE,
    REFRESHED,
    WEEK,
    lifetime_seconds,
    nearest,
)
from bsd.core.locations import (
    LONGEST_SOCKET_PATH,
    find_socket,
    named_root,
    read_settings_file,
    settings_file,
    usual_root,
)
from bsd.core.price_list import PriceSources
from bsd.core.price_settings import PriceSettings, members_of
from bsd.core.prices import price_rows
from bsd.core.validation import checked_age, details_of, is_unknown, reason_of

PREFIX = "BRAINSURGEON_"  # of variables in the environment

_MOST_WORKERS = 8  # by default; each has a child process of about 60 MB
_LONGEST = 5200 * WEEK  # a century
_MOST = 1 << 50


# --- types of values ---


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not a boolean")  # noqa: TRY004 - for pydantic
    return value


def _split(value: object) -> object:
    """Split a list from the environment at commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _log_level(value: object) -> object:
    return "warn" if _lower(value) == "warning" else _lower(value)


def _absolute(value: object) -> Path:
    path = os.path.expanduser(value) if isinstance(value, str | os.PathLike) else ""
    if not os.path.isabs(path):  # its meaning would depend on where bsd is started
        raise ValueError("a path must be absolute, or begin with ~")
    return Path(os.path.abspath(path))


def _socket(path: Path) -> Path:
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise ValueError(f"the path of a socket has at most {LONGEST_SOCKET_PATH} bytes")
    return path


def _origin(text: str) -> str:
    parts = urlsplit(text)
    is_web = parts.scheme in {"http", "https"} and parts.hostname and not parts.username
    if not is_web or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("an origin is like https://bs.example.com (no path, no *)")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _class_lifetime(value: object) -> int | None:
    """Convert `14d` to seconds, and `never` to None."""
    if not isinstance(value, str):
        raise ValueError('a lifetime is a text, as in "14d", or "never"')  # noqa: TRY004
    try:
        seconds = lifetime_seconds(value, minimum=MINUTE, maximum=_LONGEST)
    except Invalid as problem:
        raise ValueError(problem.message) from None
    return None if seconds is None else int(seconds)


def _language(text: str) -> str:
    if text not in LANGUAGES:
        raise ValueError(f"the languages beside English are {', '.join(LANGUAGES)}")
    return text


class HttpAddress(NamedTuple):
    """The TCP address of the HTTP API; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HttpAddress:
        """Parse `HOST:PORT`, with an IPv6 address in brackets; raises Invalid."""
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


def _address(value: object) -> HttpAddress:
    if isinstance(value, HttpAddress):
        return value
    try:
        return HttpAddress.parse(value if isinstance(value, str) else "")
    except Invalid:
        raise ValueError("an address is HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000") from None


AbsolutePath = Annotated[Path, PlainValidator(_absolute)]
Text = Annotated[str, Field(min_length=1)]
Amount = Annotated[int, BeforeValidator(_refuse_boolean), Field(ge=0, le=_MOST)]  # 0: no limit
Whole = Annotated[int, BeforeValidator(_refuse_boolean)]
Seconds = Annotated[float, BeforeValidator(_refuse_boolean)]
FactClass = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
Words = tuple[Annotated[str, Field(pattern=r"\S"), AfterValidator(str.lower)], ...]


# --- tables of the file ---


class Table(BaseModel):
    """A table of the settings file; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassWords(Table):
    """`[memory.words.CLASS]`: the words that put a fact into the class."""

    keys: Words = Field((), description="parts of a key")
    texts: Words = Field((), description="words and phrases in the text")
    entities: tuple[str, ...] = Field((), description="whole names of entities")


class MemorySettings(Table):
    """`[memory]` (SPEC §10): the database of facts, and the lifetime of each class of facts."""

    enabled: bool | None = Field(None, description="by default only for what bsd created")
    database: AbsolutePath | None = None
    vectors: AbsolutePath | None = None
    ttl: dict[FactClass, Annotated[int | None, BeforeValidator(_class_lifetime)]] = Field(
        default_factory=dict, description='lifetimes by class, as in ephemeral = "1h", or "never"'
    )
    refresh: tuple[str, ...] = Field(
        REFRESHED, description="classes whose facts are refreshed when they are recalled"
    )
    languages: tuple[Annotated[str, AfterValidator(_language)], ...] = ()
    words: dict[str, ClassWords] = Field(default_factory=dict)

    @field_validator("refresh", "words")
    @classmethod
    def _refuse_unknown_classes(cls, value: Any, info: ValidationInfo) -> Any:
        known = {*LIFETIMES, *info.data.get("ttl", {})}
        if unknown := sorted(set(value) - known):
            raise ValueError(f"there is no class {unknown[0]}; [memory.ttl] defines new ones")
        return value


class SourceSettings(Table):
    """`[[sources]]`: a directory of another program's sessions that bsd watches."""

    kind: Text  # bsd.transcripts.agents.programs lists the known kinds
    path: AbsolutePath
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._@-]{0,63}$")] | None = None

    @property
    def called(self) -> str:
        """The name of the source, which begins the names of its agents."""
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """`[workspace_limits]`: limits of a program that runs in a workspace; 0 means no limit.

    A plain dataclass, since the library `workspaces` derives a class from it.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    seconds: Annotated[Seconds, Field(ge=0, le=604_800)] = 60.0
    cpu_seconds: Amount = 60
    memory_bytes: Amount = 4 << 30
    processes: Amount = 512
    file_bytes: Amount = 256 << 20
    disk_bytes: Amount = 8 << 30
    output_bytes: Amount = 1 << 20


# --- all settings ---


class Settings(BaseSettings):
    """The settings of a process; only those in `RELOADABLE` can change while it runs."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        env_prefix=PREFIX,
        env_ignore_empty=True,
        enable_decoding=False,  # lists in the environment are separated by commas
        allow_inf_nan=False,
    )

    config_file: AbsolutePath | None = None  # bsd.toml; it may be missing
    root: AbsolutePath
    socket: Annotated[AbsolutePath, AfterValidator(_socket)] = Field(
        default_factory=lambda given: find_socket(given["root"], os.environ),
        description="the path of the socket, absolute or from ~",
    )
    api_keys: Annotated[tuple[Text, ...], BeforeValidator(_split)] = Field(
        (), repr=False, description="a list of keys (in the environment: with commas)"
    )
    cors_origins: Annotated[
        tuple[Annotated[str, AfterValidator(_origin)], ...], BeforeValidator(_split)
    ] = Field((), description="a list of origins like https://bs.example.com (no path, no *)")
    readonly: bool = Field(default=False, description="true or false")
    http: Annotated[HttpAddress, PlainValidator(_address)] | None = Field(
        None, description="HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000"
    )
    http_open: bool = Field(default=False, description="true or false")  # beyond loopback, no keys
    workers: Whole = Field(
        0,
        ge=0,
        le=32,
        description=f"a whole number between 0 (one a core, {_MOST_WORKERS} at most) and 32",
    )
    debounce_seconds: Seconds = Field(2.0, ge=0, le=3600, description="a number between 0 and 3600")
    # bsd plans no change of a file that was written less than 2 s ago (DESIGN §4).
    quiet_seconds: Seconds = Field(2.0, ge=2, le=3600, description="a number between 2 and 3600")
    log_level: Annotated[
        Literal["trace", "debug", "info", "warn", "error"], BeforeValidator(_log_level)
    ] = Field("info", description="trace, debug, info, warn or error")
    log_format: Annotated[Literal["auto", "json", "console"], BeforeValidator(_lower)] = Field(
        "auto", description="auto, json or console"
    )
    auto_refresh_ms: Whole = Field(
        10_000,
        ge=0,
        le=86_400_000,
        validation_alias=AliasChoices("AUTO_REFRESH_MS", "BRAINSURGEON_AUTO_REFRESH_MS"),
        description="a whole number between 0 (off) and 86400000",
    )
    workspace_root: AbsolutePath | None = Field(
        None, description="the path of the directory of workspaces, absolute or from ~"
    )
    workspace_cron: Annotated[str, AfterValidator(check_cron)] = Field(
        "0 * * * *", description='a valid cron expression (e.g., "0 * * * *")'
    )
    workspace_max_age: Annotated[str, AfterValidator(checked_age)] = Field(
        "24h", description='a duration of 1m to 52w, such as "24h", or "never"'
    )
    workspace_max_count: Amount = Field(0, description="a whole number, 0 for no limit")
    workspace_max_bytes: Amount = Field(0, description="a whole number, 0 for no limit")
    workspace_limits: WorkspaceLimits = Field(default_factory=WorkspaceLimits)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    sources: tuple[SourceSettings, ...] = ()
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    exclude: Annotated[
        tuple[Annotated[str, AfterValidator(check_pattern)], ...], BeforeValidator(_split)
    ] = Field((), description="a list of agents, sessions and directories")
    prices: tuple[PriceSettings, ...] = ()
    prices_file: AbsolutePath | None = Field(
        None, description="the path of a file in LiteLLM's form, absolute or from ~"
    )

    @property
    def price_sources(self) -> PriceSources:
        """The prices that these settings name."""
        rows = [row.model_dump(mode="json") for row in self.prices]
        return PriceSources(price_rows(rows), self.prices_file)

    @property
    def threads(self) -> int:
        """The number of workers."""
        return self.workers or max(1, min(os.cpu_count() or 1, _MOST_WORKERS))

    @field_validator("sources")
    @classmethod
    def _refuse_overlap(
        cls, sources: tuple[SourceSettings, ...], info: ValidationInfo
    ) -> tuple[SourceSettings, ...]:
        root = info.data.get("root")
        for number, source in enumerate(sources):
            for other in sources[:number]:
                if other.called == source.called:
                    raise ValueError(
                        f"two sources are called {source.called}: change the `name` of one"
                    )
                if _overlap(other.path, source.path):
                    raise ValueError(f"{source.path} is listed twice, or contains another source")
            if root is not None and _overlap(root, source.path):
                raise ValueError(f"the source {source.path} and bsd's root {root} overlap")
        return sources

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there is no .env
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - no such files
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, the file `config_file`."""
        file = init_settings().get("config_file")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)


def _overlap(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


# The settings that a running daemon applies when it reloads them.
RELOADABLE = frozenset({"log_level", "log_format", "auto_refresh_ms"})

# The root has other, older variables; tables can be set only in the file.
_WITHOUT_VARIABLE = {
    "config_file",
    "root",
    "workspace_limits",
    "memory",
    "sources",
    "prices",
    "fleet",
}
# Environment variable → setting. If two variables set the same setting, the first takes precedence.
VARIABLES = {"AUTO_REFRESH_MS": "auto_refresh_ms"} | {
    f"{PREFIX}{name.upper()}": name
    for name in Settings.model_fields
    if name not in _WITHOUT_VARIABLE
}
# Read by `named_root`, or by client scripts of the original program.
_OTHER_VARIABLES = ("BRAINSURGEON_AGENTS_DIR", "BRAINSURGEON_URL")


# --- loading ---


def load_settings(config_file: Path | None = None, root: Path | None = None) -> Settings:
    """Read the settings from the command line, the environment, the file and the defaults.

    Args:
        config_file: `--config`; the file must exist. Default: `$XDG_CONFIG_HOME/bsd/bsd.toml`.
        root: `--root`.

    Raises:
        ConfigError: With a FieldError for every key and variable that is not valid.
    """
    path = config_file or settings_file(os.environ)
    in_file = read_settings_file(path, required=config_file is not None)
    given: dict[str, Any] = {"config_file": path.absolute()}
    named = named_root(root, os.environ)
    if named is not None or "root" not in in_file:
        given["root"] = named or usual_root(os.environ)
    problems = _unknown_variables()
    try:
        settings = Settings(**given)
    except ValidationError as error:
        problems += [_problem(detail, path) for detail in details_of(error)]
    if problems:
        raise _refusal(problems)
    return settings


def _unknown_variables() -> list[FieldError]:
    known = [*VARIABLES, *_OTHER_VARIABLES]
    problems = []
    for name in sorted(os.environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        if name.startswith("BRAINSURGEON_RATE_LIMIT_"):
            advice = "bsd does not limit rates (a reverse proxy can): unset it"
        else:
            advice = f"did you mean {nearest(name, known)}?"
        problems.append(FieldError(name, f"{name} is not a known variable; {advice}"))
    return problems


def _problem(detail: ErrorDetails, file: Path) -> FieldError:
    """Return the problem of a setting, with the variable or the line of the file that sets it."""
    location = detail["loc"]
    setting = VARIABLES.get(str(location[0]), str(location[0]))  # may be an alias
    names = [*(name for name in VARIABLES if VARIABLES[name] == setting), PREFIX + setting.upper()]
    if variable := next(filter(os.environ.get, names), None):
        return FieldError(variable, f"{variable}: {reason_of(detail)}")
    steps = [step for step in location[1:] if isinstance(step, str) and step != "[key]"]
    keys = [setting, *steps]
    name = ".".join(keys)
    where = f"{file}{_line(file, keys[-1])}: {name}"
    if setting == "prices" and len(location) > 1:
        row = int(location[1]) + 1
        member = f": {'.'.join(steps)}" if steps else ""
        where = f"{file}{_line_of_row(file, setting, row)}: [[prices]], row {row}{member}"
    if is_unknown(detail):
        advice = f"did you mean {nearest(keys[-1], _keys_of_table(keys[:-1]))}?"
        return FieldError(name, f"{where} is not a known key; {advice}")
    return FieldError(name, f"{where}: {reason_of(detail)}")


def _keys_of_table(path: list[str]) -> Iterable[str]:
    """Return the keys that are valid in the table at `path`."""
    match path:
        case ["memory", "words", *_]:
            return ClassWords.model_fields
        case ["memory", *_]:
            return MemorySettings.model_fields
        case ["sources", *_]:
            return SourceSettings.model_fields
        case ["fleet", *_]:
            return FleetSettings.__dataclass_fields__
        case ["prices", *tables]:
            return members_of(tables)
        case ["workspace_limits", *_]:
            return WorkspaceLimits.__dataclass_fields__
    return Settings.model_fields


def _line(file: Path, key: str) -> str:
    """Return `, line N` for the first line of the file that sets a key; "" if none does."""
    pattern = re.compile(rf"""\s*\[{{0,2}}\s*["']?{re.escape(key)}["']?\s*[=\].]""")
    return next((f", line {n}" for n, line in _lines(file) if pattern.match(line)), "")


def _line_of_row(file: Path, table: str, row: int) -> str:
    """Return `, line N` for the line that begins a row, counted from 1; "" if none does."""
    begins = re.compile(rf"\s*\[\[\s*{re.escape(table)}\s*\]\]")
    found = (f", line {n}" for n, line in _lines(file) if begins.match(line))
    return next(islice(found, row - 1, None), "")


def _lines(file: Path) -> Iterable[tuple[int, str]]:
    return enumerate(read_plain(file, LARGEST_NOTE, follow=True).decode().split("\n"), 1)


def _refusal(problems: list[FieldError]) -> ConfigError:
    hint = "correct or remove it; config/bsd.toml shows every key with its default"
    if len(problems) == 1:
        return ConfigError(problems[0].message, hint=hint, errors=tuple(problems))
    text = "\n".join(["the settings cannot be used:", *(f"  {p.message}" for p in problems)])
    return ConfigError(text, hint=hint, errors=tuple(problems))
