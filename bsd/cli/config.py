"""`bsd config`: the settings in config.json, which work at once.

And `bsd sources`: other programs' directories, which bsd.toml names, and which root serves them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import click

from bsd.cli.call import BsdGroup, Call, ask_first
from bsd.cli.completion import offering
from bsd.cli.output import note, print_json, print_table, say
from bsd.core.config import (
    ALIASES,
    SETTABLE,
    SETTINGS,
    PruningConfig,
    setting_descriptions,
    unknown_field,
)
from bsd.core.errors import Invalid, NotFound
from bsd.transcripts.agents.installed import named_agents
from bsd.transcripts.agents.programs import elsewhere, served_by, take


def _present(call: Call, context: click.Context) -> Iterable[str]:
    """The values to offer: all of a field with few values, else the present one."""
    field = context.params.get("field") or ""
    now = call.pruning.current.as_json().get(field)
    if isinstance(now, bool):
        return ("true", "false")
    if isinstance(now, str):
        return setting_descriptions()[field].choices or [now]
    return [json.dumps(now)]


@click.group("config", cls=BsdGroup)
def config() -> None:
    """Show or change the settings that work at once.

    \b
    Examples:
      bsd config show
      bsd config get keep_recent
      bsd config set keep_recent 10
      bsd config set trigger_types '["thinking","tool_result","tool_call"]'
    """


@config.command("show")
@click.pass_obj
def show(call: Call) -> None:
    """Show all fields; changed ones are marked. Creates nothing."""
    fields, defaults = _fields(call), PruningConfig().as_json()
    if call.json:
        print_json(fields)
        return
    rows = [
        (name, "" if value == defaults.get(name) else "changed", json.dumps(value))
        for name, value in fields.items()
    ]
    print_table(("FIELD", "", "VALUE"), rows, wraps=("VALUE",))


@config.command("get")
@click.argument("field", shell_complete=offering(lambda _call, _: SETTINGS))
@click.pass_obj
def get(call: Call, field: str) -> None:
    """Print one field, as JSON."""
    fields = _fields(call)
    field = ALIASES.get(field, field)
    if field not in fields:
        raise Invalid(unknown_field(field), hint="`bsd config show` lists all fields")
    print_json({field: fields[field]}) if call.json else say(json.dumps(fields[field]))


@config.command("set")
@click.argument("field", shell_complete=offering(lambda _call, _: SETTABLE))
@click.argument("value", shell_complete=offering(_present))
@click.pass_obj
def set_(call: Call, field: str, value: str) -> None:
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


@config.command("path")
@click.pass_obj
def path(call: Call) -> None:
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


@click.group("sources", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def sources(context: click.Context) -> None:
    """List other programs' directories, and who serves them.

    The directories that [[sources]] in bsd.toml names. Each of them belongs to one root, the first
    that took something out of it: no other edits its sessions. After a root was given up, or moved
    while its disk was away, `claim` says that this one serves the source from now on; what another
    root has taken out stays there, and can be restored only by that one.

    \b
    Examples:
      bsd sources
      bsd --root /srv/openclaw sources claim claude-code
    """
    if context.invoked_subcommand is None:
        context.invoke(list_sources)


@sources.command("list")
@click.pass_obj
def list_sources(call: Call) -> None:
    """List the sources, and the root that serves each."""
    call.log(writes=False)
    found = [
        {
            "name": source.name,
            "kind": source.kind,
            "path": str(source.path),
            "served_by": served_by(call.layout, source),
            "left_alone": elsewhere(call.layout, source, look_inside=True),
        }
        for source in call.layout.sources
    ]
    if call.json:
        print_json({"sources": found})
    elif not found:
        file = call.settings_file
        say(f"{file} names no [[sources]]; {named_agents(os.environ)}")
        say("Try: bsd init")
    else:
        rows = [
            (str(one["name"]), str(one["kind"]), str(one["path"]), one["left_alone"] or _who(one))
            for one in found
        ]
        print_table(("NAME", "KIND", "PATH", "SERVED BY"), rows, wraps=("PATH", "SERVED BY"))


def _who(one: dict[str, str | None]) -> str:
    return one["served_by"] or "nobody yet: this root, as soon as something leaves it"


_names = offering(lambda call, _: (source.name for source in call.layout.sources))


@sources.command("claim")
@click.argument("name", metavar="NAME", shell_complete=_names)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def claim(call: Call, name: str, yes: bool) -> None:
    """Let this root serve a source from now on, and no other."""
    call.log(writes=True)
    source = next((each for each in call.layout.sources if each.name == name), None)
    if source is None:
        raise NotFound(f"there is no source {name}", hint="`bsd sources` lists what there is")
    before = served_by(call.layout, source)
    if before not in (None, str(call.layout.root)) and not yes:
        ask_first(f"Take {name} away from the root {before}?", f"`bsd sources claim {name} --yes`")
    before = take(call.layout, source)
    if call.json:
        print_json({"name": name, "served_by": str(call.layout.root), "before": before})
        return
    say(f"{name} is served by {call.layout.root} now")
    if before is not None:
        say(f"what {before} has taken out of it is restored by that root only")
