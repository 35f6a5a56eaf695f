"""The entry point of `bsd`, and the sign by which OpenClaw's gateway recognises it.

Since its release 2026.5.18, the gateway removes the session lock of a running process whose command
line does not look like OpenClaw's. A command that takes such a lock therefore runs as `bsd --host
openclaw extract …`.
"""

from __future__ import annotations

import os
import signal
import sys

from bsd.cli.commands import takes_lock

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)

HOST_TOKEN = ("--host", "openclaw")
_TRIED = "BSD_HOST_TOKEN"  # holds the pid of the process that has executed itself again


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_missing_streams()
    try:
        if takes_lock(sys.argv[1:]):
            ensure_host_token()
        from bsd.cli.main import run  # only now: `ensure_host_token` may execute bsd again

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were imported
        code = 128 + signal.SIGINT
    if code - 128 in _SIGNALS:  # a shell ends its script only if a signal ended this process
        signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)
    return code


def _open_missing_streams() -> None:
    """Open /dev/null for standard streams that the caller closed (`>&-`).

    Otherwise a session file could get the descriptor of such a stream, and output would go to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def names_openclaw(argv: list[str] | tuple[str, ...]) -> bool:
    """Return True if the gateway counts a process with this command line as one of OpenClaw's."""
    return any(argument == "openclaw" or argument.endswith("/openclaw") for argument in argv)


def ensure_host_token() -> bool:
    """Execute this program again with `--host openclaw`, unless its command line has it.

    `sys.argv` must still be unchanged. The new program has the same interpreter, options, script,
    arguments, environment, directory, descriptors and pid.

    Returns:
        True if the command line has the token. False if it could not be added; newer gateways then
            do not respect bsd's lock.
    """
    # An exec keeps the pid. A child has another pid, and must try by itself.
    tried = os.environ.pop(_TRIED, None) == str(os.getpid())
    if names_openclaw(_command_line()):
        return True
    argv = _argv_with_token()
    if tried or argv is None:
        return False
    os.environ[_TRIED] = str(os.getpid())
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        os.execv(sys.executable, argv)  # noqa: S606 - this program
    except OSError:  # the interpreter was replaced or removed while it ran
        del os.environ[_TRIED]
        return False


def _command_line() -> list[str]:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return os.fsdecode(file.read()).rstrip("\0").split("\0")
    except OSError:  # no /proc: the arguments of the interpreter are the same
        return sys.orig_argv


def _argv_with_token() -> list[str] | None:
    """Return bsd's command line with the token directly after the script or module.

    None if the command line cannot be determined.
    """
    # With the interpreter's options: only arguments after the script are in sys.argv.
    ours = sys.argv[1:]
    start = len(sys.orig_argv) - len(ours)
    if not sys.executable or start < 2 or sys.orig_argv[start:] != ours:
        return None
    # argv[0] is replaced by the full path: python finds its virtual environment through it.
    return [sys.executable, *sys.orig_argv[1:start], *HOST_TOKEN, *ours]


if __name__ == "__main__":
    sys.exit(main())
