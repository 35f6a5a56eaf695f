"""Our command line: how it is parted, and the word by which the gateway knows us.

A gateway since 2026.5.18 takes away the lock of a living process whose argv does not look like
OpenClaw's. So `bsd extract …` that will lock runs as `bsd --host openclaw extract …`.

Imported before anything else: only os and sys here.
"""

from __future__ import annotations

import os
import sys

HOST_TOKEN = ("--host", "openclaw")
_AGAIN = "BSD_HOST_TOKEN"  # the pid that has re-executed itself already


def names_openclaw(argv: list[str] | tuple[str, ...]) -> bool:
    """Whether the gateway takes a process with this command line for one of OpenClaw's."""
    return any(argument == "openclaw" or argument.endswith("/openclaw") for argument in argv)


def ensure_host_token() -> bool:
    """Re-execute this program with `--host openclaw` unless its command line shows it already.

    Call it first thing in `main`, while `sys.argv` is as it was given. The new program is the same
    interpreter with the same options, script, arguments, environment, directory, descriptors and
    pid. Returns whether the command line now shows the token; False means that it could not be
    put there, and that newer gateways will not honour our lock.
    """
    # An exec keeps the pid; a child has another one and must not think that it has tried.
    tried = os.environ.pop(_AGAIN, None) == str(os.getpid())
    if names_openclaw(_command_line()):
        return True
    argv = _argv_with_token()
    if tried or argv is None:
        return False
    os.environ[_AGAIN] = str(os.getpid())
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        os.execv(sys.executable, argv)  # noqa: S606 that is the point
    except OSError:  # the interpreter was replaced or removed while it ran
        del os.environ[_AGAIN]
        return False


def _command_line() -> list[str]:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return os.fsdecode(file.read()).rstrip("\0").split("\0")
    except OSError:  # no /proc: what the interpreter was given is the same
        return sys.orig_argv


def _argv_with_token() -> list[str] | None:
    """Our command line with the token directly after the script or module."""
    # Whatever options the interpreter took: it hands everything behind the script to sys.argv.
    ours = sys.argv[1:]
    start = len(sys.orig_argv) - len(ours)
    if not sys.executable or start < 2 or sys.orig_argv[start:] != ours:
        return None
    # argv[0] is replaced by the full path: python finds its virtual environment through it.
    return [sys.executable, *sys.orig_argv[1:start], *HOST_TOKEN, *ours]


# --- how it is parted: for start-up, and for calls that stand in a transcript ---


# Global options that are followed by a value.
_VALUED = ("--root", "--config", "--host")


def split_command(argv: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Part a command line into global options, the command's name and its own arguments."""
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _VALUED else 1
    name = argv[position] if position < len(argv) else None
    return argv[:position], name, argv[position + 1 :]
