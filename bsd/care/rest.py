"""Whether sessions are at rest: in nobody's hands, and with nothing in flight for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from bsd.agents.owner import Free, Stale
from bsd.agents.owners import in_use, owner_of
from bsd.foundation.errors import Busy
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.leases import open_plain, take_lease
from bsd.foundation.mount import open_elsewhere, strength
from bsd.session.commit.exchangers import Exchanger
from bsd.session.commit.inflight import InFlight, Record
from bsd.session.commit.lock import own_lock
from bsd.session.commit.recovered import Access, State
from bsd.session.commit.recovery import recover

_AGAIN = "again later"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_WEAK_QUIET_SECONDS = 30.0
_UNSETTLED = {State.BUSY, State.WAITING, State.FAILED}
_ONCE_MORE = {State.CARRIED, State.PUT_BACK}


class Rest:
    """Waits until sessions are at rest. The caller holds bsd's own lock of each."""

    def __init__(
        self,
        layout: Layout,
        exchanger: Exchanger,
        quiet: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._layout = layout
        self._exchanger = exchanger
        self._quiet = quiet
        self._clock = clock
        self._sleep = sleep

    def settle(self, names: list[SessionName]) -> None:
        """Have nothing in flight for these sessions, late lines where they belong; raises Busy.

        A displaced file that is only kept for its minute is no hindrance once nobody has it open:
        what still came into it would be kept as an orphan, as for any session that is gone.
        """
        inflight = InFlight(self._layout)
        for _ in range(3):
            found = [
                each
                for each in recover(
                    inflight,
                    self._access(names),
                    self._exchanger,
                    now_ns=lambda: int(self._clock() * 1e9),
                )
                if each.session in names
            ]
            for each in found:
                if each.state in _UNSETTLED:
                    raise Busy(
                        f"a change of session {each.session} is not finished: {each.detail}",
                        hint=_AGAIN,
                    )
            if not any(each.state in _ONCE_MORE for each in found):
                break
        for record in inflight.readable():
            if record.session in names and not _is_done_with(record):
                raise Busy(
                    f"session {record.session} was changed a moment ago, and somebody may"
                    " still write to the file as it was",
                    hint="again in a minute",
                )

    def _access(self, names: list[SessionName]) -> Access:
        def lock(name: SessionName) -> AbstractContextManager[object]:
            return nullcontext() if name in names else own_lock(self._layout, name, 0.0)

        return Access(
            own_lock=lock,
            session_lock=lambda name, path: owner_of(self._layout, name.agent).lock(name, path),
            still_idle=lambda name, _: in_use(self._layout, name),
            owner=lambda name: owner_of(self._layout, name.agent),
        )

    def wait_for(self, names: list[SessionName], deadline: float) -> None:
        """Wait until all are idle; raises Busy at the deadline."""
        attempt = 0
        while why := next(filter(None, map(self.why_not, names)), None):
            left = deadline - self._clock()
            if left <= 0:
                raise Busy(why, hint=_AGAIN)
            self._sleep(min(_FIRST_PAUSE * 2 ** min(attempt, 10), _LONGEST_PAUSE, left))
            attempt += 1

    def why_not(self, name: SessionName) -> str | None:
        """Why a session must be left alone now (SPEC §2.6), and an open one, too."""
        path = self._path(name)
        if not isinstance(owner_of(self._layout, name.agent).lock_state(path), Free | Stale):
            return f"session {name} is in use: its lock is held"
        if why := in_use(self._layout, name):
            return f"session {name} is in use: {why}"
        with suppress(FileNotFoundError):
            age = self._clock() - path.lstat().st_mtime
            strong = strength(path.parent).level == "strong"
            if 0 <= age < (self._quiet if strong else max(self._quiet, _WEAK_QUIET_SECONDS)):
                return f"session {name} was written to {age:.1f} s ago"
            if not _is_closed(path, strong=strong):
                return f"somebody has session {name} open"
        return None

    def gateway_lock(self, name: SessionName, deadline: float) -> AbstractContextManager[object]:
        """The gateway's lock of a session, if there is a file to lock or a lock to bury."""
        path, owner = self._path(name), owner_of(self._layout, name.agent)
        if not path.exists() and isinstance(owner.lock_state(path), Free):
            return nullcontext()
        wait = max(0.0, deadline - self._clock())
        return owner.lock(name, path, wait, sleep=self._sleep)

    def refuse_unless(self, names: Iterable[SessionName]) -> None:
        """Look again, now that the locks are held and nobody can begin; raises Busy."""
        for name in names:
            if why := in_use(self._layout, name):
                raise Busy(f"session {name} is in use: {why}", hint=_AGAIN)

    def _path(self, name: SessionName) -> Path:
        return self._layout.transcript(name)


def _is_closed(path: Path, *, strong: bool) -> bool:
    """Whether nobody has a file open, as far as that can be told."""
    if not strong:
        return not path.exists() or set(open_elsewhere(path)) <= {os.getpid()}
    try:
        fd = open_plain(str(path), os.O_RDONLY)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    try:
        return take_lease(fd)
    finally:
        os.close(fd)


def _is_done_with(record: Record) -> bool:
    """Whether a displaced file is only kept for its minute; on weak mounts that proves nothing."""
    if not record.file.exists():
        return True
    return record.strong and _is_closed(record.file, strong=True)
