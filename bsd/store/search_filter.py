"""The filter of a search: the sessions and entries that it covers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bsd.core.errors import Invalid
from bsd.core.layout import SessionName

# The roles that a search accepts, with the roles of entries. Thinking and calls are parts of
# entries of any role.
ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}
PARTS = ("call", "thinking")
# The index holds no text of these.
_NOT_INDEXED = ("tool", *PARTS)


class SearchPlace(StrEnum):
    """The place of a text."""

    LIVE = "live"  # in a session, where its program reads it
    EXTRACTED = "extracted"  # extracted from a session, in the store
    ARCHIVED = "archived"  # extracted from a session, in the archive
    GONE = "gone"  # in a session that its program has deleted


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions that an entry must meet; None: no condition."""

    session: SessionName | None = None
    role: str | None = None  # a key of `ROLES`, or one of `PARTS`
    since: float | None = None  # epoch seconds; earliest time
    gone: bool | None = None  # whether its program has deleted the session
    until: float | None = None  # epoch seconds; entries from this time on are left out
    place: SearchPlace | None = None  # takes precedence over `gone`
    project: str | None = None  # an agent, or the end of the directory in which sessions began
    file: str | None = None  # the end of a path of a file that calls in the session name

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
        """True: only deleted sessions; False: only the other sessions; None: both."""
        return self.gone if self.place is None else self.place is SearchPlace.GONE

    @property
    def is_live(self) -> bool:
        """Whether only text that stands in a session where its program reads it is wanted."""
        return self.place is SearchPlace.LIVE

    @property
    def needs_all(self) -> bool:
        """Whether only a search through all text can find the entries.

        The index holds no text of some roles. Most extracted text belongs to these, so the index is
        of no use for stored and archived text.
        """
        is_away = self.place in (SearchPlace.EXTRACTED, SearchPlace.ARCHIVED)
        return is_away or self.role in _NOT_INDEXED

    @property
    def part(self) -> str | None:
        """The part of entries that is wanted, if not whole entries."""
        return self.role if self.role in PARTS else None

    def fits(self, role: str | None, time: float | None) -> bool:
        """Return whether an entry of this role and time (epoch seconds) meets the conditions.

        An entry without a time meets every condition of time.
        """
        if self.role in ROLES and role != ROLES[self.role]:
            return False
        return time is None or self.is_time(time)

    def is_time(self, time: float) -> bool:
        """Return whether a time (epoch seconds) meets the conditions of time."""
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
    """Return the number that the index stores for a role; None for roles without a filter."""
    return _ROLES.index(role) if role in _ROLES else None


def role_of(number: int | None) -> str | None:
    """Return the role that the index stores as this number."""
    return None if number is None else _ROLES[number]


# A condition on the tables `sessions` and `rows`; an entry without a time gets its file's time.
IN_SQL = (
    " AND (:session IS NULL OR sessions.name = :session)"
    " AND (:role IS NULL OR rows.role = :role)"
    " AND (:since IS NULL OR coalesce(rows.time, sessions.mtime / 1e9) >= :since)"
    " AND (:until IS NULL OR coalesce(rows.time, sessions.mtime / 1e9) < :until)"
)
