"""From what somebody typed to sessions that exist."""

from __future__ import annotations

from bsd.foundation.errors import Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName, check_name
from bsd.lifecycle import catalog


def all_sessions(layout: Layout) -> list[SessionName]:
    """Every session of every agent."""
    return list(catalog.names(layout))


def find_session(layout: Layout, text: str) -> SessionName:
    """Read `agent/session`, or a session id that only one agent has (seeds 000, 001)."""
    if "/" in text:
        return SessionName.parse(text)
    check_name(text, "session")
    found = [name for name in catalog.names(layout) if name.session == text]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(map(str, found))
        raise Invalid(f"several agents have a session {text}", hint=f"one of {names}")
    raise NotFound(f"there is no session {text}", hint="`bsd sessions` lists them")
