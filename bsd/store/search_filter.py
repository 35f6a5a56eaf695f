"""The filter of a search: of which sessions and entries it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bsd.core.errors import Invalid
from bsd.core.layout import SessionName

# The roles that a search can ask for, and those that entries have. Thinking and calls are parts of
# entries, whatever role these have.
ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}
PARTS = ("call", "thinking")
# The index holds no text of these roles.
_NOT_INDEXED = ("tool", *PARTS)


class SearchPlace(StrEnum):
    """Where a text lies."""

    LIVE = "live"  # in a session, where its program reads it
    EXTRACTED = "extracted"  # taken out of a session, in the store
    ARCHIVED = "archived"  # taken out of a session, in the archive
    GONE = "gone"  # in a session that its program has deleted


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions that an entry has to meet; None: no condition."""

    session: SessionName | None = None
    role: str | None = None  # a key of `ROLES`, or one of `PARTS`
    since: float | None = None  # epoch seconds: it was written then or later
    gone: bool | None = None  # whether its program has deleted the session
    until: float | None = None  # epoch seconds: it was written before then
    place: SearchPlace | None = None  # says more than `gone`, which does not count beside it
    project: str | None = None  # an agent, or the end of the directory in which sessions began
    file: str | None = None  # the end of the path of a file that calls of the session name

    def __post_init__(self) -> None:
        """Refuse conditions that no entry can meet; raises Invalid."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise Invalid(
                "no time lies between since and until: since is not the earlier of the two",
                hint="exchange them, or leave one out",
            )
        for name, text in (("project", self.project), ("file", self.file)):
            if text is not None and not text.strip():
                raise Invalid(f"the {name} is empty", hint=f"name one, or leave out {name}")

    @property
    def of_gone(self) -> bool | None:
        """Whether only sessions that are gone are meant, or only the others."""
        return self.gone if self.place is None else self.place is SearchPlace.GONE

    @property
    def is_live(self) -> bool:
        """Whether only text is meant that stands in a session where its program reads it."""
        return self.place is SearchPlace.LIVE

    @property
    def needs_all(self) -> bool:
        """Whether only a search through all text can find it.

        The index holds no text of some roles. Most of what was taken out is of these, so that the
        index says nothing of it as a place.
        """
        is_away = self.place in (SearchPlace.EXTRACTED, SearchPlace.ARCHIVED)
        return is_away or self.role in _NOT_INDEXED

    @property
    def part(self) -> str | None:
        """The part of an entry that is meant, if it is not the entry."""
        return self.role if self.role in PARTS else None

    def fits(self, role: str | None, time: float | None) -> bool:
        """Return whether an entry of this role and time (epoch seconds) meets the conditions.

        One without a time meets every condition of time.
        """
        if self.role in ROLES and role != ROLES[self.role]:
            return False
        return time is None or self.is_time(time)

    def is_time(self, time: float) -> bool:
        """Return whether the condition of time is met; epoch seconds."""
        is_late = self.since is None or time >= self.since
        return is_late and (self.until is None or time < self.until)

    def as_parameters(self) -> dict[str, Any]:
        """Return the values of the parameters in the condition `IN_SQL`."""
        role = None
        if self.role is not None:
            role = _ROLES.index(ROLES[self.role]) if self.role in ROLES else _NO_ROLE
        return {
            "session": self.session and str(self.session),
            "role": role,
            "since": self.since,
            "until": self.until,
        }


NO_FILTER = SearchFilter()
_ROLES = tuple(ROLES.values())
_NO_ROLE = -1


def role_number(role: str | None) -> int | None:
    """Return a role as the index holds it; None for one that no search asks for."""
    return _ROLES.index(role) if role in _ROLES else None


def role_of(number: int | None) -> str | None:
    """Return the role that the index holds so."""
    return None if number is None else _ROLES[number]


# Of the tables `sessions` and `rows`; of an entry without a time that of the file counts.
IN_SQL = (
    " AND (:session IS NULL OR sessions.name = :session)"
    " AND (:role IS NULL OR rows.role = :role)"
    " AND (:since IS NULL OR coalesce(rows.time, sessions.mtime / 1e9) >= :since)"
    " AND (:until IS NULL OR coalesce(rows.time, sessions.mtime / 1e9) < :until)"
)
