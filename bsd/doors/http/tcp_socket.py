"""Listening on TCP, when somebody asks for it."""

from __future__ import annotations

import errno
import socket

from bsd.foundation.errors import BsdError, ConfigError, Forbidden, Unavailable
from bsd.foundation.settings import HttpAddress

_BACKLOG = 64


def open_tcp_sockets(address: HttpAddress) -> list[socket.socket]:
    """Listen on every address that the host's name stands for (one, if the port is any free).

    Raises ConfigError, Forbidden, Unavailable.
    """
    places = _places(address)
    opened: list[socket.socket] = []
    try:
        for family, place in places:
            opened.append(_listen(family, place))
    except OSError as error:
        for one in opened:
            one.close()
        raise _problem(error, address) from error
    return opened


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
