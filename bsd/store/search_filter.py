"""The filter of a search: of which sessions and entries it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsd.core.layout import SessionName

# The roles that a search can ask for, and those that entries have.
ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions that an entry has to meet; None: no condition."""

    session: SessionName | None = None
    role: str | None = None  # a key of `ROLES`
    since: float | None = None  # epoch seconds: it was written then or later
    gone: bool | None = None  # whether its program has deleted the session

    def fits(self, role: str | None, time: float | None) -> bool:
        """Return whether an entry of this role and time (epoch seconds) meets the conditions.

        One without a time meets every condition of time.
        """
        if self.role is not None and role != ROLES[self.role]:
            return False
        return self.since is None or time is None or time >= self.since

    def as_parameters(self) -> dict[str, Any]:
        """Return the values of the parameters in the condition `IN_SQL`."""
        return {
            "session": self.session and str(self.session),
            "role": self.role and role_number(ROLES[self.role]),
            "since": self.since,
        }


NO_FILTER = SearchFilter()
_ROLES = tuple(ROLES.values())


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
)
