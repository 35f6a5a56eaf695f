"""`bsd config`: the settings in config.json, which work at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.complete import offering
from bsd.doors.cli.output import note, print_json, print_table, say
from bsd.foundation.errors import Invalid
from bsd.foundation.pruning_fields import ALIASES, SETTABLE, SETTINGS, PruningConfig, unknown_field

_MORE = """
\b
Examples:
  bsd config show
  bsd config get keep_recent
  bsd config set keep_recent 10
  bsd config set trigger_types '["thinking","tool_result","tool_call"]'
"""


def _named(_call: Call, _: click.Context) -> Iterable[str]:
    return SETTINGS


def _settable(_call: Call, _: click.Context) -> Iterable[str]:
    return SETTABLE


def _present(call: Call, context: click.Context) -> Iterable[str]:
    """Of a field with few values all, of others the present one."""
    field = context.params.get("field") or ""
    now = call.pruning.current.as_json().get(field)
    if isinstance(now, bool):
        return ("true", "false")
    if isinstance(now, str):
        return SETTINGS[field].kind.choices or [now]
    return [json.dumps(now)]


@click.group("config", help=f"{COMMANDS['config'].help}\n\n{_MORE}")
def config() -> None:
    pass


@config.command("show", cls=BsdCommand)
@click.pass_obj
def show(call: Call, /) -> None:
    """Show all fields; changed ones are marked. Creates nothing."""
    fields, defaults = _fields(call), PruningConfig().as_json()
    if call.json:
        print_json(fields)
        return
    rows = [
        (name, "" if value == defaults.get(name) else "changed", json.dumps(value))
        for name, value in fields.items()
    ]
    print_table(("FIELD", "", "VALUE"), rows)


@config.command("get", cls=BsdCommand)
@click.argument("field", shell_complete=offering(_named))
@click.pass_obj
def get(call: Call, /, field: str) -> None:
    """Print one field, as JSON."""
    fields = _fields(call)
    field = ALIASES.get(field, field)
    if field not in fields:
        raise Invalid(unknown_field(field), hint="`bsd config show` lists all fields")
    print_json({field: fields[field]}) if call.json else say(json.dumps(fields[field]))


@config.command("set", cls=BsdCommand)
@click.argument("field", shell_complete=offering(_settable))
@click.argument("value", shell_complete=offering(_present))
@click.pass_obj
def set_(call: Call, /, field: str, value: str) -> None:
    """Set FIELD to VALUE, which is JSON; a bare word is a string."""
    call.log(writes=True)
    call.pruning.update({field: _value(value)})
    fields = _fields(call)
    if call.json:
        print_json(fields)
    elif field in SETTABLE:
        say(f"{field} = {json.dumps(fields[field])}")
    elif field in fields:  # not an alias
        note(f"{field} is not for setting: bsd notes there when it did so last")


@config.command("path", cls=BsdCommand)
@click.pass_obj
def path(call: Call, /) -> None:
    """Print where config.json is, or would be."""
    file = call.layout.config_file
    print_json({"path": str(file)}) if call.json else say(str(file))


def _fields(call: Call) -> dict[str, Any]:
    return call.pruning.current.as_json()


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a bare word
        return text
