"""What the tab key offers: names that are there. Whatever goes wrong, it offers nothing.

Only names that no shell takes for more than a name, and no more than somebody could look through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

if TYPE_CHECKING:
    from bsd.doors.cli.call import Call

Items = list["CompletionItem[str]"]
Complete = Callable[[click.Context, click.Parameter, str], Items]

SAFE = re.compile(r"[A-Za-z0-9_.#][A-Za-z0-9._:@+~/#-]*")
MOST = 500


def offering(names: Callable[[Call, click.Context], Iterable[str]]) -> Complete:
    """Offer those of the names that begin with what is typed."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
        try:
            found = dict.fromkeys(names(context.find_root().obj, context))
            return [CompletionItem(name) for name in _safely(found, incomplete)]
        except Exception:  # noqa: BLE001 - nobody who presses a key wants to read of it
            return []

    return complete


def _safely(names: Iterable[str], incomplete: str) -> Iterator[str]:
    fitting = (name for name in names if name.startswith(incomplete) and SAFE.fullmatch(name))
    return islice(fitting, MOST)


def names() -> Any:
    """The module that knows sessions and entries, which is not needed to describe a command."""
    from bsd.doors.cli import names as found  # loads the catalog, and all agents

    return found


def sessions(context: click.Context, incomplete: str) -> Items:
    """The sessions whose names, or ids, begin so."""
    try:
        return list(names().offered_sessions(context.find_root().obj.layout, incomplete))
    except Exception:  # noqa: BLE001 - as above
        return []


def _entries(call: Call, context: click.Context) -> Iterable[str]:
    found: Iterable[str] = names().offered_entries(call, context)
    return found


def _agents(call: Call, _: click.Context) -> Iterable[str]:
    found: Iterable[str] = names().offered_agents(call)
    return found


def _trash(call: Call, _: click.Context) -> Iterator[str]:
    from bsd.care.trash import Trash  # for one command only

    items = Trash(call.layout, "never").items()[::-1]
    yield from (item.id for item in items)
    yield from (str(item.name) for item in items)


def _workspaces(call: Call, _: click.Context) -> Iterator[str]:
    place = call.settings.workspace_root if call.settings else None
    return iter(sorted(os.listdir(place)) if place else ())


entries, agents, trash, workspaces = map(offering, (_entries, _agents, _trash, _workspaces))


def words(*known: str) -> Complete:
    """Offer these."""
    return offering(lambda _call, _context: known)


# --- bash ---

_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """For bash, which breaks words at colons: names of sessions hold some."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """What stands before the cursor: the whole words, and the one that is being typed."""
        line = os.environ["COMP_WORDS"]
        typed = split_arg_string(line)
        incomplete = typed.pop() if typed and not line[-1:].isspace() else ""
        return typed[1:], incomplete

    def complete(self) -> str:
        """One line for each candidate, less what bash takes for words before it."""
        arguments, incomplete = self.get_completion_args()
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        cut = max((incomplete.rfind(sign) + 1 for sign in breaks if sign.strip()), default=0)
        items: list[Any] = self.get_completions(arguments, incomplete)
        for item in items:
            if str(item.value).startswith(incomplete[:cut]):
                item.value = item.value[cut:]
        return "\n".join(map(self.format_completion, items))


def answer_shell(command: click.Command, call: Call, variable: str, instruction: str) -> int:
    """Do what a shell asks in this variable; returns the exit code."""
    add_completion_class(Bash)
    return shell_complete(command, {"obj": call}, "bsd", variable, instruction)
