"""Messages to the service manager: the daemon's state, and pings for its watchdog.

A message is a datagram to $NOTIFY_SOCKET (sd_notify(3)). If it cannot be sent, the daemon goes on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

import structlog

from bsd.daemon.loops import Beats

_log = structlog.stdlib.get_logger(module="daemon")


class Notifier:
    """Sends messages with sd_notify(3).

    Each call returns True if the message was sent. Without a service manager, no message is sent.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._complained = False

    @property
    def listening(self) -> bool:
        """True if there is a service manager."""
        return self._address is not None

    def ready(self, status: str) -> bool:
        return self._send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, text: str) -> bool:
        return self._send(f"STATUS={_one_line(text)}")

    def alive(self) -> bool:
        """Ping the watchdog."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """Report that settings are being read again; the caller must call `ready` afterwards."""
        # Without the time in the same datagram, systemd waits until its timeout.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self, status: str) -> bool:
        return self._send("STOPPING=1", f"STATUS={_one_line(status)}")

    def _send(self, *lines: str) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | _CLOEXEC) as channel:
                # A manager that does not read must not block the daemon.
                channel.settimeout(0.0)
                channel.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("The service manager cannot be reached", error=str(error))
            return False
        return True


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)


def _address(text: str) -> bytes | None:
    """Parse $NOTIFY_SOCKET: a path, or an abstract name after `@`; other forms return None."""
    if text.startswith("@"):
        return b"\0" + os.fsencode(text[1:])
    return os.fsencode(text) if text.startswith("/") else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def watchdog_seconds(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float:
    """Return the longest time between two pings of the watchdog.

    Returns:
        Seconds; 0 if no watchdog is configured, or if it watches another process.
    """
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000
        wanted = int(environ.get("WATCHDOG_PID", "0"))
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if wanted in {0, pid or os.getpid()} else 0.0


def ping_watchdog(
    notifier: Notifier, beats: Beats, every: float, late: Callable[[list[str]], None], now: float
) -> float | None:
    """Ping the watchdog if no loop is late; otherwise report the late loops.

    Without a ping, systemd restarts bsd.

    Args:
        every: the longest time between two pings in seconds; 0: there is no watchdog.
        late: called with the names of late loops.

    Returns:
        The time of the next call; None if there is no watchdog.
    """
    if names := beats.late():
        notifier.status(f"not answering: {', '.join(names)}")
        late(names)
    elif every > 0:
        notifier.alive()
    return now + every / 2 if every > 0 else None
