"""Where the daemon listens: on a Unix socket, and on TCP when somebody asks for it.

The Unix socket is put in its place, found stale or alive, and taken away again.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
from bsd.core.locations import LONGEST_SOCKET_PATH
from bsd.core.settings import HttpAddress, Settings

_log = structlog.stdlib.get_logger(module="api")

_BACKLOG = 64
_PROBE_SECONDS = 1.0
_TRIES = 50
_TURN_SECONDS = 5.0  # how long another bsd may be busy putting its socket there

_Identity = tuple[int, int]  # device, inode


class LocalSocket:
    """A listening socket at a path, for its owner only."""

    def __init__(self, path: Path, listening: socket.socket, identity: _Identity) -> None:
        self.path = path
        self.socket = listening
        self._identity = identity

    def remove(self) -> None:
        """Take the path away if it is still ours; call it before the socket is closed.

        As long as it is open, no other file can have got its inode number.
        """
        try:
            with _our_turn(self.path):
                if _identity(self.path) == self._identity:
                    self.path.unlink()
        except (BsdError, OSError) as error:
            _log.warning("The socket could not be removed", path=str(self.path), error=str(error))

    def close(self) -> None:
        self.socket.close()


def open_local_socket(path: Path, *, tighten: bool = False) -> LocalSocket:
    """Listen at `path` with mode 0600 in a directory with mode 0700; a stale socket is replaced.

    `tighten`: the directory is ours alone, and gets its mode if it has another. Raises
    TemporaryFailure if somebody listens there, ConfigError if the path cannot be one of a socket
    or something else is there, Forbidden if others may enter the directory.
    """
    temporary = path.with_name("~" + path.name[1:])  # no longer than the name itself
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise _too_long(path)
    try:
        make_private_dir(path.parent, durable=False)
        _check_directory(path.parent, tighten=tighten)
        with _our_turn(path):
            _clear_away(temporary)
            _refuse_if_taken(path)
            return _put(temporary, path)
    except OSError as error:
        raise os_problem(error, f"listening on {path}") from error


def _put(temporary: Path, path: Path) -> LocalSocket:
    """Make a socket that listens, then show it: nobody ever finds one that does not answer."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(temporary))
        os.chmod(temporary, 0o600)
        listening.listen(_BACKLOG)
        status = os.lstat(temporary)
        os.rename(temporary, path)
    except BaseException:  # an interrupt, too, must leave nothing behind
        listening.close()
        with suppress(OSError):
            temporary.unlink()
        raise
    return LocalSocket(path, listening, (status.st_dev, status.st_ino))


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


def _refuse_if_taken(path: Path) -> None:
    """Raise unless there is nothing, or a socket that nobody listens on."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"there is something at {path} that is not a socket; it stays as it is",
            hint="move it away, or choose another path with BRAINSURGEON_SOCKET",
        )
    if _is_alive(path):
        raise TemporaryFailure(
            f"another bsd is listening on {path}", hint="`bsd status` asks it how it is"
        )
    _log.info("A stale socket is replaced", path=str(path))


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # too busy to accept, forbidden, another kind: somebody's in any case
            return True
    return True


def _clear_away(temporary: Path) -> None:
    """Remove what a bsd left that died between making its socket and showing it."""
    try:
        if stat.S_ISSOCK(os.lstat(temporary).st_mode):
            temporary.unlink()
    except FileNotFoundError:
        pass


@contextmanager
def _our_turn(path: Path) -> Iterator[None]:
    """Keep other bsds out while we look at the path and change it."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for attempt in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == _TRIES:
                    raise TemporaryFailure(
                        f"another program keeps {path.parent} locked",
                        hint="wait a moment and run it again",
                    ) from None
                time.sleep(_TURN_SECONDS / _TRIES)
            except OSError:  # a file system without flock: rename is atomic even so
                break
        yield
    finally:
        os.close(descriptor)


def _identity(path: Path) -> _Identity | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _too_long(path: Path) -> ConfigError:
    return ConfigError(
        f"the socket's path is longer than {LONGEST_SOCKET_PATH} bytes: {path}",
        hint="choose a shorter one with BRAINSURGEON_SOCKET",
    )


def check_exposure(settings: Settings) -> None:
    """Raise ConfigError if anyone on the network could use the API on TCP without a key."""
    if settings.http is not None and _needs_keys(settings):
        _refuse_exposed(settings.http, _places(settings.http))


def open_tcp_sockets(address: HttpAddress, settings: Settings) -> list[socket.socket]:
    """Listen on every address that the host's name stands for (one, if the port is any free).

    Raises ConfigError (also for an address beyond loopback without keys), Forbidden, Unavailable.
    """
    places = _places(address)
    if _needs_keys(settings):
        _refuse_exposed(address, places)
    opened: list[socket.socket] = []
    try:
        for family, place in places:
            opened.append(_listen(family, place))
    except OSError as error:
        for one in opened:
            one.close()
        raise _problem(error, address) from error
    return opened


def _needs_keys(settings: Settings) -> bool:
    """True if there are no keys, and the settings do not say that TCP is open all the same."""
    return not settings.api_keys and not settings.http_open


def _refuse_exposed(
    address: HttpAddress, places: list[tuple[socket.AddressFamily, tuple[str, int]]]
) -> None:
    if not all(_is_loopback(host) for _, (host, _) in places):
        raise ConfigError(
            f"without an API key, everybody who reaches {address} over the network could read and"
            " delete all sessions",
            hint="set BRAINSURGEON_API_KEYS (`api_keys` in bsd.toml), listen on 127.0.0.1, or say"
            " --open (`http_open = true`) if all who reach it may do so",
        )


def _is_loopback(host: str) -> bool:
    try:
        place = ipaddress.ip_address(host)
    except ValueError:  # no form that is known: nothing says that it is this machine alone
        return False
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped is not None:
        return place.ipv4_mapped.is_loopback
    return place.is_loopback


def _places(address: HttpAddress) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
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


def _listen(family: socket.AddressFamily, place: tuple[str, int]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # So that a restart need not wait for the last connections to be forgotten.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except BaseException:  # an interrupt, too
        listening.close()
        raise
    return listening


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
