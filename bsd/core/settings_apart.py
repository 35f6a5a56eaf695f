"""The settings fixed at start, read by a process of its own.

What checks them (`settings_reader`) takes 10 MB of a process for as long as that lives, which is
too much for one that reads them once; and another core can do it while this one loads the rest.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bsd.core.errors import os_problem
from bsd.core.settings import Settings

# No site: it finds what its parent has found, where that found it.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from bsd.core.settings_apart import answer; answer()"
)


class SettingsReading:
    """The settings are being read: begun here, ended by `settings`, once.

    `config_file` is `--config`, `root` is `--root`. Raises Unavailable where no process can start.
    """

    def __init__(self, config_file: Path | None, root: Path | None) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # a terminal's Ctrl-C is for its parent
            )
        except OSError as error:
            raise os_problem(error, "starting a process that reads the settings") from error
        self._asked = pickle.dumps((config_file, root))
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(BrokenPipeError), self._process.stdin as asked:  # it begins at once
            asked.write(self._asked)

    def settings(self) -> Settings:
        """Wait for them; raises as `load_settings`."""
        assert self._process.stdout is not None  # noqa: S101 - as above
        with self._process.stdout as told:
            answer = told.read()
        if self._process.wait() != 0:  # somebody killed it: no reason not to start
            answer = _answer(self._asked)
        found = pickle.loads(answer)  # noqa: S301 - of our own process
        if isinstance(found, Settings):
            return found
        raise found


def answer() -> None:
    """Be that process: read what is asked for from stdin, write settings or error to stdout."""
    asked = sys.stdin.buffer.read()
    if asked:  # else nobody wants to know any more
        said = _answer(asked)
        with suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), said)


def _answer(asked: bytes) -> bytes:
    # Here alone: it is what this module keeps away from others.
    from bsd.core.settings_reader import load_settings  # noqa: PLC0415

    found: Settings | Exception
    try:
        found = load_settings(*pickle.loads(asked))  # noqa: S301 - of a process of ours
    except Exception as error:  # noqa: BLE001 - whoever waits for the answer raises it
        found = error
    try:
        return pickle.dumps(found)
    except Exception:  # noqa: BLE001 - not every library's errors can be sent
        return pickle.dumps(RuntimeError(repr(found)))
