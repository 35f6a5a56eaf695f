"""The session that a tool call means: the named session, the caller's own, or that of an entry.

The calling program is the nearest ancestor process with open sessions, according to its module in
`transcripts.agents`. The session of an entry is found by searching files for the entry's id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core import processes
from bsd.core.errors import BsdError, Forbidden, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.catalog import find_session
from bsd.store.contents import contents_of
from bsd.store.index import INDEX_FILE, session_named_in
from bsd.store.origins import continues
from bsd.transcripts.agents.entry import placeholder
from bsd.transcripts.agents.opening import open_transcript, require_transcript
from bsd.transcripts.agents.program import Process
from bsd.transcripts.agents.programs import at_work, in_use

_MOST_ANCESTORS = 12  # including shells and launchers between the program and this process
_MOST_NAMED = 5
_HINT = "AGENT/SESSION, or an id that only one agent has; `bsd sessions` lists them"


def sessions_of_client(layout: Layout, pid: int | None = None) -> tuple[SessionName, ...]:
    """Return the open sessions of the nearest ancestor process that has any.

    Returns several if the program does not reveal which of its sessions calls.

    Args:
        pid: the process at which the search starts; None: the parent.
    """
    for each in ancestors(os.getppid() if pid is None else pid):
        if found := at_work(layout, each):
            return tuple(dict.fromkeys(found))
    return ()


def ancestors(pid: int) -> Iterator[Process]:
    """Yield a process, its parent, and so on; without /proc only the first."""
    above: int | None = pid
    for _ in range(_MOST_ANCESTORS):
        if not above:
            return
        yield _process(above)
        above = processes.parent(above)


def _process(pid: int) -> Process:
    started, directory = processes.starttime(pid), processes.directory(pid)
    return Process(
        pid,
        started,
        None if started is None else processes.begun(started),
        None if directory is None else Path(directory),
        processes.argv(pid),
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """The sessions that a caller may reach: all, those of an agent, or a single session.

    Attributes:
        client: returns the sessions that the calling program has open.
    """

    agent: str | None = None
    session: SessionName | None = None
    client: Callable[[Layout], Sequence[SessionName]] = sessions_of_client

    def find(self, layout: Layout, text: str | None, entry: str | None = None) -> SessionName:
        """Return the session that a caller means.

        Args:
            text: the name that the caller gives; None: the caller's own session.
            entry: an extracted entry, to choose among several sessions.

        Raises:
            Invalid: no session is named, and several (or none) are possible.
            NotFound: the session does not exist.
            Forbidden: the caller may not reach the session.
        """
        if self.session is not None:
            if text and text not in {str(self.session), self.session.session}:
                raise Forbidden(
                    f"{text} is out of reach: these tools serve {self.session} only",
                    hint="omit `session`",
                )
            return self.session
        if not text:
            return self._unnamed(layout, entry)
        if self.agent is not None and "/" not in text:
            name = SessionName(self.agent, text)
            require_transcript(layout, name)
            return name
        name = find_session(layout, text)
        if self.agent is not None and name.agent != self.agent:
            raise Forbidden(
                f"{name} is out of reach: these tools serve sessions of {self.agent} only"
            )
        return name

    def own(self, layout: Layout) -> tuple[SessionName, ...]:
        """Return the sessions that the calling program has open and may reach."""
        found = self.client(layout)
        return tuple(one for one in found if self.agent in (None, one.agent))

    def begun_in(self, layout: Layout, name: SessionName, entry: str) -> SessionName | None:
        """Return the session in whose file an extracted entry of a session's context stands.

        Forks of some programs refer to the file of their origin instead of copying its lines.

        Returns:
            A session that `name` continues; None if there is none, or if several have the entry.
        """
        if self.session is not None:
            return None
        others = sessions_with_placeholder(layout, entry, self.agent)
        found = [other for other in others if continues(layout, name, other)]
        return found[0] if len(found) == 1 else None

    def may_wait(self, layout: Layout, name: SessionName) -> bool:
        """Return False for a session that is in use, as an agent's own is during its call."""
        return name not in self.own(layout) and not in_use(layout, name)

    def _unnamed(self, layout: Layout, entry: str | None) -> SessionName:
        """Return the caller's own session, else the only session with the extracted `entry`."""
        own = self.own(layout)
        if entry is None:
            if len(own) == 1:
                return own[0]
            raise _required(own, "the calling program has several open")
        if found := [name for name in own if mentions(layout, name, entry)]:
            if len(found) == 1:
                return found[0]
            raise _required(found, f"several of yours have the entry {entry}")
        elsewhere = sessions_with_placeholder(layout, entry, self.agent)
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
        which = "bsd cannot tell which session of the calling program is yours; pass"
        return Invalid(message, hint=f"{which} {_HINT}")
    shown = ", ".join(map(str, among[:_MOST_NAMED])) + (", …" if len(among) > _MOST_NAMED else "")
    return Invalid(f"{message}: {why}", hint=f"pass one of {shown}")


def mentions(layout: Layout, name: SessionName, entry: str) -> bool:
    """Return True if a session can be read and contains the id of an entry."""
    with suppress(BsdError, OSError):
        return _holds(layout, name, entry.encode("utf-8", "surrogatepass"))
    return False


def _holds(layout: Layout, name: SessionName, needle: bytes) -> bool:
    with open_transcript(layout, name) as source:
        return next(source.lines_holding(needle), None) is not None


def sessions_with_placeholder(
    layout: Layout, entry: str, agent: str | None = None
) -> list[SessionName]:
    """Return the sessions with a stored entry and its placeholder."""
    stands = placeholder(entry).encode("utf-8", "replace")
    layout.refuse_outside(layout.extracted)
    contents = contents_of(layout)
    contents.changed()  # a line may just have been stored
    found = set[SessionName]()
    for place in contents.of_entry(entry):
        # If the name of the store is truncated, its index names the session.
        name = layout.session_of_store(place.store) or session_named_in(
            place.directory / INDEX_FILE
        )
        with suppress(BsdError):
            if name is None or agent not in (None, name.agent):
                continue
            if _holds(layout, name, stands):
                found.add(name)
    return sorted(found)
