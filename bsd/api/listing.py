"""The list of sessions, page by page, by stat and `sessions.json` alone until a page is shown."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bsd.formats.openclaw import Registry, read_registry
from bsd.foundation.errors import FieldError, Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.lifecycle import catalog

# Finds sessions by what is in them: the words, an agent or None for all → their names.
FindText = Callable[[str, str | None], set[SessionName]]

_Order = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions; None is all."""

    agent: str | None = None
    status: str | None = None  # as in `sessions.json`
    words: str | None = None  # each in the label, the agent or the id, or in the text


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far somebody came in a listing.

    The newest come first, as of the moment when the listing began. What changes meanwhile moves
    behind all others, in the order of the names: so nothing is left out, whatever happens.
    """

    began: int  # ns: the newest change that the first page knew of
    after: _Order

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read what `write` wrote; raises Invalid."""
        try:
            began, part, updated, name = json.loads(base64.urlsafe_b64decode(text.encode()))
            if (type(began), type(part), type(updated), type(name)) == (int, int, int, str):
                return cls(began, (part, updated, name))
        except (ValueError, TypeError, RecursionError):
            pass
        problem = FieldError("cursor", "none that this server has given")
        raise Invalid(
            f"cursor: {problem.message}",
            hint="begin again without a cursor",
            errors=(problem,),
        )

    def write(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.began, *self.after]).encode()).decode()


def page(
    layout: Layout, wanted: Filter, limit: int, cursor: str | None, find_text: FindText | None
) -> dict[str, Any]:
    """{sessions, next}; `next` is the cursor of the next page, null after the last."""
    if wanted.agent is not None:
        check_agent(layout, wanted.agent)
    where = Cursor.read(cursor) if cursor else None
    found = list(_matching(layout, wanted, find_text))
    newest = max((stat.st_mtime_ns for _, stat in found), default=0)
    began = where.began if where else newest

    def order(one: tuple[SessionName, os.stat_result]) -> _Order:
        name, stat = one
        if stat.st_mtime_ns > began:
            return 1, 0, str(name)
        return 0, -stat.st_mtime_ns, str(name)

    found.sort(key=order)
    if where:
        found = [one for one in found if order(one) > where.after]
    shown = found[:limit]
    more = len(found) > limit
    return {
        "sessions": [catalog.describe(layout, *one).as_json() for one in shown],
        "next": Cursor(began, order(shown[-1])).write() if more else None,
    }


def check_agent(layout: Layout, agent: str) -> None:
    """Raise Invalid for a wrong name, NotFound if there is no such agent."""
    layout.sessions_dir(agent)
    if not os.path.isdir(layout.agents / agent):
        raise NotFound(f"there is no agent {agent}", hint="/api/agents lists them")


def _matching(
    layout: Layout, wanted: Filter, find_text: FindText | None
) -> Iterator[tuple[SessionName, os.stat_result]]:
    words = (wanted.words or "").casefold().split()
    in_text: set[SessionName] = set()
    if words and find_text:
        in_text = find_text(wanted.words or "", wanted.agent)
    registries: dict[str, Registry] = {}
    for name, stat in catalog.with_stats(layout, wanted.agent):
        entry = None
        if words or wanted.status:
            if name.agent not in registries:
                registries[name.agent] = read_registry(layout.agents / name.agent)
            entry = next(registries[name.agent].find(name.session), None)
        if wanted.status and (entry is None or entry.status != wanted.status):
            continue
        if words and name not in in_text:
            known = f"{name} {entry.key if entry else ''}".casefold()
            if not all(word in known for word in words):
                continue
        yield name, stat
