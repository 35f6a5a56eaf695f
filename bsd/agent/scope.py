"""Which sessions a caller of the tools may name."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.cli.names import find_session
from bsd.foundation.errors import Forbidden, Invalid
from bsd.foundation.layout import Layout, SessionName


@dataclass(frozen=True, slots=True)
class Scope:
    """All sessions, those of one agent, or one session."""

    agent: str | None = None
    session: SessionName | None = None

    def find(self, layout: Layout, text: str | None) -> SessionName:
        """Find the session that a caller means; raises Invalid, NotFound, Forbidden."""
        if self.session is not None:
            if text and text not in {str(self.session), self.session.session}:
                raise Forbidden(
                    f"{text} is out of reach: these tools serve {self.session} only",
                    hint="leave `session` out",
                )
            return self.session
        if not text:
            raise Invalid(
                "session parameter is required",
                hint="AGENT/SESSION, or an id that only one agent has; `bsd sessions` lists them",
            )
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
