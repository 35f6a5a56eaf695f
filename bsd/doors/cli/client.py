"""Asks the running daemon over its Unix socket. Loads next to nothing: `bsd status` is quick."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bsd.foundation.errors import BsdError, FieldError, Forbidden, Unavailable, os_problem
from bsd.foundation.locations import (
    find_root,
    find_socket,
    may_be_believed,
    peer_uid,
    read_settings_file,
    settings_file,
)

_ANSWER_SECONDS = 10.0
_BLOCK = 1 << 16


class NotRunning(BsdError):
    """Nobody listens on the socket."""

    exit_code: ClassVar[int] = 3
    status: ClassVar[int] = 503


class DaemonRefused(BsdError):
    """The daemon answered with an error."""


class Client:
    """One daemon, the one of a root; every question is a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str) -> Any:
        """Ask for a document; raises NotRunning, Unavailable, Forbidden, Refused."""
        return self._ask("GET", path, _ANSWER_SECONDS)

    def post(self, path: str) -> Any:
        """Let something be done, however long it takes; raises as `get` does."""
        return self._ask("POST", path, None)

    def _ask(self, method: str, path: str, seconds: float | None) -> Any:
        try:
            status, body = self._exchange(method, path, seconds)
            document = json.loads(body)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NotRunning("the daemon is not running", hint="`bsd run` starts it") from None
        except (TimeoutError, BlockingIOError):
            raise Unavailable(
                f"the daemon does not answer on {self.path}", hint="`bsd logs` shows its log"
            ) from None
        except (ConnectionError, ValueError) as error:
            raise Unavailable(
                f"the daemon broke off its answer: {error}",
                hint="it may be stopping; run it again",
            ) from error
        except OSError as error:
            raise os_problem(error, f"asking the daemon on {self.path}") from error
        # An unhealthy daemon tells how it is with 503, too.
        if status >= 400 and "error" in document:
            raise _refused(document)
        return document

    def _exchange(self, method: str, path: str, seconds: float | None) -> tuple[int, bytes]:
        """One request and its answer; raises OSError, ValueError.

        Not by http.client: loading it takes longer than everything else here.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # Where many wait to be let in, a socket with a time-out of Python's is refused at once.
            if seconds is not None:
                patience = struct.pack("ll", int(seconds), 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            connection.connect(os.fspath(self.path))
            connection.settimeout(seconds)
            self._check(peer_uid(connection))
            connection.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: bsd\r\nConnection: close\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: connection.recv(_BLOCK), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        length = [
            int(f.partition(":")[2]) for f in fields if f.lower().startswith("content-length:")
        ]
        if length != [len(body)]:
            raise ValueError(f"{len(body)} bytes came")
        return int(first.split(" ")[1]), body

    def _check(self, uid: int) -> None:
        # In a directory for all, somebody else may have been quicker.
        if not may_be_believed(uid):
            raise Forbidden(
                f"the socket {self.path} belongs to user {uid}, not to you",
                hint="remove it, or set BRAINSURGEON_SOCKET",
            )


def find_client(
    root: str | None, config: str | None, environ: Mapping[str, str] = os.environ
) -> Client:
    """Find the daemon that `--root` and `--config` mean; raises ConfigError for broken settings."""
    named = Path(config) if config is not None else None
    in_file = read_settings_file(named or settings_file(environ), required=named is not None)
    if not all(_is_whole(in_file.get(key, "/")) for key in ("root", "socket")):
        from bsd.foundation.settings import load_settings

        load_settings(named, environ=environ)  # says what is wrong with it
    found = find_root(root, environ, in_file.get("root"))
    configured = environ.get("BRAINSURGEON_SOCKET") or in_file.get("socket")
    return Client(find_socket(found, environ, configured if isinstance(configured, str) else None))


def _is_whole(path: object) -> bool:
    return isinstance(path, str) and (path == "~" or path.startswith(("/", "~/")))


def _refused(document: Mapping[str, Any]) -> DaemonRefused:
    errors = tuple(
        FieldError(str(one["field"]), str(one["message"])) for one in document.get("errors", ())
    )
    return DaemonRefused(str(document["error"]), hint=document.get("hint"), errors=errors)
