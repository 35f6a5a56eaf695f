"""Plans how calls of our own tools leave the agent's sight (SPEC §5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bsd.formats.base import Format
from bsd.foundation.errors import Unavailable
from bsd.store.extracted import Stored
from bsd.surgery.plan import Plan, Source


class Kind(StrEnum):
    """How a call leaves."""

    CONSUMED = "consumed"  # call and result are taken out
    MARKED = "marked"  # both stay, cut to what they did


@dataclass(frozen=True, slots=True)
class Call:
    """A call to redact; its id or its entry's id, or both, say which."""

    name: str  # of the tool, as it stands in the session
    kind: Kind
    call_id: str | None = None
    entry_id: str | None = None  # of the entry that holds the call
    note: str = ""  # marked: what the text of the result becomes


@dataclass(frozen=True, slots=True)
class Redacted:
    """One call, and what became of it."""

    call: str  # its id, or its entry's
    tool: str
    entry_id: str | None
    how: Kind | None = None
    why: str | None = None  # if it was left as it is

    def as_json(self) -> dict[str, Any]:
        known = {"call": self.call, "tool": self.tool, "entry_id": self.entry_id}
        return {**known, "how": str(self.how)} if self.how else {**known, "why": self.why}


@dataclass(frozen=True, slots=True)
class RedactAnswer:
    """All calls of one redaction."""

    redacted: tuple[Redacted, ...] = ()
    left: tuple[Redacted, ...] = ()
    entries_removed: tuple[str, ...] = ()
    entry_ids: tuple[str, ...] = ()  # changed or removed

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the contract."""
        return {
            "redacted": [one.as_json() for one in self.redacted],
            "left": [one.as_json() for one in self.left],
            "entries_removed": list(self.entries_removed),
        }


def plan_redact(
    source: Source, fmt: Format, calls: Sequence[Call], stored: Stored  # noqa: ARG001
) -> tuple[Plan, RedactAnswer]:
    """Plan the redaction of these calls; those that cannot be are left, and the answer says why."""
    raise Unavailable("redaction is not built yet")
