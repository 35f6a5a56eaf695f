"""Who does steps 2-6 of a commit: this thread, or a helper process that waits for no GIL."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

import bsd
from bsd.foundation.errors import os_problem
from bsd.foundation.files import Closing
from bsd.session.commit import exchange

if TYPE_CHECKING:
    from bsd.session.commit.exchange import Request, Result

Step = Callable[[str], None]

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from bsd.session.commit.helper import serve; serve()"
)
_HOME = str(Path(bsd.__file__).parents[1])


def no_step(step: str) -> None:
    """The hook of a commit that nobody watches."""


class ExchangerLost(Exception):
    """The helper died with a request in its hands; the record tells how far it came."""


class Exchanger(Protocol):
    """Does one exchange at a time, whichever thread asks."""

    def exchange(self, request: Request, after_step: Step) -> Result:
        """Do steps 2-6.

        Raises ExchangerLost if nobody knows how they ended, a BsdError if they never began.
        """
        ...


class DirectExchanger:
    """For one-shot commands: no other thread competes for the GIL."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def exchange(self, request: Request, after_step: Step) -> Result:
        with self._turn:
            return exchange.exchange(request, after_step)


class HelperExchanger(Closing):
    """For the daemon: a process of its own, started at the first request, again if it died.

    It ends when its stdin does, hence with this process, but never in the middle of a request.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The helper's process id while there is one."""
        return self._helper.pid if self._helper else None

    def start(self) -> None:
        """Start the helper now, so that the first commit need not wait for it."""
        with self._turn:
            self._running()

    def exchange(self, request: Request, after_step: Step) -> Result:
        asked: Request = {**request, "report_steps": after_step is not no_step}
        with self._turn:
            return self._ask(self._running(), asked, after_step)

    def close(self) -> None:
        """Let the helper finish and leave."""
        with self._turn:
            if self._helper is not None:
                self._bury(self._helper)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._helper is not None and self._helper.poll() is not None:
            self._bury(self._helper)
        if self._helper is None:
            self._helper = _start()
        return self._helper

    def _ask(self, helper: subprocess.Popen[bytes], request: Request, after_step: Step) -> Result:
        stdin, stdout = cast(IO[bytes], helper.stdin), cast(IO[bytes], helper.stdout)
        try:
            _send(stdin, json.dumps(request).encode())
            while (answer := stdout.readline()).endswith(b"\n"):
                message = json.loads(answer)
                if "result" in message:
                    return cast("Result", message["result"])
                after_step(message["step"])
                _send(stdin, b"go")
        except BrokenPipeError:
            pass  # said below, as for an answer that never came
        except BaseException:  # the hook or a signal ended us in the middle of a conversation
            self._bury(helper)
            raise
        self._bury(helper)
        raise ExchangerLost("the helper process died during an exchange")

    def _bury(self, helper: subprocess.Popen[bytes]) -> None:
        self._helper = None
        for stream in (helper.stdin, helper.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        helper.wait()


def _start() -> subprocess.Popen[bytes]:
    try:
        # -I -S: no environment, no site hooks, nothing but the standard library and this house.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _HOME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the terminal's signals are not for it
        )
    except OSError as error:
        raise os_problem(error, "starting the helper process") from error


def _send(stream: IO[bytes], line: bytes) -> None:
    stream.write(line + b"\n")
    stream.flush()
