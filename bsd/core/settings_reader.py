"""Reads what is fixed at start: the environment, else `bsd.toml`, else the defaults (SPEC §4).

Importing this module costs a sixth of a second and 10 MB; `bsd.core.locations` finds root and
socket without it, and a daemon has a process of its own read its settings (`settings_apart`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field as Described
from pydantic import ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from bsd.core.errors import ConfigError, FieldError
from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.formatting import nearest
from bsd.core.locations import (
    expand,
    find_root,
    find_socket,
    read_settings_file,
    settings_file,
)
from bsd.core.settings import (
    PREFIX,
    VARIABLES,
    Settings,
    SourceSettings,
    table_of,
    types_of,
    words_of,
)

# Read by find_root, or by the original's client scripts and of no concern to us.
_OTHER_VARIABLES = ("BRAINSURGEON_AGENTS_DIR", "BRAINSURGEON_URL")
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}  # pydantic's words for such a key


class _Base(BaseSettings):
    # A list comes from the environment with commas, not as JSON.
    model_config = SettingsConfigDict(extra="forbid", enable_decoding=False)


@cache
def _model(table: type[Settings]) -> type[BaseSettings]:
    """The table as the library knows it."""
    kinds = types_of(table)
    members: dict[str, Any] = {
        one.name: (
            kinds[one.name],
            Described(... if one.default is MISSING else one.default)
            if one.default_factory is MISSING
            else Described(default_factory=one.default_factory),
        )
        for one in fields(table)
    }
    return create_model("Settings", __base__=_Base, **members)


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
    model = _model(Settings)
    file = _File(model, path)
    in_file = file.toml_data
    in_environ = _from_environ(environ)
    places = _Places(path, in_environ)
    problems = _unknown_variables(environ) + _relative_paths(in_file, places)
    values = {key: value for key, (_, value) in in_environ.items()}
    located = _located(root, environ, values, in_file)
    if isinstance(refused := located["socket"], ConfigError):
        problems.append(FieldError(places.name(("socket",)), refused.message))
        located["socket"] = Path("/")
    try:
        found = Settings(**dict(_given(model, _Variables(model, values), file)(**located)))
        if wrong := _objection(found.sources, found.root):
            problems.append(FieldError("sources", f"{places.describe(('sources',))}: {wrong}"))
    except ValidationError as error:
        problems += [_problem(detail, places) for detail in _first_of_each(error)]
    if problems:
        raise _refusal(problems)
    return found


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
        located["sources"] = _with_whole_paths(in_file["sources"], environ)
    return located


def _given(model: type[BaseSettings], variables: _Variables, file: _File) -> type[BaseSettings]:
    """The settings, with the environment and then the file behind what is passed."""

    class Given(model):  # type: ignore[misc, valid-type]  # made above
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
        if not name.startswith(PREFIX) or name in known:
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
        expected = words_of(Settings, key)
        problems.append(FieldError(key, f"{places.describe((key,))} must be {expected}"))
    return problems


def _first_of_each(error: ValidationError) -> list[ErrorDetails]:
    by_key: dict[object, ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        by_key.setdefault(detail["loc"] if detail["type"] in _UNKNOWN else _keys(detail), detail)
    return list(by_key.values())


def _problem(detail: ErrorDetails, places: _Places) -> FieldError:
    keys = _keys(detail)
    # Unless it is a key inside a value, such as a table by names that the user chose.
    if detail["type"] in _UNKNOWN and len(keys) == len(detail["loc"]) - 1:
        keys = tuple(str(step) for step in detail["loc"])
        advice = f"did you mean {nearest(keys[-1], types_of(_table_at(keys[:-1])))}?"
        return FieldError(
            places.name(keys), f"{places.describe(keys)} is not a known key; {advice}"
        )
    expected = words_of(_table_at(keys[:-1]), keys[-1])
    return FieldError(places.name(keys), f"{places.describe(keys)} must be {expected}")


def _keys(detail: ErrorDetails) -> tuple[str, ...]:
    """The keys that lead to a setting; what follows them in pydantic's path is inside its value."""
    keys: list[str] = []
    table: type | None = Settings
    for step in detail["loc"]:
        if table is None or step not in types_of(table):
            break
        keys.append(str(step))
        table = table_of(types_of(table)[str(step)])
    return tuple(keys)


def _table_at(keys: tuple[str, ...]) -> type:
    table: type = Settings
    for key in keys:
        table = table_of(types_of(table)[key]) or table
    return table


def _refusal(problems: list[FieldError]) -> ConfigError:
    hint = "mend or remove it; config/bsd.toml shows every key with its default"
    if len(problems) == 1:
        return ConfigError(problems[0].message, hint=hint, errors=tuple(problems))
    text = "\n".join(["the settings cannot be used:", *(f"  {p.message}" for p in problems)])
    return ConfigError(text, hint=hint, errors=tuple(problems))


# --- [[sources]] ---


def _with_whole_paths(given: object, environ: Mapping[str, str]) -> object:
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


def _objection(sources: Sequence[SourceSettings], root: Path) -> str | None:
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
