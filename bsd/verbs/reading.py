"""Reads an entry's values for a model, wherever they are: nothing is put back, nobody waited for.

What is away comes from the store, what is inline again from the session itself: who was given the
first page of a text that came back meanwhile shall get the second one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bsd.agents.dialect import Format
from bsd.foundation.errors import Busy, Conflict, Invalid, LeftAlone
from bsd.foundation.layout import SessionName
from bsd.foundation.value_path import format_path, value_at
from bsd.session.queries import Queries
from bsd.store.extracted import Stored
from bsd.surgery.locate import locate
from bsd.surgery.plan import Means
from bsd.surgery.view import ExtractedContent, extracted_content
from bsd.text.reader import Transcript
from bsd.verbs.pages import Page, matching, page_of

Content = Mapping[str, Any]  # key → value


@dataclass(frozen=True, slots=True)
class Held:
    """What an entry holds, or held: values that are away, and how those that are not are had."""

    entry_id: str
    away: Content
    unavailable: Mapping[str, str]  # key → what to show instead
    inline: Callable[[], Content]

    def page(self, keys: Sequence[str] | None, offset: int = 0) -> dict[str, Any]:
        """A page as JSON, and of what is asked for what cannot be had.

        No `keys` means all that is away. Raises Invalid for keys that are none, and for an offset
        behind the end.
        """
        page, lost = self._page(keys, offset)
        return {**page.as_json(), **({"unavailable": lost} if lost else {})}

    def value(self, key: str) -> tuple[str, Any]:
        """One value and its key, whole; raises Invalid, and Conflict if it cannot be had."""
        known = self.away if matching(key, [*self.away, *self.unavailable]) else self.inline()
        found = matching(key, known)
        if len(found) == 1:
            return found[0], known[found[0]]
        for lost in matching(key, self.unavailable):
            raise Conflict(f"{lost}: {self.unavailable[lost]}", hint="`bsd verify` says more")
        which = "names several values" if found else "is none of its values"
        keys = ", ".join(found or [*self.away, *self.unavailable] or known) or "none"
        raise Invalid(f"entry {self.entry_id}: {key} {which}", hint=f"one of {keys}")

    def _page(self, keys: Sequence[str] | None, offset: int) -> tuple[Page, dict[str, str]]:
        if keys is None:
            known = self.away if self.away or self.unavailable else self.inline()
            return page_of(self.entry_id, known, list(known), offset), dict(self.unavailable)
        values: dict[str, Any] = {}
        lost: dict[str, str] = {}
        unknown: list[str] = []
        for name in keys:
            found = {key: self.away[key] for key in matching(name, self.away)}
            gone = {key: self.unavailable[key] for key in matching(name, self.unavailable)}
            if not found and not gone:
                inline = self.inline()
                found = {key: inline[key] for key in matching(name, inline)}
            if not found and not gone:
                unknown.append(name)
            values.update(found)
            lost.update(gone)
        if unknown:
            raise Invalid(
                f"entry {self.entry_id} has no extracted key {', '.join(unknown)}",
                hint=f"its keys: {', '.join([*self.away, *self.unavailable]) or 'none'}",
            )
        return page_of(self.entry_id, values, list(values), offset), lost


def held_in(queries: Queries, name: SessionName, entry: str) -> Held:
    """What can be had of a session's entry; raises NotFound, Conflict, LeftAlone, Busy."""

    def inline() -> tuple[str, Content]:
        return queries.look(name, lambda source, fmt, _: _inline(source, fmt, entry))

    def away(source: Transcript, fmt: Format, means: Means) -> ExtractedContent:
        return extracted_content(source, fmt, entry, means.stored)

    return _held(lambda: queries.look(name, away), inline)


def held_by(source: Transcript, fmt: Format, entry: str, stored: Stored) -> Held:
    """The same of a session that is open."""
    return _held(
        lambda: extracted_content(source, fmt, entry, stored),
        lambda: _inline(source, fmt, entry),
    )


def _held(away: Callable[[], ExtractedContent], inline: Callable[[], tuple[str, Content]]) -> Held:
    try:
        found = away()
    except (LeftAlone, Busy):
        raise
    except Conflict:
        entry_id, values = inline()  # raises the same, unless all of the entry is inline
        return Held(entry_id, {}, {}, lambda: values)
    entry_id = found.entry_id or f"#{found.index}"
    return Held(entry_id, found.content, found.unavailable, lambda: inline()[1])


def _inline(source: Transcript, fmt: Format, entry: str) -> tuple[str, Content]:
    located = locate(source, fmt, entry)
    paths = [value.path for value in fmt.values(located.entry)]
    values = {format_path(path): value_at(located.entry, path) for path in paths}
    return located.facts.id or f"#{located.line.index}", values
