"""The list of sessions, page by page, by what is known without reading any as a whole."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bsd.agents.owner import Registry
from bsd.agents.owners import owner_of
from bsd.care import catalog, statistics
from bsd.care.catalog import Titles
from bsd.care.search import FindText, SessionFilter
from bsd.foundation.errors import FieldError, Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName

# What can be asked of `status` beside the words of `sessions.json`, and `archived`.
_STALE, _ACTIVE = "stale", "active"
_AGES = (_STALE, _ACTIVE)

_Order = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions; None is all."""

    agent: str | None = None
    status: str | None = None  # as in the list, or `stale` or `active`
    words: str | None = None  # each in title, label, name or a model's, the others in the text


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
    layout: Layout,
    wanted: Filter,
    limit: int,
    cursor: str | None,
    find_text: FindText | None,
    now: float,
) -> dict[str, Any]:
    """{sessions, next, problem}; `next` is the cursor of the next page, null after the last.

    `problem` says why the text was not looked at, if so.
    """
    if wanted.agent is not None:
        check_agent(layout, wanted.agent)
    where = Cursor.read(cursor) if cursor else None
    words = SessionFilter(layout, wanted.words, wanted.agent, find_text)
    titles = Titles(layout, wanted.agent)
    found = [
        (name, stat, updated)
        for name, stat in _matching(layout, wanted, words, titles)
        if _has_age(updated := titles.updated(name, stat), wanted, now)
    ]
    newest = max((stat.st_mtime_ns for _, stat, _ in found), default=0)
    began = where.began if where else newest

    def order(one: tuple[SessionName, os.stat_result, float]) -> _Order:
        name, stat, updated = one
        # By its file's time: whatever was done to it, its place among the others may be another.
        if stat.st_mtime_ns > began:
            return 1, 0, str(name)
        return 0, -round(updated * 1e9), str(name)

    found.sort(key=order)
    if where:
        found = [one for one in found if order(one) > where.after]
    shown = found[:limit]
    more = len(found) > limit
    infos = [catalog.describe(layout, name, stat, titles) for name, stat, _ in shown]
    return {
        "sessions": described(layout, infos, now),
        "next": Cursor(began, order(shown[-1])).write() if more else None,
        "problem": words.problem,
    }


def described(
    layout: Layout, infos: list[catalog.ListedSession], now: float
) -> list[dict[str, Any]]:
    """Sessions as the list shows them, with the figures that are known of them."""
    known = statistics.counted(layout, infos)
    return [
        info.as_json() | statistics.as_listed(info, known.get(info.name), now) for info in infos
    ]


def check_agent(layout: Layout, agent: str) -> None:
    """Raise Invalid for a wrong name, NotFound if there is no such agent."""
    if not layout.has_agent(agent):
        raise NotFound(f"there is no agent {agent}", hint="/api/agents lists them")


def _matching(
    layout: Layout, wanted: Filter, words: SessionFilter, titles: Titles
) -> Iterator[tuple[SessionName, os.stat_result]]:
    registries: dict[str, Registry] = {}
    for name, stat in catalog.with_stats(layout, wanted.agent):
        entry = None
        if words.terms or wanted.status:
            if name.agent not in registries:
                registries[name.agent] = owner_of(layout, name.agent).registry()
            entry = next(registries[name.agent].find(name.session), None)
        by_word = wanted.status and wanted.status not in _AGES
        if by_word and catalog.status_of(layout, name, entry) != wanted.status:
            continue
        called = [entry.key, registries[name.agent].title(name.session)] if entry else []
        if words.terms:
            called.append(titles.of(name, stat).title)
        if words.fits(name, called):
            yield name, stat


def _has_age(updated: float, wanted: Filter, now: float) -> bool:
    if wanted.status not in _AGES:
        return True
    return statistics.is_stale(updated, now) is (wanted.status == _STALE)
