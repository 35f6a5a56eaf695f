"""A caller at the Unix socket of whom the system does not tell whose process it is: a stranger."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.http.api import over_socket, serving

pytestmark = pytest.mark.daemon


@pytest.mark.skipif(sys.platform != "linux", reason="another system is asked in another way")
@pytest.mark.parametrize("path", ["/api/status", "/api/health", "/"])
def test_whose_uid_cannot_be_read_is_refused(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    root = short_path / "root"
    root.mkdir(mode=0o700)
    asked = socket.socket.getsockopt

    def silent(self: socket.socket, level: int, option: int, *size: int) -> Any:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return asked(self, level, option, *size)

    with serving(root) as (server, settings):
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "getsockopt", silent)
            status, answer = over_socket(settings.socket, path)
        assert (status, set(answer)) == (403, {"error", "hint"})
        assert server.alive
        assert over_socket(settings.socket, "/api/health")[0] == 200, "others are let in again"
