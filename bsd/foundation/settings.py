"""What is fixed at start: from the environment, else from `bsd.toml`, else the defaults (SPEC §4).

Importing this module costs a sixth of a second; `bsd.foundation.locations` finds root and socket
without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from bsd.foundation.errors import ConfigError, FieldError, Invalid
from bsd.foundation.files import LARGEST_NOTE, read_plain
from bsd.foundation.locations import (
    expand,
    find_root,
    find_socket,
    read_settings_file,
    settings_file,
)
from bsd.foundation.settings_tables import (
    HOURLY,
    MemorySettings,
    SourceSettings,
    WorkspaceAge,
    WorkspaceCron,
    WorkspaceLimits,
    WorkspaceMost,
    no_boolean,
    objection,
    with_whole_paths,
)
from bsd.foundation.spelling import nearest

# Read by find_root, or by the original's client scripts and of no concern to us.
_OTHER_VARIABLES = ("BRAINSURGEON_AGENTS_DIR", "BRAINSURGEON_URL")
_PREFIX = "BRAINSURGEON_"

_MOST_WORKERS = 8  # unless somebody says more: each has a child, of some 50 MB

AT_ONCE = "at once"  # marks what a running daemon follows


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


_Listed = BeforeValidator(_listed)
_Whole = Annotated[int, BeforeValidator(no_boolean)]
_Seconds = Annotated[float, BeforeValidator(no_boolean)]
_Text = Annotated[str, Field(min_length=1)]


def _number(default: float, least: int, most: int, zero: str = "") -> Any:
    kind = "a whole number" if isinstance(default, int) else "a number"
    said = f"{least} ({zero})" if zero else least
    words = f"{kind} between {said} and {most}"
    return Field(default, ge=least, le=most, allow_inf_nan=False, description=words)


def _table(annotation: Any) -> type[BaseModel] | None:
    """The model of a key that is a table."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


class Settings(BaseSettings):
    """Fixed for the life of the process, but for what is marked `AT_ONCE`. A setting is one line.

    Descriptions say what a bad value should have been. A table of the file (`[memory]`) is a field
    whose type is a model; everything here that names keys descends into it. All else but the root
    has a variable in the environment (`VARIABLES`).
    """

    # A list comes from the environment with commas, not as JSON.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", enable_decoding=False)

    root: Path = Field(description="the path of the OpenClaw directory, absolute or from ~")
    api_keys: Annotated[tuple[_Text, ...], _Listed] = Field(
        (), repr=False, description="a list of keys (in the environment: with commas)"
    )
    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], _Listed] = Field(
        (), description="a list of origins like https://bs.example.com (no path, no *)"
    )
    readonly: bool = Field(default=False, description="true or false")
    http: Annotated[HttpAddress | None, BeforeValidator(_address)] = Field(
        None, description="HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000"
    )
    socket: Path = Field(description="the path of the socket, absolute or from ~")
    workers: _Whole = _number(0, 0, 32, zero=f"one a core, {_MOST_WORKERS} at most")
    debounce_seconds: _Seconds = _number(2.0, 0, 3600)
    # Nothing is planned on a file younger than 2 s (DESIGN §4), so less would be a lie.
    quiet_seconds: _Seconds = _number(2.0, 2, 3600)
    log_level: Annotated[
        Literal["trace", "debug", "info", "warn", "error"], BeforeValidator(_level), AT_ONCE
    ] = Field("info", description="trace, debug, info, warn or error")
    log_format: Annotated[Literal["auto", "json", "console"], BeforeValidator(_lower), AT_ONCE] = (
        Field("auto", description="auto, json or console")
    )
    auto_refresh_ms: Annotated[_Whole, AT_ONCE] = _number(10_000, 0, 86_400_000, zero="off")
    workspace_root: Path | None = Field(
        None, description="the path of the directory of workspaces, absolute or from ~"
    )
    workspace_cron: WorkspaceCron = Field(
        HOURLY, description=f'a valid cron expression (e.g., "{HOURLY}")'
    )
    workspace_max_age: WorkspaceAge = Field(
        "24h", description='a duration of 1m to 52w, such as "24h", or "never"'
    )
    workspace_max_count: WorkspaceMost = Field(0, description="a whole number, 0 for no limit")
    workspace_max_bytes: WorkspaceMost = Field(0, description="a whole number, 0 for no limit")
    workspace_limits: WorkspaceLimits = Field(
        WorkspaceLimits(), description="a table: [workspace_limits]"
    )
    memory: MemorySettings = Field(MemorySettings(), description="a table: [memory]")
    sources: tuple[SourceSettings, ...] = Field(
        (),
        description="tables [[sources]], each with `kind`, `path` (absolute or from ~) and, if it"
        " shall not be called like its kind, `name` (letters, digits and . _ @ -)",
    )

    @property
    def threads(self) -> int:
        """How many workers there are."""
        return self.workers or max(1, min(os.cpu_count() or 1, _MOST_WORKERS))


_IN_FILE_ONLY = {  # tables; and the root has older variables
    name
    for name, one in Settings.model_fields.items()
    if name == "root" or any(map(_table, (one.annotation, *get_args(one.annotation))))
}
# Environment variable → setting. Where two name the same one, the first that is set counts.
VARIABLES = {"AUTO_REFRESH_MS": "auto_refresh_ms"} | {
    f"{_PREFIX}{name.upper()}": name for name in Settings.model_fields if name not in _IN_FILE_ONLY
}


class _Variables(EnvSettingsSource):
    """The environment's variables, by the settings they give."""

    def __init__(self, settings: type[BaseSettings], given: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.env_vars = given  # of any mapping: what `BRAINSURGEON_…` stands for is known by now


class _File(TomlConfigSettingsSource):
    """`bsd.toml`, opened and complained of as everywhere."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return read_settings_file(file_path, required=True)


def load_settings(
    config_file: Path | None = None,
    root: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read all sources and check them; raises ConfigError that names every bad key.

    `config_file` is `--config` and must exist; `root` is `--root`.
    """
    environ = os.environ if environ is None else environ
    path = config_file or settings_file(environ)
    if not os.path.isfile(path):  # else the source of the settings reads it
        read_settings_file(path, required=config_file is not None)
    file = _File(Settings, path)
    in_file = file.toml_data
    in_environ = _from_environ(environ)
    places = _Places(path, in_environ)
    problems = _unknown_variables(environ) + _relative_paths(in_file, places)
    values = {key: value for key, (_, value) in in_environ.items()}
    located = _located(root, environ, values, in_file)
    if isinstance(found := located["socket"], ConfigError):
        problems.append(FieldError(places.name(("socket",)), found.message))
        located["socket"] = Path("/")
    try:
        checked = _given(_Variables(Settings, values), file)(**located)
        if wrong := objection(checked.sources, checked.root):
            problems.append(FieldError("sources", f"{places.describe(('sources',))}: {wrong}"))
    except ValidationError as error:
        problems += [_problem(detail, places) for detail in _first_of_each(error)]
    if problems:
        raise _refusal(problems)
    # Not of the local class, which would equal no other settings.
    return Settings.model_construct(**dict(checked))


def _located(
    root: Path | None,
    environ: Mapping[str, str],
    values: dict[str, str],
    in_file: Mapping[str, object],
) -> dict[str, Any]:
    """The paths, written out; those of `values` (the environment's) are taken from there.

    In place of a socket that cannot be there is a ConfigError.
    """
    located: dict[str, Any] = {"root": find_root(root, environ, in_file.get("root"))}
    socket = values.pop("socket", None) or in_file.get("socket")
    try:
        located["socket"] = find_socket(
            located["root"], environ, socket if isinstance(socket, str) else None
        )
    except ConfigError as problem:
        located["socket"] = problem
    place = values.pop("workspace_root", None) or in_file.get("workspace_root")
    if isinstance(place, str) and place:
        located["workspace_root"] = expand(place, environ)
    if "sources" in in_file:
        located["sources"] = with_whole_paths(in_file["sources"], environ)
    return located


def _given(variables: _Variables, file: _File) -> type[Settings]:
    """The settings, with the environment and then the file behind what is passed."""

    class Given(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],  # noqa: ARG003
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - ours reads any mapping
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there is no .env
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, variables, file

    return Given


class _Places:
    """Where each setting was given, for messages."""

    def __init__(self, path: Path, in_environ: Mapping[str, tuple[str, str]]) -> None:
        self._path = path
        self._in_environ = in_environ

    def name(self, keys: tuple[str, ...]) -> str:
        """The variable, or the key as it stands in the file."""
        if keys[0] in self._in_environ:
            return self._in_environ[keys[0]][0]
        return ".".join(keys)

    def describe(self, keys: tuple[str, ...]) -> str:
        """The variable, or file, line and key."""
        if keys[0] in self._in_environ:
            return self.name(keys)
        return f"{self._path}{self._line(keys[-1])}: {self.name(keys)}"

    def _line(self, key: str) -> str:
        pattern = re.compile(rf"""\s*\[{{0,2}}\s*["']?{re.escape(key)}["']?\s*[=\].]""")
        text = read_plain(self._path, LARGEST_NOTE, follow=True).decode()
        lines = text.split("\n")
        return next((f", line {n}" for n, line in enumerate(lines, 1) if pattern.match(line)), "")


def _from_environ(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Setting → the variable that gives it, and its text. An empty variable is an unset one."""
    found: dict[str, tuple[str, str]] = {}
    for variable, key in VARIABLES.items():
        if environ.get(variable):
            found.setdefault(key, (variable, environ[variable]))
    return found


def _unknown_variables(environ: Mapping[str, str]) -> list[FieldError]:
    known = [*VARIABLES, *_OTHER_VARIABLES]
    problems = []
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in known:
            continue
        if name.startswith("BRAINSURGEON_RATE_LIMIT_"):
            advice = "rates are limited by the web server in front, not here: unset it"
        else:
            advice = f"did you mean {nearest(name, known)}?"
        problems.append(FieldError(name, f"{name} is not a known variable; {advice}"))
    return problems


def _relative_paths(in_file: Mapping[str, object], places: _Places) -> list[FieldError]:
    """A relative path in a file would mean another place in every directory bsd is started in."""
    problems = []
    for key in ("root", "socket", "workspace_root"):
        value = in_file.get(key)
        if value is None or (isinstance(value, str) and re.match("/|~(/|$)", value)):
            continue
        expected = Settings.model_fields[key].description
        problems.append(FieldError(key, f"{places.describe((key,))} must be {expected}"))
    return problems


def _first_of_each(error: ValidationError) -> list[ErrorDetails]:
    by_key: dict[object, ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        unknown = detail["type"] == "extra_forbidden"
        by_key.setdefault(detail["loc"] if unknown else _keys(detail), detail)
    return list(by_key.values())


def _problem(detail: ErrorDetails, places: _Places) -> FieldError:
    keys = _keys(detail)
    # Unless it is a key inside a value, such as a table by names that the user chose.
    if detail["type"] == "extra_forbidden" and len(keys) == len(detail["loc"]) - 1:
        keys = tuple(str(step) for step in detail["loc"])
        known = _model_at(keys[:-1]).model_fields
        advice = f"did you mean {nearest(keys[-1], known)}?"
        return FieldError(
            places.name(keys), f"{places.describe(keys)} is not a known key; {advice}"
        )
    expected = _model_at(keys[:-1]).model_fields[keys[-1]].description
    return FieldError(places.name(keys), f"{places.describe(keys)} must be {expected}")


def _keys(detail: ErrorDetails) -> tuple[str, ...]:
    """The keys that lead to a setting; what follows them in pydantic's path is inside its value."""
    keys: list[str] = []
    model: type[BaseModel] | None = Settings
    for step in detail["loc"]:
        if model is None or step not in model.model_fields:
            break
        keys.append(str(step))
        model = _table(model.model_fields[str(step)].annotation)
    return tuple(keys)


def _model_at(keys: tuple[str, ...]) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for key in keys:
        model = _table(model.model_fields[key].annotation) or model
    return model


def _refusal(problems: list[FieldError]) -> ConfigError:
    hint = "mend or remove it; config/bsd.toml shows every key with its default"
    if len(problems) == 1:
        return ConfigError(problems[0].message, hint=hint, errors=tuple(problems))
    text = "\n".join(["the settings cannot be used:", *(f"  {p.message}" for p in problems)])
    return ConfigError(text, hint=hint, errors=tuple(problems))
