"""The sockets on which the API listens: a Unix socket, and TCP if the settings name an address."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from bsd.core.errors import (
    BsdError,
    ConfigError,
    Forbidden,
    TemporaryFailure,
    Unavailable,
    os_problem,
)
from bsd.core.files import make_private_dir
from bsd.core.locations import LONGEST_SOCKET_PATH, may_talk_to_us, peer_uid
from bsd.core.settings import HttpAddress, Settings

_log = structlog.stdlib.get_logger(module="api")

_BACKLOG = 64
_PROBE_SECONDS = 1.0
_REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    b'{"error":"this socket belongs to the daemon of another user",'
    b'"hint":"run the command as that user"}'
)


class OwnersSocket(socket.socket):
    """A listening Unix socket that accepts only connections of its owner and of root.

    The mode of the socket already keeps other users out; this check is a second barrier.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection of a user who may use the API."""
        while True:
            connection, address = super().accept()
            uid = _uid(connection)
            if uid is not None and may_talk_to_us(uid):
                return connection, address
            _log.warning("A connection of another user is refused", uid=uid)
            with connection, suppress(OSError):
                connection.settimeout(0)
                connection.send(_REFUSAL)


def _uid(connection: socket.socket) -> int | None:
    try:
        return peer_uid(connection)
    except OSError:  # the peer has closed, or the system does not support the query
        return None


class LocalSocket:
    """A listening Unix socket and its path."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self.path = path
        self.socket = listening
        self._inode = _inode(path)

    def remove(self) -> None:
        """Remove the path if it still leads to this socket. Call this before `close`.

        While the socket is open, no other file can have its inode number.
        """
        try:
            if _inode(self.path) == self._inode:
                self.path.unlink()
        except OSError as error:
            _log.warning("The socket could not be removed", path=str(self.path), error=str(error))

    def close(self) -> None:
        """Close the socket; its path stays."""
        self.socket.close()


def open_local_socket(path: Path, *, tighten: bool = False) -> LocalSocket:
    """Listen at `path` with mode 0600 in a directory with mode 0700; a stale socket is replaced.

    Args:
        tighten: if the directory has another mode, change it; only for bsd's own directory.

    Raises:
        TemporaryFailure: another bsd listens at the path.
        ConfigError: the path is too long for a socket, or another file is there.
        Forbidden: another user owns the directory, or other users may enter it.
    """
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"the socket's path is longer than {LONGEST_SOCKET_PATH} bytes: {path}",
            hint="choose a shorter one with BRAINSURGEON_SOCKET",
        )
    listening = OwnersSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        make_private_dir(path.parent, durable=False)
        _check_directory(path.parent, tighten=tighten)
        _remove_stale(path)
        listening.bind(str(path))
        os.chmod(path, 0o600)
        listening.listen(_BACKLOG)
        return LocalSocket(path, listening)
    except BaseException as error:
        listening.close()
        if isinstance(error, OSError):
            raise os_problem(error, f"listening on {path}") from error
        raise


def _check_directory(directory: Path, *, tighten: bool) -> None:
    status = os.stat(directory)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        raise Forbidden(
            f"the directory of the socket belongs to another user: {directory}",
            hint="choose a directory of your own with BRAINSURGEON_SOCKET",
        )
    if mode & 0o077 and tighten:
        os.chmod(directory, mode & 0o700)
    elif mode & 0o077:
        raise Forbidden(
            f"others may enter the directory of the socket: {directory} has mode {mode:04o}",
            hint=f"chmod 700 {directory}, or choose another with BRAINSURGEON_SOCKET",
        )


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens.

    Raises:
        ConfigError: another kind of file is at the path.
        TemporaryFailure: a process listens on the socket.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"the file {path} is not a socket, so bsd cannot listen there",
            hint="move the file, or choose another path with BRAINSURGEON_SOCKET",
        )
    if _is_alive(path):
        raise TemporaryFailure(
            f"another bsd is listening on {path}", hint="`bsd status` shows its state"
        )
    _log.info("A stale socket is replaced", path=str(path))
    path.unlink(missing_ok=True)


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy, forbidden, or of another type: a process uses the socket
            return True
    return True


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def check_exposure(settings: Settings) -> None:
    """Raise ConfigError if the API would be open to the network without a key."""
    if settings.http is not None:
        _check_places(settings.http, _places(settings.http), settings)


def open_tcp_sockets(address: HttpAddress, settings: Settings) -> list[socket.socket]:
    """Listen on every address of the host name; if the port is 0 (any), only on the first.

    Raises:
        ConfigError: the host is unknown, or an address other than loopback has no API key.
        Forbidden, Unavailable: an address is in use or not permitted.
    """
    places = _places(address)
    _check_places(address, places, settings)
    opened: list[socket.socket] = []
    try:
        for family, place in places:
            opened.append(socket.create_server(place, family=family, backlog=_BACKLOG))
    except OSError as error:
        for one in opened:
            one.close()
        raise _problem(error, address) from error
    return opened


_Place = tuple[socket.AddressFamily, tuple[str, int]]


def _check_places(address: HttpAddress, places: list[_Place], settings: Settings) -> None:
    if settings.api_keys or settings.http_open:
        return
    if not all(_is_loopback(host) for _, (host, _) in places):
        raise ConfigError(
            f"without an API key, every computer that reaches {address} could read and delete all"
            " sessions",
            hint="set BRAINSURGEON_API_KEYS (`api_keys` in bsd.toml), listen on 127.0.0.1, or"
            " allow it with --open (`http_open = true`)",
        )


def _is_loopback(host: str) -> bool:
    try:
        place = ipaddress.ip_address(host)
    except ValueError:  # an unknown form cannot be assumed to be local
        return False
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped is not None:
        return place.ipv4_mapped.is_loopback
    return place.is_loopback


def _places(address: HttpAddress) -> list[_Place]:
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host of {address} is not known: {error}",
            hint="name an address of this machine, as in --http 127.0.0.1:8000",
        ) from None
    places = list(dict.fromkeys((family, place[:2]) for family, _, _, _, place in found))
    kept = places if address.port else places[:1]
    return [(family, (str(host), int(port))) for family, (host, port) in kept]


def _problem(error: OSError, address: HttpAddress) -> BsdError:
    what = f"listening on {address}: {error.strerror or error}"
    match error.errno:
        case errno.EADDRINUSE:
            return Unavailable(what, hint="choose another port with --http HOST:PORT")
        case errno.EACCES:
            return Forbidden(what, hint="choose a port from 1024 on")
        case errno.EADDRNOTAVAIL:
            return ConfigError(what, hint="name an address of this machine")
        case _:
            return Unavailable(what, hint="choose another address with --http HOST:PORT")
