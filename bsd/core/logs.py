"""The log: five levels, JSON lines in `<root>/logs/brainsurgeon.log`, stderr for those who watch.

Modules log through the standard library, as the libraries do that they use. Nothing is written
before `configure_logs`, and nothing ever goes to stdout. Lines for people are made in the way that
structlog describes for programs whose libraries use logging: ours and theirs go through the same
processors. Of lines that repeat for ever, so many are left out that they do not fill the disk. At
trace, functions and methods that are `traced` say that they begin (SP-09).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from bsd.core.files import ends_torn, make_private_dir, open_plain, write_all
from bsd.core.formatting import document, iso_utc
from bsd.core.layout import Layout, SessionName, inside

LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40}
# The journal's priorities, as sd-daemon describes them.
_PRIORITIES = {"trace": 7, "debug": 7, "info": 6, "warn": 4, "error": 3}
_NOTHING = 100
_OURS = "bsd."


_root = logging.getLogger()
_ours = logging.getLogger(_OURS[:-1])
_ours.setLevel(_NOTHING)
_outputs: list[logging.Handler] = []


class Log:
    """A module's log: of a line, `event` is the text for people, and `fields` are data.

    `exc_info=True` adds the traceback. A line below the threshold costs a look into a dictionary.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def is_enabled(self, level: str) -> bool:
        """Whether a line of this level is written: for fields that are dear to compute."""
        return self._logger.isEnabledFor(LEVELS[level])

    def trace(self, event: str, /, **fields: object) -> None:
        self._write(LEVELS["trace"], event, fields)

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log at error level with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, {"exc_info": True, **fields})

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            problem: Any = fields.pop("exc_info", None)
            self._logger.log(level, event, exc_info=problem, extra={"fields": fields})


def get_logger(module: str) -> Log:
    """Return the log of `module`, which every line names."""
    return Log(logging.getLogger(_OURS + module))


def configure_logs(
    layout: Layout | None,
    level: str = "info",
    fmt: str = "auto",
    *,
    stderr_level: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Decide where lines go from now on; may be called again, and opens the file anew then.

    Without a `layout` there is no file. stderr gets lines only if it is a terminal or a service
    manager reads it, from `stderr_level` on (default: `level`). Libraries are heard from warnings
    on, and at trace with all they say.
    """
    close_logs()
    if layout:
        _outputs.append(LogFile(layout.log_file, LEVELS[level]))
    if terminal_or_service(environ):
        _outputs.append(_Stderr(LEVELS[stderr_level or level], fmt, environ))
    threshold = min((output.level for output in _outputs), default=_NOTHING)
    if not _outputs:
        _outputs.append(logging.NullHandler())  # or logging writes to stderr what libraries say
    for output in _outputs:
        _root.addHandler(output)
    _root.setLevel(logging.DEBUG if threshold <= LEVELS["trace"] else logging.WARNING)
    _ours.setLevel(threshold)


def close_logs() -> None:
    """Stop logging, and leave the standard library's logging as it is by default."""
    _ours.setLevel(_NOTHING)
    _root.setLevel(logging.WARNING)
    while _outputs:
        output = _outputs.pop()
        _root.removeHandler(output)
        output.close()


def level_of(record: logging.LogRecord) -> str:
    """The name of a record's level, whatever number a library has given it."""
    names = (name for name, least in reversed(LEVELS.items()) if record.levelno >= least)
    return next(names, "trace")


def module_of(record: logging.LogRecord) -> str:
    """Which module says it: one of ours by its short name, a library's logger by all of its own."""
    return record.name.removeprefix(_OURS)


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


class Output(logging.Handler):
    """Where lines go. Whatever happens to it, the work goes on, and a flood does not fill it."""

    def __init__(
        self,
        where: str,
        threshold: int,
        form: Callable[[], logging.Formatter] | None = None,
        limit: Limit | None = None,
    ) -> None:
        super().__init__(threshold)
        self._where = where
        self._form = form or JsonForm
        self._limit = limit or Limit()
        self._lost = 0

    def put(self, line: str) -> None:
        """Write one line; raises OSError where it is full, gone or forbidden."""
        raise NotImplementedError

    def format(self, record: logging.LogRecord) -> str:
        if self.formatter is None:
            self.formatter = self._form()
        return self.formatter.format(record)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell_left_out()
            if self._limit.passes(level_of(record), module_of(record), _text(record)):
                self._write(record)
        except Exception as problem:  # noqa: BLE001 - a line that cannot be written, for whatever
            # reason (disk full, an object whose repr fails), must not stop the surgery it tells of.
            self._lost += 1
            if self._lost == 1:
                _say_so(f"bsd: cannot write to {self._where}: {_why(problem)}; going on without it")

    def close(self) -> None:
        """Tell what is owed, and let go."""
        with suppress(Exception):  # as in `emit`
            self._tell_left_out(all=True)
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        if self._lost:
            back = f"{self._where} can be written again"
            self.put(self.format(_record("warn", "log", back, lines_lost=self._lost)))
            self._lost = 0
        self.put(self.format(record))

    def _tell_left_out(self, *, all: bool = False) -> None:
        for kind in self._limit.left_out(all=all):
            fields = {"like": kind.event, "count": kind.count}
            self._write(_record(kind.level, kind.module, "Lines were left out", **fields))


class LogFile(Output):
    """JSON lines in a file that may be rotated under us."""

    def __init__(self, path: Path, threshold: int) -> None:
        super().__init__(str(path), threshold)
        self._path = path
        self._descriptor: int | None = None

    def put(self, line: str) -> None:
        descriptor = self._current()
        if descriptor is None:
            return
        # Half a line of whichever process must not spoil this one as well.
        begin = "\n" if ends_torn(descriptor) else ""
        write_all(descriptor, f"{begin}{line}\n".encode())

    def close(self) -> None:
        self.acquire()
        try:
            super().close()
            self._leave()
        finally:
            self.release()

    def _current(self) -> int | None:
        """A descriptor of the file that the path names now; None if there is no root to log in."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self._leave()
        if self._descriptor is None:
            directory = self._path.parent
            if not directory.parent.is_dir():
                return None  # whoever named this root gets an error; no log creates it
            inside(directory, directory.parent)
            make_private_dir(directory, durable=False)
            self._descriptor = open_plain(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return False
        here = os.fstat(descriptor)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def _leave(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Stderr(Output):
    """Lines for a person at a terminal, or for the service manager that reads our stderr."""

    def __init__(self, threshold: int, fmt: str, environ: Mapping[str, str]) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        console = fmt == "console" or (fmt == "auto" and terminal)
        plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        super().__init__(
            "stderr",
            threshold,
            partial(console_form, colors=terminal and not plain) if console else JsonForm,
        )
        self._prefixed = is_journal(environ)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._prefixed:
            return text
        priority = f"<{_PRIORITIES[level_of(record)]}>"
        return priority + text.replace("\n", "\n" + priority)

    def put(self, line: str) -> None:
        _print(line + "\n")


def _record(level: str, module: str, event: str, **fields: object) -> logging.LogRecord:
    """A line of the log's own."""
    attributes = {"levelno": LEVELS[level], "name": _OURS + module, "msg": event, "fields": fields}
    return logging.makeLogRecord(attributes)


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a library's malformed call: the text says it without them
        record.args = None
        return record.getMessage()


def _print(text: str) -> None:
    """Write to stderr as it is now: a progress bar may have put itself before it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
    except UnicodeEncodeError:
        sys.stderr.write(text.encode("ascii", "backslashreplace").decode())
    sys.stderr.flush()


def _why(problem: Exception) -> str:
    # Of an OSError the message would name the file a second time.
    return getattr(problem, "strerror", None) or str(problem)


def _say_so(text: str) -> None:
    # If stderr is gone too, nobody is left to tell; a closed stream raises ValueError.
    with suppress(OSError, ValueError):
        _print(text + "\n")


# --- what repeats ---

PERIOD_SECONDS = 60.0
MOST_ALIKE = 60  # lines in a period
_MOST_KINDS = 1000  # that are told apart; texts may hold names of all sorts
_LIMITED = ("warn", "error")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Lines that were not written; like them are those of this module with this text."""

    level: str
    module: str
    event: str
    count: int


@dataclass(slots=True)
class _Kind:
    level: str
    since: float
    written: int = 0
    left_out: int = 0


class Limit:
    """Counts warnings and errors that say the same; all other lines always pass.

    Whoever asks holds the lock of the output whose lines these are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._next_look = float("inf")  # when something that was left out is to be told

    def passes(self, level: str, module: str, event: str) -> bool:
        """Whether a line may be written. Of a text, the first line counts."""
        if level not in _LIMITED:
            return True
        now, key = self._clock(), (module, event.partition("\n")[0])
        kind = self._kinds.get(key)
        if kind is None or (now - kind.since >= PERIOD_SECONDS and not kind.left_out):
            self._make_room()
            kind = self._kinds[key] = _Kind(level, now)
        if kind.written < MOST_ALIKE:
            kind.written += 1
            return True
        kind.left_out += 1
        self._next_look = min(self._next_look, kind.since + PERIOD_SECONDS)
        return False

    def left_out(self, *, all: bool = False) -> list[LeftOut]:
        """What was left out in periods that are over (or `all`), and has not been told."""
        now = self._clock()
        if not all and now < self._next_look:
            return []
        over = {
            key: kind
            for key, kind in self._kinds.items()
            if kind.left_out and (all or now - kind.since >= PERIOD_SECONDS)
        }
        for key in over:
            del self._kinds[key]
        waiting = (kind.since for kind in self._kinds.values() if kind.left_out)
        self._next_look = min(waiting, default=float("inf")) + PERIOD_SECONDS
        return [LeftOut(kind.level, *key, kind.left_out) for key, kind in over.items()]

    def _make_room(self) -> None:
        """Forget the kind that was heard of first, if there are too many; what it owes stays."""
        if len(self._kinds) >= _MOST_KINDS:
            oldest = next((key for key, kind in self._kinds.items() if not kind.left_out), None)
            if oldest is not None:
                del self._kinds[oldest]


# --- what begins ---

_T = TypeVar("_T", bound=Callable[..., Any])


def traced(log: Log, *, but: tuple[str, ...] = ()) -> Callable[[_T], _T]:
    """Let a function, or all public methods of a class, say at trace that they begin.

    `but` names methods that are called all the time. Of the arguments, sessions, paths and numbers
    are told: what else there is may be somebody's text. Below trace this costs one comparison.
    """

    def decorate(what: _T) -> _T:
        if not isinstance(what, type):
            return cast("_T", _telling(log, cast("Callable[..., Any]", what)))
        for name, member in list(vars(what).items()):
            if isinstance(member, FunctionType) and not name.startswith("_") and name not in but:
                setattr(what, name, _telling(log, member))
        return what

    return decorate


def _telling(log: Log, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def told(*args: Any, **named: Any) -> Any:
        if log.is_enabled("trace"):
            about = ", ".join(filter(None, map(_told_of, (*args, *named.values()))))
            log.trace(": ".join(filter(None, [function.__qualname__, about])))
        return function(*args, **named)

    return told


def _told_of(value: object) -> str:
    """What may be told of an argument: empty, if that could be somebody's text."""
    if isinstance(value, SessionName | PathLike | int | float):
        return str(value)
    name = getattr(value, "name", None)
    return str(name) if isinstance(name, SessionName) else ""


# --- how lines look ---


class JsonForm(logging.Formatter):
    """One line of JSON for a record, whatever its fields hold."""

    def format(self, record: logging.LogRecord) -> str:
        line = members_of(record)
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        return document(line, _in_words).decode()


def members_of(record: logging.LogRecord) -> dict[str, object]:
    """What a record says, first things first; no field may take their places."""
    head = {
        "time": iso_utc(record.created),
        "level": level_of(record),
        "module": module_of(record),
        "event": record.getMessage(),
    }
    return {**head, **getattr(record, "fields", {}), **head}


def _in_words(value: object) -> object:
    """Say in JSON's words what JSON cannot say."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)


def console_form(*, colors: bool) -> logging.Formatter:
    """Lines for people; only a traceback takes more than one."""
    import structlog  # noqa: PLC0415 - it takes a tenth of a second, which JSON lines need not wait for

    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        timestamp_key="time",
        level_styles={level: styles.get(level, styles["debug"]) for level in LEVELS},
        exception_formatter=structlog.dev.plain_traceback,
        sort_keys=False,
    )
    return structlog.stdlib.ProcessorFormatter(
        processors=[_members, structlog.processors.format_exc_info, _tamed, renderer]
    )


def _members(_: object, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    line = members_of(event["_record"])
    return line | ({"exc_info": event["exc_info"]} if "exc_info" in event else {})


def _tamed(_: object, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Texts from transcripts must not steer the terminal; tracebacks keep their lines."""
    return {key: value if key == "exception" else _tame(value) for key, value in event.items()}


def _tame(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        return ascii(value)[1:-1]
    return value
