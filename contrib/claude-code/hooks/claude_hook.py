"""The command of Claude Code's hooks: sends their JSON to bsd's daemon, and prints its answer.

    python3 -I -S claude_hook.py [--socket PATH]

A separate program for Python 3.8 and newer. It imports no module of bsd and few others, since
Claude Code waits for it. In all cases it ends within 50 ms, exits with 0 and leaves stderr empty.
If no daemon listens, it prints no output. The plugin in contrib/claude-code has a copy.
"""

import _socket as socket  # the wrapper module `socket` takes longer to load than all the rest
import os
import select
import sys
import time

_SECONDS = 0.025  # for the whole run; half of it for the input
_LARGEST = 1 << 20  # bytes; the largest request that the daemon accepts
_LONGEST_SOCKET_PATH = 103  # bytes
_REQUEST = (
    b"POST /api/hooks/claude-code HTTP/1.1\r\nHost: bsd\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)


def main(arguments: "list[str]") -> None:
    """Send the input to the daemon and print its answer; raises OSError and others."""
    until = time.monotonic() + _SECONDS
    said = _read_input(until - _SECONDS / 2)
    for path in _socket_paths(arguments) if said else ():
        try:
            answer = _ask(path, said, until)
        except OSError:  # no daemon listens on this socket, or it takes too long
            continue
        if answer:
            os.write(1, answer + b"\n")
        break


def _read_input(until: float) -> bytes:
    """Return the content of stdin, read until its end or that time; b"" if it is too long."""
    said = b""
    while len(said) <= _LARGEST:
        left = until - time.monotonic()
        if left <= 0 or not select.select([0], [], [], left)[0]:
            return said
        part = os.read(0, 1 << 16)
        if not part:
            return said
        said += part
    return b""


def _ask(path: str, said: bytes, until: float) -> bytes:
    """Return the body of the daemon's answer; b"" without a body. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_left(until))
        connection.connect(path)
        if not _is_trusted(connection):
            raise PermissionError(path)
        connection.sendall(_REQUEST % (len(said), said))
        answer = b""
        while len(answer) <= _LARGEST:
            connection.settimeout(_left(until))
            part = connection.recv(1 << 16)
            if not part:
                break
            answer += part
    finally:
        connection.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    is_whole = b"\r\ncontent-length: %d\r\n" % len(body) in head.lower() + b"\r\n"
    return body if is_whole and head.startswith(b"HTTP/1.1 200 ") else b""


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _is_trusted(connection: socket.socket) -> bool:
    """Return True if the daemon runs as this user or as root, or if this user is root."""
    if sys.platform == "darwin":  # LOCAL_PEERCRED of SOL_LOCAL, a `struct xucred`
        told = connection.getsockopt(0, 1, 76)
    else:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    uid = int.from_bytes(told[4:8], sys.byteorder)
    return uid in (os.geteuid(), 0) or os.geteuid() == 0


def _socket_paths(arguments: "list[str]") -> "list[str]":
    """Return the possible paths of the daemon's socket, by the rules of `bsd.core.locations`.

    The settings file is not read: if it names another root or socket, bsd passes `--socket`.
    """
    named = arguments[1] if len(arguments) == 2 and arguments[0] == "--socket" else ""
    named = named or os.environ.get("BRAINSURGEON_SOCKET", "")
    if named:
        return [_absolute(named)]
    root, agents = map(os.environ.get, ("OPENCLAW_ROOT", "BRAINSURGEON_AGENTS_DIR"))
    if root or agents:
        return [_socket_of(_absolute(root) if root else os.path.dirname(_absolute(str(agents))))]
    data = os.environ.get("XDG_DATA_HOME", "")
    if not data.startswith("/"):
        data = _absolute("~/.local/share")
    return [_socket_of(_absolute("~/.openclaw")), _socket_of(os.path.join(data, "bsd"))]


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _socket_of(root: str) -> str:
    """Return the path of the socket of a root's daemon."""
    path = os.path.join(root, ".brainsurgeon", "bsd.sock")
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    import hashlib  # noqa: PLC0415 - slow to load, and rarely needed

    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16] + ".sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and len(os.fsencode(runtime)) + len(name) + 5 < _LONGEST_SOCKET_PATH:
        return os.path.join(runtime, "bsd", name)
    return f"/tmp/bsd-{os.getuid()}/{name}"  # noqa: S108 - the owner of the socket is checked


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException:  # noqa: BLE001, S110 - any failure must leave Claude Code undisturbed
        pass
    finally:
        os._exit(0)  # at once, without a message about a closed pipe
