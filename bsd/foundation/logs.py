"""The log: five levels, JSON lines in `<root>/logs/brainsurgeon.log`, stderr for those who watch.

`get_logger` is for every module and costs nothing to import: structlog is loaded when the first
line is written. Nothing is written before `configure_logs`, and nothing ever goes to stdout.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bsd.foundation.layout import Layout

if TYPE_CHECKING:
    from bsd.foundation.log_outputs import Outputs

LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40}
FORMATS = ("auto", "json", "console")
_TRACE, _DEBUG, _INFO, _WARN, _ERROR = LEVELS.values()
_NOTHING = 100


class _State:
    """What `configure_logs` decided, for all loggers at once."""

    threshold = _NOTHING
    writer: _WhenNeeded | None = None


class Log:
    """A module's log; a line below the threshold costs one comparison.

    `event` is the text for people; `fields` are data, `exc_info=True` adds the traceback.
    """

    __slots__ = ("_context",)

    def __init__(self, context: dict[str, object]) -> None:
        self._context = context

    def bind(self, **fields: object) -> Log:
        """Return a log that adds `fields` to every line."""
        return Log({**self._context, **fields})

    def is_enabled(self, level: str) -> bool:
        """Whether a line of this level is written: for fields that are dear to compute."""
        return _State.threshold <= LEVELS[level]

    def trace(self, event: str, /, **fields: object) -> None:
        if _State.threshold <= _TRACE:
            self._write("trace", event, fields)

    def debug(self, event: str, /, **fields: object) -> None:
        if _State.threshold <= _DEBUG:
            self._write("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        if _State.threshold <= _INFO:
            self._write("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        if _State.threshold <= _WARN:
            self._write("warn", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        if _State.threshold <= _ERROR:
            self._write("error", event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log at error level with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if writer := _State.writer:
            writer.write(level, event, {**self._context, **fields})


def get_logger(module: str) -> Log:
    """Return the log of `module`, which every line names."""
    return Log({"module": module})


def configure_logs(
    layout: Layout | None,
    level: str = "info",
    fmt: str = "auto",
    *,
    stderr_level: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Decide where lines go from now on; may be called again.

    Without a `layout` there is no file. stderr gets lines only if it is a terminal or a service
    manager reads it, from `stderr_level` on (default: `level`).
    """
    # Only here, because it imports logging, which `bsd --help` has no use for.
    from bsd.foundation.log_bridge import listen  # noqa: PLC0415

    close_logs()
    file_threshold = LEVELS[level] if layout else _NOTHING
    on_stderr = terminal_or_service(environ)
    stderr_threshold = LEVELS[stderr_level or level] if on_stderr else _NOTHING

    def build() -> Outputs:
        # Only now, because it imports structlog: a tenth of a second.
        from bsd.foundation.log_outputs import (  # noqa: PLC0415
            FileOutput,
            Output,
            Outputs,
            StderrOutput,
        )

        outputs: list[Output] = []
        if layout:
            outputs.append(FileOutput(layout.log_file, file_threshold))
        if on_stderr:
            outputs.append(StderrOutput(stderr_threshold, fmt, environ))
        return Outputs(outputs)

    _State.writer = _WhenNeeded(build)
    _State.threshold = min(file_threshold, stderr_threshold)
    listen(get_logger, everything=_State.threshold <= _TRACE)


def reopen_logs() -> None:
    """Open the file anew at the next line (SIGHUP after a rotation)."""
    if _State.writer:
        _State.writer.reopen()


def close_logs() -> None:
    """Stop logging."""
    writer, _State.writer, _State.threshold = _State.writer, None, _NOTHING
    if writer:
        from bsd.foundation.log_bridge import stop_listening  # noqa: PLC0415

        stop_listening()
        writer.close()


def terminal_or_service(environ: Mapping[str, str]) -> bool:
    """Whether somebody who expects log lines reads our stderr."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    return is_journal(environ) or _is_service(environ)


def is_journal(environ: Mapping[str, str]) -> bool:
    """Whether stderr is the journal's own stream, as systemd describes the test."""
    stream = environ.get("JOURNAL_STREAM")
    if not stream:
        return False
    try:
        status = os.fstat(2)
    except OSError:  # no descriptor 2 at all
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


def _is_service(environ: Mapping[str, str]) -> bool:
    """Whether a service manager started this very process and sends its stderr somewhere else.

    INVOCATION_ID alone proves nothing: every shell of a desktop session inherits one.
    """
    if environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
        return True
    return environ.get("XPC_SERVICE_NAME", "0") not in {"", "0"} and os.getppid() == 1


class _WhenNeeded:
    """Outputs that are built, and structlog with them, when the first line comes."""

    def __init__(self, build: Callable[[], Outputs]) -> None:
        self._build = build
        self._outputs: Outputs | None = None
        self._lock = threading.Lock()

    def write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if (outputs := self._outputs) is None:
            with self._lock:
                outputs = self._outputs = self._outputs or self._build()
        outputs.write(level, event, fields)

    def reopen(self) -> None:
        if self._outputs:
            self._outputs.reopen()

    def close(self) -> None:
        if self._outputs:
            self._outputs.close()
