"""Requests to the running daemon, over its Unix socket."""

from __future__ import annotations

import json
import os
import socket
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, ClassVar

from bsd.core.errors import BsdError, FieldError, Forbidden, Unavailable, os_problem
from bsd.core.locations import may_be_believed, peer_uid

_ANSWER_SECONDS = 10.0


class NotRunning(BsdError):
    """No daemon listens on the socket."""

    exit_code: ClassVar[int] = 3
    status: ClassVar[int] = 503


class Client:
    """The daemon of one root. Each request opens a connection of its own.

    Args:
        path: the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str) -> Any:
        """Return the document at a path of the API.

        Raises:
            NotRunning: no daemon listens.
            Unavailable: the daemon does not answer within 10 seconds, or breaks off its answer.
            Forbidden: the socket belongs to another user.
            BsdError: the daemon answers with an error.
        """
        return self._ask("GET", path, _ANSWER_SECONDS)

    def post(self, path: str) -> Any:
        """Send a POST request without a time limit; returns and raises as `get` does."""
        return self._ask("POST", path, None)

    def _ask(self, method: str, path: str, seconds: float | None) -> Any:
        try:
            status, document = self._exchange(method, path, seconds)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NotRunning("the daemon is not running", hint="`bsd run` starts it") from None
        except (TimeoutError, BlockingIOError):
            raise Unavailable(
                f"the daemon does not answer on {self.path}", hint="`bsd logs` shows its log"
            ) from None
        except (ConnectionError, HTTPException, ValueError) as error:
            raise Unavailable(
                f"the daemon broke off its answer: {error}",
                hint="it may be stopping; run it again",
            ) from error
        except OSError as error:
            raise os_problem(error, f"asking the daemon on {self.path}") from error
        # An unhealthy daemon returns its state with status 503, which is no error here.
        if status >= 400 and "error" in document:
            errors = tuple(FieldError(e["field"], e["message"]) for e in document.get("errors", ()))
            raise BsdError(document["error"], hint=document.get("hint"), errors=errors)
        return document

    def _exchange(self, method: str, path: str, seconds: float | None) -> tuple[int, Any]:
        connection = _UnixConnection(self.path, seconds)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, seconds: float | None) -> None:
        super().__init__("bsd", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect.

        Raises:
            Forbidden: another user listens, as is possible in a shared directory.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))
        if not may_be_believed(uid := peer_uid(self.sock)):
            raise Forbidden(
                f"the socket {self._path} belongs to user {uid}, not to you",
                hint="remove it, or set BRAINSURGEON_SOCKET",
            )
