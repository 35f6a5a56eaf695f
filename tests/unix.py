"""HTTP over a Unix socket, with the standard library's client."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

from tests.waiting import DEADLINE_SECONDS


class UnixConnection(http.client.HTTPConnection):
    """Connect to the server that listens at this path."""

    def __init__(self, path: Path) -> None:
        super().__init__("bsd", timeout=DEADLINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
