"""`bsd sources`: other programs' directories, and which root serves them."""

from __future__ import annotations

from collections.abc import Iterable

import click

from bsd.doors.cli.call import BsdCommand, Call, confirm
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.complete import offering
from bsd.doors.cli.output import print_json, print_table, say
from bsd.foundation.claims import elsewhere, served_by, take
from bsd.foundation.errors import Conflict, NotFound

_MORE = """
The directories that [[sources]] in bsd.toml names. Each of them belongs to one root, the first that
took something out of it: no other edits its sessions. After a root was given up, or moved while its
disk was away, `claim` says that this one serves the source from now on; what another root has taken
out stays there, and can be restored only by that one.

\b
Examples:
  bsd sources
  bsd --root /srv/openclaw sources claim claude-code
"""


class _Sources(click.Group, BsdCommand):
    """A group that is a command as well, when nothing follows."""


@click.group(
    "sources",
    cls=_Sources,
    invoke_without_command=True,
    help=f"{COMMANDS['sources'].help}\n\n{_MORE}",
)
@click.pass_context
def sources(context: click.Context, /) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj)


@sources.command("list", cls=BsdCommand)
@click.pass_obj
def list_(call: Call, /) -> None:
    """List the sources, and the root that serves each."""
    _list(call)


def _names(call: Call, _: click.Context) -> Iterable[str]:
    return (source.name for source in call.layout.sources)


@sources.command("claim", cls=BsdCommand)
@click.argument("name", metavar="NAME", shell_complete=offering(_names))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def claim(call: Call, /, name: str, yes: bool) -> None:
    """Let this root serve a source from now on, and no other."""
    call.log(writes=True)
    source = next((each for each in call.layout.sources if each.name == name), None)
    if source is None:
        raise NotFound(f"there is no source {name}", hint="`bsd sources` lists what there is")
    before = served_by(call.layout, source)
    if before not in (None, str(call.layout.root)) and not yes:
        refusal = f"`bsd sources claim {name} --yes`"
        if not confirm(f"Take {name} away from the root {before}?", refusal):
            raise Conflict("nothing was changed", hint=f"{refusal} does not ask")
    before = take(call.layout, source)
    if call.json:
        print_json({"name": name, "served_by": str(call.layout.root), "before": before})
        return
    say(f"{name} is served by {call.layout.root} now")
    if before is not None:
        say(f"what {before} has taken out of it is restored by that root only")


def _list(call: Call) -> None:
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
        say("bsd.toml names no sources; `config/bsd.toml` shows how")
    else:
        rows = [
            (str(one["name"]), str(one["kind"]), str(one["path"]), one["left_alone"] or _who(one))
            for one in found
        ]
        print_table(("NAME", "KIND", "PATH", "SERVED BY"), rows)


def _who(one: dict[str, str | None]) -> str:
    return one["served_by"] or "nobody yet: this root, as soon as something leaves it"
