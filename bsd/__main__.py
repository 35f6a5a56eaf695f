"""Where `bsd` starts: the first help page costs no imports, the rest comes in when needed.

Here is the word by which the gateway knows us, too: one since 2026.5.18 takes away the lock of a
living process whose argv does not look like OpenClaw's. So `bsd extract …` that will lock runs as
`bsd --host openclaw extract …`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

_INTERRUPTED, _PIPE_CLOSED, _TERMINATED = 130, 141, 143  # 128 + the signal's number


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    argv = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_missing_streams()
    try:
        code = _front(argv)
        if code is None:
            from bsd.cli.main import run

            code = run(argv)
    except KeyboardInterrupt:  # so early that nothing had begun
        code = _INTERRUPTED
    if code in {_INTERRUPTED, _PIPE_CLOSED, _TERMINATED}:
        _die_by(code - 128)
    # Nearly all that is there stays to the end: the interpreter's last look for what does not would
    # take a twentieth of a short command.
    gc.freeze()
    return code


def _front(argv: list[str]) -> int | None:
    """Do what needs no more than this; returns None if there is more to do."""
    from bsd.cli.commands import print_help, takes_lock

    if argv in ([], ["--help"], ["-h"]) and "_BSD_COMPLETE" not in os.environ:
        return print_help()
    if "status" in argv and "_BSD_COMPLETE" not in os.environ:
        from bsd.cli.status import quick_status

        if (code := quick_status(argv)) is not None:
            return code
    if takes_lock(argv):
        ensure_host_token()
    return None


def _open_missing_streams() -> None:
    """Whoever started us closed some (`>&-`): no file of ours must become what is printed to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _die_by(number: int) -> None:
    """End by the signal itself: only so a shell knows that its script shall end, too."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# --- how the gateway knows us ---


HOST_TOKEN = ("--host", "openclaw")
_AGAIN = "BSD_HOST_TOKEN"  # the pid that has re-executed itself already


def names_openclaw(argv: list[str] | tuple[str, ...]) -> bool:
    """Whether the gateway takes a process with this command line for one of OpenClaw's."""
    return any(argument == "openclaw" or argument.endswith("/openclaw") for argument in argv)


def ensure_host_token() -> bool:
    """Re-execute this program with `--host openclaw` unless its command line shows it already.

    Call it first thing, while `sys.argv` is as it was given. The new program is the same
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


if __name__ == "__main__":
    sys.exit(main())
