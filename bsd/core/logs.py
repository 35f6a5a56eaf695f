"""The log: structlog on top of the standard library's logging (SP-09).

A module that logs begins with `_log = structlog.stdlib.get_logger(module="worker")`, or, if it logs
at trace, with `_log: BoundLogger = structlog.get_logger(module="worker")`. Importing this module
configures structlog; every process of bsd imports it first. No line is written before
`configure_logs`, and no line ever goes to stdout. Lines of libraries use the same formatters.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import Processor

from bsd.core.files import make_private_dir, open_plain
from bsd.core.formatting import document, iso_utc
from bsd.core.layout import Layout, inside

LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40}
# The methods of a logger whose names differ from the names of levels.
_METHODS = {"warning": "warn", "exception": "error", "critical": "error"}
# The journal's priorities, as sd-daemon(3) lists them.
_PRIORITIES = {"trace": 7, "debug": 7, "info": 6, "warn": 4, "error": 3}
_OFF = 100

_root = logging.getLogger()
_bsd = logging.getLogger("bsd")
_bsd.setLevel(_OFF)
_handlers: list[logging.Handler] = []


class BoundLogger(structlog.stdlib.BoundLogger):
    """structlog's logger for the standard library, with the level trace."""

    def trace(self, event: str, **fields: Any) -> None:
        """Log at the level trace, at the beginning of an entry point."""
        with suppress(structlog.DropEvent):
            args, kwargs = self._process_event("trace", event, fields)
            self._logger.log(LEVELS["trace"], *args, **kwargs)


def level_of_method(method: str) -> str:
    """Return the level at which a logger's method writes."""
    return _METHODS.get(method, method)


def _drop_disabled(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
    """Drop a line below the threshold, like structlog's `filter_by_level`, which has no trace."""
    if not logger.isEnabledFor(LEVELS[level_of_method(method)]):
        raise structlog.DropEvent
    return event


if not structlog.is_configured():  # a program that uses bsd as a library may have configured it
    structlog.configure(
        processors=[
            _drop_disabled,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def configure_logs(
    layout: Layout | None,
    level: str = "info",
    fmt: str = "auto",
    *,
    stderr_level: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Configure the log file and stderr. A second call reopens the file.

    Libraries are logged from the level warning on; at trace, completely.

    Args:
        layout: The root whose log file is written; None: no file.
        level: The lowest level that is written.
        fmt: The format on stderr: `json`, `console`, or `auto` (`console` on a terminal).
        stderr_level: The lowest level on stderr, if it differs from `level`. stderr gets lines only
            if it is a terminal or is read by a service manager.
    """
    close_logs()
    if layout:
        _add(LogFile(layout.log_file), level, json_formatter())
    if terminal_or_service(environ):
        terminal = sys.stderr is not None and sys.stderr.isatty()
        colors = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        console = fmt == "console" or (fmt == "auto" and terminal)
        formatter = console_formatter(colors=colors) if console else json_formatter()
        _add(_Stderr(journal=is_journal(environ)), stderr_level or level, formatter)
    threshold = min((handler.level for handler in _handlers), default=_OFF)
    if not _handlers:  # without a handler, logging writes lines of libraries to stderr
        _add(logging.NullHandler(), "error", None)
    _root.setLevel(logging.DEBUG if threshold <= LEVELS["trace"] else logging.WARNING)
    _bsd.setLevel(threshold)


def _add(handler: logging.Handler, level: str, formatter: logging.Formatter | None) -> None:
    handler.setLevel(LEVELS[level])
    handler.setFormatter(formatter)
    _handlers.append(handler)
    _root.addHandler(handler)


def close_logs() -> None:
    """Stop logging, and restore the defaults of the standard library's logging."""
    _bsd.setLevel(_OFF)
    _root.setLevel(logging.WARNING)
    while _handlers:
        handler = _handlers.pop()
        _root.removeHandler(handler)
        with suppress(OSError):  # the disk may be full
            handler.close()


def terminal_or_service(environ: Mapping[str, str]) -> bool:
    """Return True if stderr is a terminal or is read by a service manager.

    INVOCATION_ID alone is not sufficient: every shell of a desktop session inherits it.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    if is_journal(environ) or environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
        return True
    return environ.get("XPC_SERVICE_NAME", "0") not in {"", "0"} and os.getppid() == 1  # launchd


def is_journal(environ: Mapping[str, str]) -> bool:
    """Return True if stderr is the journal's stream, by the test that systemd documents."""
    try:
        status = os.fstat(2)
    except OSError:  # descriptor 2 is closed
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Output(logging.Handler):
    """A handler that reports its first failure on stderr and never raises."""

    target = "stderr"
    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        """Report on stderr, once, that lines are lost."""
        if self._failed or sys.stderr is None:
            return
        self._failed = True
        error = sys.exc_info()[1]
        why = getattr(error, "strerror", None) or error
        with suppress(OSError, ValueError):  # ValueError: a closed stream
            sys.stderr.write(f"bsd: cannot write to {self.target}: {why}; continuing without it\n")
            sys.stderr.flush()


class LogFile(_Output, WatchedFileHandler):
    """A private log file, opened at the first line and reopened after a rotation."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace", delay=True)
        self.target = str(path)
        self._opened = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not (self._opened and os.path.lexists(self.baseFilename)):
                directory = Path(self.baseFilename).parent
                if not directory.parent.is_dir():
                    return  # a mistyped root is reported elsewhere; the log must not create it
                inside(directory, directory.parent)
                make_private_dir(directory, durable=False)
                os.close(open_plain(self.baseFilename, os.O_WRONLY | os.O_CREAT))
                self._opened = True
            super().emit(record)
        except Exception:  # noqa: BLE001 - a line that cannot be written stops no work
            self.handleError(record)

    def reopenIfNeeded(self) -> None:  # noqa: N802
        """Reopen the file if it was rotated; a new file is not readable by other users."""
        before = self.stream
        super().reopenIfNeeded()
        if self.stream is None or self.stream is before:
            return
        if os.fstat(self.stream.fileno()).st_mode & 0o007:
            os.fchmod(self.stream.fileno(), 0o600)


class _Stderr(_Output):
    """Writes to the current `sys.stderr`, which a progress bar may have replaced."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None:
            return
        try:
            text = self.format(record)
            if self._journal:
                priority = f"<{_PRIORITIES[_level_of(record)]}>"
                text = priority + text.replace("\n", "\n" + priority)
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as above
            self.handleError(record)


def json_formatter() -> logging.Formatter:
    """Format a line as a JSON object: time, level, module, event, then the fields."""
    return _formatter(structlog.processors.JSONRenderer(_dumps, default=str))


def console_formatter(*, colors: bool) -> logging.Formatter:
    """Format an event as a line for people; only a traceback takes more lines."""
    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        timestamp_key="time",
        level_styles={level: styles.get(level, styles["debug"]) for level in LEVELS},
        exception_formatter=structlog.dev.plain_traceback,
        sort_keys=False,
    )
    return _formatter(_escape, renderer)


def _formatter(*renderers: Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[_order, structlog.processors.format_exc_info, *renderers]
    )


def _order(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Put time, level, module and event first; fields cannot overwrite them."""
    record = event["_record"]
    head = {
        "time": iso_utc(record.created),
        "level": _level_of(record),
        "module": event.get("module", record.name),
        "event": event["event"],
    }
    fields = {key: event[key] for key in event if key not in ("_record", "_from_structlog")}
    return {**head, **fields, **head}


def _level_of(record: logging.LogRecord) -> str:
    """Return the name of a record's level; libraries may use numbers in between."""
    names = (name for name, least in reversed(LEVELS.items()) if record.levelno >= least)
    return next(names, "trace")


def _dumps(event: dict[str, Any], default: Any) -> str:
    return document(event, default).decode()


def _escape(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Escape control characters: text of a transcript must not control the terminal."""
    return {
        key: ascii(value)[1:-1]
        if isinstance(value, str) and key != "exception" and not value.isprintable()
        else value
        for key, value in event.items()
    }
