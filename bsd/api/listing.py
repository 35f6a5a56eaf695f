"""The list of sessions, page by page, by stat and `sessions.json` alone until a page is shown."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bsd.formats.owner import Registry
from bsd.formats.owners import owner_of
from bsd.foundation.errors import BsdError, FieldError, Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.lifecycle import catalog, statistics
from bsd.lifecycle.search import models
from bsd.store.search_query import terms_of

# Finds sessions by what is in them: the words, an agent or None for all → their names.
FindText = Callable[[str, str | None], set[SessionName]]
# Words that are in no label may be looked for in the text in so many combinations.
_MOST_QUESTIONS = 8

# What can be asked of `status` beside the words of `sessions.json`, and `archived`.
_STALE, _ACTIVE = "stale", "active"
_AGES = (_STALE, _ACTIVE)

_Order = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions; None is all."""

    agent: str | None = None
    status: str | None = None  # as in the list, or `stale` or `active`
    words: str | None = None  # each in the label, the name or a model's, the others in the text


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
    words = _Words(layout, wanted, find_text)
    found = [one for one in _matching(layout, wanted, words) if _has_age(one[1], wanted, now)]
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
        "sessions": described(layout, [catalog.describe(layout, *one) for one in shown], now),
        "next": Cursor(began, order(shown[-1])).write() if more else None,
        "problem": words.problem,
    }


def described(layout: Layout, infos: list[catalog.SessionInfo], now: float) -> list[dict[str, Any]]:
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
    layout: Layout, wanted: Filter, words: _Words
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
        if words.are_in(name, entry.key if entry else ""):
            yield name, stat


def _has_age(stat: os.stat_result, wanted: Filter, now: float) -> bool:
    if wanted.status not in _AGES:
        return True
    return statistics.is_stale(stat.st_mtime, now) is (wanted.status == _STALE)


class _Words:
    """What somebody looks for; a word that no name holds is looked for in the text."""

    def __init__(self, layout: Layout, wanted: Filter, find_text: FindText | None) -> None:
        self.terms = terms_of((wanted.words or "").casefold())
        self._agent = wanted.agent
        self._find_text = find_text
        self._found: dict[tuple[str, ...], set[SessionName]] = {}
        self._models: dict[str, str] = {}
        self.problem: str | None = None
        if self.terms and find_text:
            with self._noting_trouble():
                self._models = models(layout, wanted.agent)

    def are_in(self, name: SessionName, label: str) -> bool:
        """Whether each of them is in the session, or said by it."""
        if not self.terms:
            return True
        known = f"{name} {label} {self._models.get(str(name), '')}".casefold()
        left = tuple(term for term in self.terms if term.strip('"') not in known)
        return not left or name in self._sessions_with(left)

    def _sessions_with(self, terms: tuple[str, ...]) -> set[SessionName]:
        if self._find_text is None:
            return set()
        if terms not in self._found and len(self._found) >= _MOST_QUESTIONS:
            terms = tuple(self.terms)
        if terms not in self._found:
            self._found[terms] = set()
            with self._noting_trouble():
                self._found[terms] = self._find_text(" ".join(terms), self._agent)
        return self._found[terms]

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        # What is found by its name is better than no answer.
        try:
            yield
        except BsdError as trouble:
            self.problem = trouble.message
