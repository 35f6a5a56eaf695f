"""Completion of names by the tab key, and the types of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import click
from click.shell_completion import CompletionItem

from bsd.cli.call import Call
from bsd.cli.names import entry_ids, say_who, session_named
from bsd.core.errors import ConfigError
from bsd.core.layout import Layout, SessionName, check_name
from bsd.maintenance import catalog
from bsd.maintenance.titles import Titles
from bsd.maintenance.trash import Trash

_MOST_OFFERED = 500
_MOST_WITH_TITLES = 50
_TITLE = 60  # characters
# Only names that need no quoting in any shell are offered.
_SAFE_NAME = re.compile(r"[A-Za-z0-9_.#][A-Za-z0-9._:@+~/#-]*")

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]


def offering(names: Callable[[Call, click.Context], Iterable[str]]) -> Complete:
    """Make a `shell_complete` function that offers the names that begin with the typed text."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
        try:
            found = dict.fromkeys(names(context.find_root().obj, context))
            fitting = (name for name in found if name.startswith(incomplete))
            safe = islice(filter(_SAFE_NAME.fullmatch, fitting), _MOST_OFFERED)
            return [CompletionItem(name) for name in safe]
        except Exception:  # noqa: BLE001 - an error message would only disturb the line
            return []

    return complete


def sessions(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Offer the sessions whose names, or ids, begin with the typed text."""
    try:
        return list(_offered_sessions(context.find_root().obj.layout, incomplete))
    except Exception:  # noqa: BLE001 - as above
        return []


def _offered_sessions(layout: Layout, incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the sessions whose names, or ids, begin with the typed text."""
    there = list(catalog.with_stats(layout))
    fitting = [one for one in there if str(one[0]).startswith(incomplete)]
    # An id alone also names a session, but the full name is inserted.
    fitting = fitting or [one for one in there if one[0].session.startswith(incomplete)]
    safe = [one for one in fitting if _SAFE_NAME.fullmatch(str(one[0]))][:_MOST_OFFERED]
    titles = Titles(layout) if len(safe) <= _MOST_WITH_TITLES else None
    for name, stat in safe:
        title = titles.of(name, stat).title if titles else None
        yield CompletionItem(str(name), help=title[:_TITLE] if title else None)


def _entries(call: Call, context: click.Context) -> Iterator[str]:
    """Yield the entry ids of the named session, those of extracted entries first."""
    # Behind an option that lacks its value, click has not assigned the arguments yet.
    given = context.params.get("session") or next(iter(context.args), None)
    name = session_named(call.layout, given) if isinstance(given, str) else given
    if name is None:
        return
    ids = list(entry_ids(call.layout, name))
    yield from (one for one, is_out in ids if is_out)
    yield from (one for one, is_out in reversed(ids) if not is_out)


def _agents(call: Call, _: click.Context) -> Iterator[str]:
    return (info.name for info in catalog.agents(call.layout))


def _trash(call: Call, _: click.Context) -> Iterator[str]:
    items = Trash(call.layout, "never").items()[::-1]
    yield from (item.id for item in items)
    yield from (str(item.name) for item in items)


entries, agents, trash = map(offering, (_entries, _agents, _trash))


class _SessionType(click.ParamType[SessionName]):
    name = "AGENT/SESSION"

    def convert(self, value: Any, _param: Any, ctx: click.Context | None) -> SessionName:
        """Return the session with this name, or the only session whose name begins with it.

        Raises:
            Invalid: the text is not a name, or several names begin with it.
        """
        if isinstance(value, SessionName):
            return value
        call = ctx.find_object(Call) if ctx else None
        try:
            layout = call.layout if call else None
        except ConfigError:  # a wrong name is reported before a problem of the root
            if "/" not in value and check_name(value, "session"):  # an id needs the root
                raise
            layout = None
        if layout is None:
            return SessionName.parse(value)
        name = session_named(layout, value)
        if str(name) != value:
            say_who(value, str(name))
        return name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return sessions(ctx, param, incomplete)


SESSION = _SessionType()


class _CommaList(click.ParamType[list[str]]):
    name = "KEY,…"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        return [key for key in (part.strip() for part in value.split(",")) if key]


KEYS = _CommaList()
