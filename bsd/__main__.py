"""Where `bsd` starts: the first help page costs no imports, the rest comes in when needed."""

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
            from bsd.doors.cli.main import run

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
    from bsd.doors.cli.commands import print_help, takes_lock

    if argv in ([], ["--help"], ["-h"]) and "_BSD_COMPLETE" not in os.environ:
        return print_help()
    if "status" in argv and "_BSD_COMPLETE" not in os.environ:
        from bsd.doors.cli.status import quick_status

        if (code := quick_status(argv)) is not None:
            return code
    if takes_lock(argv):
        from bsd.command_line import ensure_host_token

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


if __name__ == "__main__":
    sys.exit(main())
