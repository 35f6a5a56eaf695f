"""Writes `settings.md` from the two models of settings; the meaning of keys is in bsd.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from markdown_text import anchor, bullets, code, heading, page, sentence, table, value
from setting_meanings import MEANINGS

from bsd.cli.extract import extract_command
from bsd.core.config import (
    PER_CALL,
    PruningConfig,
    SettingDescription,
    TriggerRule,
    setting_descriptions,
)
from bsd.core.fleet_settings import FleetSettings
from bsd.core.price_settings import PriceSettings
from bsd.core.settings import (
    RELOADABLE,
    VARIABLES,
    MemorySettings,
    Settings,
    SourceSettings,
    WorkspaceLimits,
)

_FILE = Path(__file__).parents[1] / "config" / "bsd.toml"
_INTRODUCTION = """\
bsd has two kinds of settings.

- **[Settings that work at once](#settings-that-work-at-once)** control which values leave
  sessions, when, and how long they are kept. They are in `config.json` in the directory
  `.brainsurgeon` of the root. The command `bsd config set NAME VALUE`, the page (Settings) and
  [`POST /api/config`](http-api.md#post-api-config) change them. A running daemon follows a change
  without a restart.
- **[Settings fixed at start](#settings-fixed-at-start)** control where bsd works and which clients
  reach it.
  They are in `bsd.toml` (`~/.config/bsd/bsd.toml`, or `$XDG_CONFIG_HOME/bsd/bsd.toml`) or in
  environment variables. A variable wins over the file, and an option of the command line wins over
  both.

A key that bsd does not know is an error, and the message names the nearest known key.

Durations are written as in `30m`, `24h`, `7d`, `2w` or `1d12h`. Cron expressions have the fields
minute, hour, day of the month, month and weekday, in local time."""
_ROOT = """\
The root is the directory in which bsd keeps everything: OpenClaw's directory, or bsd's own. These
options and variables name it, the first that is set counts:

1. the option `--root DIR`;
2. `OPENCLAW_ROOT`;
3. `BRAINSURGEON_AGENTS_DIR`, which names the directory `agents` in the root;
4. `root` in `bsd.toml`."""
_UNITS = {
    "_seconds": "seconds",
    "_hours": "hours",
    "_ms": "milliseconds",
    "_bytes": "bytes",
    "_chars": "characters",
    "_value_length": "characters",
    "keep_recent": "messages",
    "_cron": "cron expression",
    "cpu_seconds": "seconds",
    "retention": "duration",
    "archive_sessions": "duration",
    "_max_age": "duration",
}
_OPTIONS = {"root": "`--root DIR`", "http": "`bsd run --http HOST:PORT`"}
_TABLES = ("workspace_limits", "memory", "sources", "fleet", "prices")


def settings_page() -> str:
    """Return the page."""
    parts = ["## Settings that work at once", _overview()]
    groups: dict[str, list[SettingDescription]] = {}
    for description in setting_descriptions().values():
        groups.setdefault(description.group, []).append(description)
    for group, members in groups.items():
        parts.append(f"### {group}")
        parts += [_runtime_setting(description) for description in members]
        if group == "What is extracted":
            parts.append(_rules())
    comments = _comments()
    parts += ["## Settings fixed at start", _overview_at_start()]
    for name in Settings.model_fields:
        if name not in {"config_file", *_TABLES}:
            parts.append(_setting_at_start(name, comments.get(name, "")))
    parts += [_limits(comments), _memory(comments), _sources(comments)]
    parts += [_fleet(comments), _prices(comments)]
    return page("Settings", _INTRODUCTION, parts)


# --- settings of config.json ---


def _overview() -> str:
    rows = [
        (f"[{code(name)}](#{anchor(name)})", _shown_default(one.default), one.label)
        for name, one in setting_descriptions().items()
    ]
    return table(("Setting", "Default", "Name on the page"), rows)


def _shown_default(default: object) -> str:
    shown = value(default)
    return shown if len(shown) < 60 else "see below"


def _runtime_setting(one: SettingDescription) -> str:
    schema = PruningConfig.model_json_schema()["properties"][one.name]
    facts = [("Default", _default_lines(one.default)), ("Values", _values(one, schema))]
    if one.control == "number":
        facts.append(("Unit", _unit(one.name)))
    facts.append(("Set with", code(f"bsd config set {one.name} …") + _per_call(one.name)))
    parts = [heading(4, code(one.name), anchor(one.name)), MEANINGS[one.name], bullets(facts)]
    return "\n\n".join(parts)


def _default_lines(default: object) -> str:
    if isinstance(default, list) and len(value(default)) >= 60:
        return ", ".join(value(item) for item in default)
    return value(default)


def _values(one: SettingDescription, schema: Mapping[str, Any]) -> str:
    if one.choices:
        named = [
            value(choice) + (f" ({label})" if label != choice else "")
            for choice, label in one.choices.items()
        ]
        several = "any of " if one.control == "types" else ""
        return several + ", ".join(named)
    match one.control:
        case "switch":
            return "`true` or `false`"
        case "number":
            number = "a whole number" if schema["type"] == "integer" else "a number"
            return f"{number} from {schema['minimum']} to {schema['maximum']}"
        case "lines":
            return "a list of strings"
        case "json":
            return "a list of [rules](#trigger-rules), or `null`"
    return {
        "duration": "a duration from `30m` to `52w`, or `never`",
        "cron expression": "a cron expression",
    }[_unit(one.name)] + (", or `off`" if one.name == "archive_sessions" else "")


def _per_call(name: str) -> str:
    """Say that a call of `bsd extract` may have a value of its own."""
    option = "--" + name.replace("_", "-")
    if name in PER_CALL and any(option in parameter.opts for parameter in extract_command.params):
        return f"; for one call `bsd extract {option}`"
    return ""


def _unit(name: str) -> str:
    ends = sorted((end for end in _UNITS if name.endswith(end)), key=len)
    return _UNITS[ends[-1]] if ends else ""


def _rules() -> str:
    schema = TriggerRule.model_json_schema()["properties"]
    meanings = {
        "type": "type of the values, or `*` for all",
        "role": "roles of the entry, separated by `|`, or `*` for all",
        "min_length": "the rule's own `min_value_length`, in characters",
        "keep_recent": "the rule's own `keep_recent`, in messages",
        "keep_chars": "the rule's own `keep_chars`, in characters",
    }
    rows = [(code(name), meanings[name]) for name in schema]
    text = (
        "A rule is a JSON object with these keys. Any other key is compared with the entry's own "
        "key of that name: a string is a list separated by `|`, compared without case; a number or "
        "a boolean must be equal."
    )
    return "\n\n".join(
        [heading(4, "Rules", "trigger-rules"), text, table(("Key", "Meaning"), rows)]
    )


# --- settings of bsd.toml and the environment ---


def _comments() -> dict[str, str]:
    """Return the comment above each key and table of bsd.toml, without names of variables.

    A key of a table is also found as `table.key`, since two tables may have the same key.
    """
    found: dict[str, str] = {}
    in_table = ""
    lines: list[str] = []
    above = ""  # keys that follow each other share a comment
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        key = re.match(r"(?:# )?(?:\[+([\w.]+)\]+|([a-z_]+) = .*)$", line)
        if key is not None:
            above = _without_variables(" ".join(lines)) if lines else above
            in_table = key[1] or in_table
            found.setdefault(key[1] or key[2], above)
            found.setdefault(f"{in_table}.{key[2]}", above)
            lines = []
        elif line.startswith("# "):
            lines.append(line.removeprefix("# "))
        elif not line:
            lines, above = [], ""
    return found


def _without_variables(text: str) -> str:
    return re.sub(r"\s*\([^()]*(BRAINSURGEON_|OPENCLAW_ROOT)[^()]*\)\.?", "", text).strip()


def _overview_at_start() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        if name == "config_file":
            continue
        variables = [code(variable) for variable, of in VARIABLES.items() if of == name]
        if name == "root":
            variables = ["`OPENCLAW_ROOT`"]
        default = "a table" if name in _TABLES else _default_at_start(name, field)
        rows.append((f"[{code(name)}](#{_anchor(name)})", default, ", ".join(variables)))
    return table(("Setting", "Default", "Environment variable"), rows)


def _anchor(name: str) -> str:
    """Return the anchor of a setting; `exclude` is a setting of both kinds."""
    return f"{anchor(name)}-at-start" if name in PruningConfig.model_fields else anchor(name)


def _default_at_start(name: str, field: Any) -> str:
    if name == "root":
        return "`~/.openclaw` or `~/.local/share/bsd`"
    if name == "socket":
        return "`.brainsurgeon/bsd.sock` in the root"
    if field.default is None:
        return "none"
    default = field.default
    return value(list(default) if isinstance(default, tuple) else default)


def _setting_at_start(name: str, comment: str) -> str:
    field = Settings.model_fields[name]
    variables = [code(variable) for variable, of in VARIABLES.items() if of == name]
    facts = [
        ("Default", _default_at_start(name, field)),
        ("Values", (field.description or "").replace("true or false", "`true` or `false`")),
        ("Unit", "" if isinstance(field.default, str) else _unit(name)),
    ]
    places = [f"{code(name)} in `bsd.toml`", *variables, _OPTIONS.get(name, "")]
    facts.append(("Set with", ", ".join(filter(None, places))))
    if name in RELOADABLE:
        facts.append(("Change", "a running daemon follows it after `SIGHUP`"))
    text = _ROOT if name == "root" else sentence(comment)
    return "\n\n".join([heading(3, code(name), _anchor(name)), text, bullets(facts)])


def _limits(comments: Mapping[str, str]) -> str:
    rows = [
        (code(field.name), value(field.default), _unit(field.name) or field.name)
        for field in fields(WorkspaceLimits)
    ]
    return "\n\n".join(
        [
            heading(3, "`[workspace_limits]`", "workspace_limits"),
            sentence(comments.get("workspace_limits", "")),
            table(("Key", "Default", "Unit"), rows),
        ]
    )


def _memory(comments: Mapping[str, str]) -> str:
    names = {"ttl": "memory.ttl", "words": "memory.words.ephemeral"}
    rows = []
    for name, field in MemorySettings.model_fields.items():
        said = comments.get(names.get(name, name), "") or field.description or ""
        rows.append((code(name), sentence(said)))
    return "\n\n".join(
        [
            heading(3, "`[memory]`", "memory"),
            sentence(comments.get("memory", "")),
            table(("Key", "Meaning"), rows),
        ]
    )


def _sources(comments: Mapping[str, str]) -> str:
    meanings = {
        "kind": "the program: an AGENT that `bsd agents` lists, except `openclaw`; needed",
        "path": "the directory of its sessions, absolute or from `~`; needed",
        "name": "the beginning of the names of its agents; without it, the kind",
    }
    rows = [(code(name), meanings[name]) for name in SourceSettings.model_fields]
    return "\n\n".join(
        [
            heading(3, "`[[sources]]`", "sources"),
            sentence(comments.get("sources", "")),
            table(("Key", "Meaning"), rows),
        ]
    )


def _fleet(comments: Mapping[str, str]) -> str:
    rows = []
    for each in fields(FleetSettings):
        meaning = sentence(comments[f"fleet.{each.name}"])
        rows.append((code(each.name), _default_of(each), meaning))
    return "\n\n".join(
        [
            heading(3, "`[fleet]`", "fleet"),
            sentence(comments.get("fleet", "")),
            table(("Key", "Default", "Meaning"), rows),
        ]
    )


def _default_of(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "the machine's name"
    if field.default is None:
        return "none"
    return value(list(field.default) if isinstance(field.default, tuple) else field.default)


def _prices(comments: Mapping[str, str]) -> str:
    rows = [
        (code(name), sentence(field.description or ""))
        for name, field in PriceSettings.model_fields.items()
    ]
    return "\n\n".join(
        [
            heading(3, "`[[prices]]`", "prices"),
            sentence(comments.get("prices", "")),
            table(("Key", "Meaning"), rows),
        ]
    )
