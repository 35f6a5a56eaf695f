"""The helper process: does exchanges for a process whose threads would make them wait.

It answers one request per line of JSON on stdin with one result per line on stdout, and leaves
when stdin ends, but never in the middle of a request. `exchangers.py` starts it.
"""

from __future__ import annotations

import json
import signal
import sys

from bsd.session.commit.exchange import exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bsd.session.commit.exchange import Request


def serve() -> None:
    """Answer requests until stdin ends; signals for the parent's terminal are not ours."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    while line := sys.stdin.buffer.readline():
        request: Request = json.loads(line)
        try:
            _say({"result": exchange(request, _ask if request["report_steps"] else _go_on)})
        except BrokenPipeError:  # the parent is gone; the work is done
            return


def _say(message: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def _ask(step: str) -> None:
    try:
        _say({"step": step})
    except BrokenPipeError:  # the parent is gone: finish what was begun
        return
    sys.stdin.buffer.readline()


def _go_on(step: str) -> None:
    pass
