"""`bsd config` and `bsd sources`.

`bsd config` is for the settings in config.json, which take effect at once. `bsd sources` is for
other programs' directories, which bsd.toml names, and the roots that serve them.
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
    """Return the values to offer: all values of a field that has few, else its current value."""
    field = context.params.get("field") or ""
    now = call.pruning.current.as_json().get(field)
    if isinstance(now, bool):
        return ("true", "false")
    if isinstance(now, str):
        return setting_descriptions()[field].choices or [now]
    return [json.dumps(now)]


@click.group("config", cls=BsdGroup)
def config() -> None:
    """Show or change the settings that take effect at once.

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
    """Show all fields, and mark those that differ from the default. Creates no file."""
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
        note(f"{field} cannot be set: bsd records the time of its last run there")


@config.command("path")
@click.pass_obj
def path(call: Call) -> None:
    """Print the path of config.json, even if the file does not exist yet."""
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
    """List other programs' directories, and their roots.

    Sources are the directories that [[sources]] in bsd.toml names. Each source is served by one
    root, the first that extracted a value from it; no other root edits its sessions. If that root
    was given up, or moved while its disk was not mounted, `claim` lets this root serve the source
    from now on. Values that the other root has extracted stay there, and only that root can restore
    them.

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
    return one["served_by"] or "none yet: this root, from its first extraction on"


_names = offering(lambda call, _: (source.name for source in call.layout.sources))


@sources.command("claim")
@click.argument("name", metavar="NAME", shell_complete=_names)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def claim(call: Call, name: str, yes: bool) -> None:
    """Let this root, and no other, serve a source from now on."""
    call.log(writes=True)
    source = next((each for each in call.layout.sources if each.name == name), None)
    if source is None:
        raise NotFound(f"there is no source {name}", hint="`bsd sources` lists all sources")
    before = served_by(call.layout, source)
    if before not in (None, str(call.layout.root)) and not yes:
        ask_first(f"Take {name} away from the root {before}?", f"`bsd sources claim {name} --yes`")
    before = take(call.layout, source)
    if call.json:
        print_json({"name": name, "served_by": str(call.layout.root), "before": before})
        return
    say(f"{name} is served by {call.layout.root} now")
    if before is not None:
        say(f"only {before} can restore the values that it has extracted")
