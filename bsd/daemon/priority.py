"""How children let others go first; loaded before all else that they load."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress

_NICE = 5  # so that whoever answers goes first, and who holds a lease does not wait for long
_OOM_SCORE = 500  # rather one attempt of one session than the daemon
_LAST_OF_BEST_EFFORT = (2 << 13) | 7  # of ioprio_set(2); idle ones could hold a lease for long
_TRIES, _PAUSE_SECONDS = 5, 0.1
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # glibc has no function for it


def stand_back(*, background: bool) -> None:
    """Let others go first, if nobody waits; what the system refuses is only politeness."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(_OOM_SCORE))
    if not background:
        return
    with suppress(OSError):
        os.nice(_NICE)
    _stand_back_as_a_group()
    if (number := _IOPRIO_SET.get(os.uname().machine)) and sys.platform == "linux":
        ctypes.CDLL(None).syscall(number, 1, 0, _LAST_OF_BEST_EFFORT)


def _stand_back_as_a_group() -> None:
    """The same for the session that this process leads.

    Where the kernel groups processes by sessions, one alone in its own competes with nobody by its
    own value: the group's counts (sched(7)). It takes ten such changes a second, of all users.
    """
    for _ in range(_TRIES):
        with suppress(OSError):
            try:
                with open("/proc/self/autogroup", "w", encoding="ascii") as file:
                    file.write(str(_NICE))
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
                continue
        return
