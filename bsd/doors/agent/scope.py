"""Which sessions a caller of the tools may name, and which one is meant where none is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bsd.care.catalog import find_session
from bsd.doors.agent.client import sessions_of_client
from bsd.doors.agent.where import mentions, sessions_that_lack
from bsd.foundation.errors import Forbidden, Invalid
from bsd.foundation.layout import Layout, SessionName

_MOST_NAMED = 5
_HINT = "AGENT/SESSION, or an id that only one agent has; `bsd sessions` lists them"


@dataclass(frozen=True, slots=True)
class Scope:
    """All sessions, those of one agent, or one session; `client` says whose asks."""

    agent: str | None = None
    session: SessionName | None = None
    client: Callable[[Layout], Sequence[SessionName]] = sessions_of_client

    def find(self, layout: Layout, text: str | None, entry: str | None = None) -> SessionName:
        """Find the session that a caller means; `entry` is one that is away of it.

        Raises Invalid, NotFound, Forbidden.
        """
        if self.session is not None:
            if text and text not in {str(self.session), self.session.session}:
                raise Forbidden(
                    f"{text} is out of reach: these tools serve {self.session} only",
                    hint="leave `session` out",
                )
            return self.session
        if not text:
            return self._unnamed(layout, entry)
        if self.agent is not None and "/" not in text:
            name = SessionName(self.agent, text)
            layout.session_file(name)
            return name
        name = find_session(layout, text)
        if self.agent is not None and name.agent != self.agent:
            raise Forbidden(
                f"{name} is out of reach: these tools serve sessions of {self.agent} only"
            )
        return name

    def own(self, layout: Layout) -> tuple[SessionName, ...]:
        """The sessions that the program which asks has at work, as far as they may be reached."""
        found = self.client(layout)
        return tuple(one for one in found if self.agent in (None, one.agent))

    def _unnamed(self, layout: Layout, entry: str | None) -> SessionName:
        """The caller's own session; else the only one that an entry is away of."""
        own = self.own(layout)
        if entry is None:
            if len(own) == 1:
                return own[0]
            raise _required(own, "that program has several at work")
        if found := [name for name in own if mentions(layout, name, entry)]:
            if len(found) == 1:
                return found[0]
            raise _required(found, f"several of yours have the entry {entry}")
        elsewhere = sessions_that_lack(layout, entry, self.agent)
        if len(elsewhere) == 1:
            return elsewhere[0]
        if elsewhere:
            raise _required(elsewhere, f"several have the entry {entry}")
        if len(own) == 1:
            return own[0]
        raise _required(own, "none of them has that entry")


def _required(among: Sequence[SessionName], why: str) -> Invalid:
    message = "session parameter is required"
    if not among:
        which = "which one is yours cannot be told from the program that asks; pass"
        return Invalid(message, hint=f"{which} {_HINT}")
    shown = ", ".join(map(str, among[:_MOST_NAMED])) + (", …" if len(among) > _MOST_NAMED else "")
    return Invalid(f"{message}: {why}", hint=f"pass one of {shown}")
