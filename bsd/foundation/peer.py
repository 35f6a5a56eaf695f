"""Who is at the other end of a Unix socket. The command line uses it too: stdlib only."""

from __future__ import annotations

import os
import socket
import struct
import sys

_ROOT = 0

# macOS: <sys/un.h> and <sys/ucred.h>; `struct xucred` begins with a version and the uid.
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_XUCRED_SIZE = 76


def peer_uid(connection: socket.socket) -> int:
    """The user whose process is at the other end, as the kernel tells; raises OSError."""
    if sys.platform == "darwin":
        told = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE)
        return int(struct.unpack_from("=2I", told)[1])
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("=iII", told)[1])  # pid, uid, gid


def may_talk_to_us(uid: int) -> bool:
    """Whether a user may use our socket: ourselves and root."""
    return uid in {os.geteuid(), _ROOT}


def may_be_believed(uid: int) -> bool:
    """Whether what a daemon of this user says is true for us: ours, root's, or we are root."""
    return uid in {os.geteuid(), _ROOT} or os.geteuid() == _ROOT
