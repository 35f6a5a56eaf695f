"""Calls of the hooks of agents' programs, and the answers for their models.

A program waits for the answer to its hook, so this module neither opens a session nor waits for
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

from bsd.core.errors import BsdError, NotFound
from bsd.core.layout import SessionName
from bsd.daemon.state import DaemonState
from bsd.store.search import SearchIndex, ask
from bsd.store.statistics import NOTHING_OUT, TakenOut
from bsd.transcripts.agents.programs import KINDS, kind_of, session_at

_log = structlog.stdlib.get_logger(module="hooks")

_WAIT_SECONDS = 0.02  # for another process that writes to the search index


class HookReceiver:
    """Receives calls of hooks. Thread-safe."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state

    def receive(self, kind: str, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """Process the call of a hook.

        A session that its program reports as idle is queued. A path outside the sources is ignored.

        Args:
            kind: the kind of the program, as in the sources.
            said: the JSON of the hook.

        Returns:
            The answer for the program; None: no answer.

        Raises:
            NotFound: bsd does not know this kind of program.
        """
        if kind not in KINDS:
            hint = f"the kinds are {', '.join(KINDS)}"
            raise NotFound(f"there is no program of the kind {kind!r}", hint=hint)
        call = kind_of(kind).read_hook(said)
        if call is None:
            return None
        state = self._state
        name = session_at(state.layout, kind, call.transcript)
        if name is None:
            return None
        if call.is_idle:
            _log.debug(f"Session {name} is idle, as its program says", session=str(name))
            state.enqueuer.put_idle(name, state.clocks.steady(), state.clocks.wall())
        if call.tell_model is None:
            return None
        out = self._taken_out(name)
        return call.tell_model(sentence(out.entries)) if out.entries else None

    def _taken_out(self, name: SessionName) -> TakenOut:
        """Return the extracted values of a session according to the search index."""

        def read(index: SearchIndex) -> dict[str, TakenOut]:
            return index.taken_out(only=name)

        found: dict[str, TakenOut] = {}
        with suppress(BsdError, OSError):  # then the model gets no message
            found = ask(self._state.layout.search_db, read, found, wait=_WAIT_SECONDS)
        return found.get(str(name), NOTHING_OUT)


def sentence(entries: int) -> str:
    """Return the message for a model; `entries` is the number of entries with extracted values."""
    whose = "1 entry" if entries == 1 else f"{entries} entries"
    return (
        f"bsd keeps large old values of {whose} of this session in its store; a placeholder"
        " [[extracted-ID]] marks each place. If you need such a text, call the tool restore of the"
        " MCP server bsd with ID as entry_id."
    )
