"""Where log lines end: the file and stderr. Loaded when the first line is written."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import orjson

from bsd.foundation.atomic import write_all
from bsd.foundation.layout import inside, make_private_dir
from bsd.foundation.log_limit import LeftOut, Limit
from bsd.foundation.logs import LEVELS, is_journal
from bsd.foundation.plain import open_plain
from bsd.foundation.structured import structlog
from bsd.foundation.times import iso_utc

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

# The journal's priorities, as sd-daemon describes them.
_PRIORITIES = {"trace": 7, "debug": 7, "info": 6, "warn": 4, "error": 3}


class Output(Protocol):
    """One destination. `write` raises OSError when it is full, gone or forbidden."""

    threshold: int
    name: str

    def write(self, event: EventDict) -> None: ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class Outputs:
    """All destinations; whatever happens to one of them, the work goes on."""

    def __init__(self, outputs: Sequence[Output], limit: Limit | None = None) -> None:
        self._outputs = outputs
        self._limit = limit or Limit()
        self._lost = dict.fromkeys((output.name for output in outputs), 0)
        self._processors: list[Processor] = [
            _first_things_first,
            structlog.processors.format_exc_info,
            _as_argument,
        ]

    def write(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Send one line to every destination that wants its level. Raises nothing."""
        self._tell_left_out(self._limit.left_out())
        if self._limit.passes(level, str(fields.get("module")), event):
            self._send(level, event, fields)

    def msg(self, event: EventDict) -> None:
        """Take a finished event from structlog."""
        for output in self._outputs:
            if LEVELS[event["level"]] >= output.threshold:
                self._write_to(output, event)

    def reopen(self) -> None:
        for output in self._outputs:
            output.reopen()

    def close(self) -> None:
        self._tell_left_out(self._limit.left_out(all=True))
        for output in self._outputs:
            output.close()

    def _send(self, level: str, event: str, fields: dict[str, object]) -> None:
        _Event(self, self._processors, fields).send(level, event)

    def _tell_left_out(self, kinds: Sequence[LeftOut]) -> None:
        for kind in kinds:
            fields: dict[str, object] = {"module": kind.module, "like": kind.event}
            self._send(kind.level, "Lines were left out", {**fields, "count": kind.count})

    def _write_to(self, output: Output, event: EventDict) -> None:
        try:
            if lost := self._lost[output.name]:
                output.write(_back_again(output.name, lost))
                self._lost[output.name] = 0
            output.write(event)
        except Exception as problem:  # noqa: BLE001 - a line that cannot be written, for whatever
            # reason (disk full, an object whose repr fails), must not stop the surgery it tells of.
            self._lost[output.name] += 1
            if self._lost[output.name] == 1:
                _say_so(f"bsd: cannot write to {output.name}: {_why(problem)}; going on without it")


class FileOutput:
    """JSON lines in a file that may be rotated under us."""

    def __init__(self, path: Path, threshold: int) -> None:
        self.threshold = threshold
        self.name = str(path)
        self._path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._torn = False

    def write(self, event: EventDict) -> None:
        line = json_line(event)
        with self._lock:
            descriptor = self._current()
            if descriptor is None:
                return
            # After a failure half a line may stand there; it must not spoil this one as well.
            torn, self._torn = self._torn, True
            write_all(descriptor, b"\n" + line if torn else line)
            self._torn = False

    def reopen(self) -> None:
        with self._lock:
            self._close()

    close = reopen

    def _current(self) -> int | None:
        """A descriptor of the file that the path names now; None if there is no root to log in."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self._close()
        if self._descriptor is None:
            directory = self._path.parent
            if not directory.parent.is_dir():
                return None  # whoever named this root gets an error; no log creates it
            inside(directory, directory.parent)
            make_private_dir(directory)
            self._descriptor = open_plain(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return False
        here = os.fstat(descriptor)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class StderrOutput:
    """Lines for a person at a terminal, or for the service manager that reads our stderr."""

    name = "stderr"

    def __init__(self, threshold: int, fmt: str, environ: Mapping[str, str]) -> None:
        self.threshold = threshold
        self._prefixed = is_journal(environ)
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._console: structlog.dev.ConsoleRenderer | None = None
        if fmt == "console" or (fmt == "auto" and terminal):
            plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
            self._console = _console_renderer(colors=terminal and not plain)

    def write(self, event: EventDict) -> None:
        text = self._render(event)
        if self._prefixed:
            priority = f"<{_PRIORITIES[event['level']]}>"
            text = priority + text.replace("\n", "\n" + priority)
        _print(text + "\n")

    def reopen(self) -> None:
        """Nothing to do: stderr is looked up for every line."""

    def close(self) -> None:
        """Nothing to do: stderr is not ours."""

    def _render(self, event: EventDict) -> str:
        if not self._console:
            return json_line(event).decode()[:-1]
        # Texts from transcripts must not steer the terminal; tracebacks keep their lines.
        safe = {key: value if key == "exception" else _tame(value) for key, value in event.items()}
        return str(self._console(None, event["level"], safe))


def json_line(event: Mapping[str, object]) -> bytes:
    """One line of JSON, whatever the event holds."""
    try:
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(event, default=_plain, option=options)
    except TypeError:  # lone surrogates and huge integers, which the slower one can write
        return json.dumps(event, default=_plain, skipkeys=True).encode() + b"\n"


class _Event(structlog.BoundLoggerBase):
    """One event on its way through the processors."""

    def send(self, level: str, event: str) -> None:
        # Fields come as context, not as keywords: so a field may have any name.
        self._proxy_to_logger("msg", event, level=level)


def _first_things_first(_: object, __: str, event: EventDict) -> EventDict:
    head = {
        "time": iso_utc(time.time()),
        "level": event["level"],
        "module": event.get("module"),
        "event": event["event"],
    }
    return {**head, **event, **head}


def _as_argument(_: object, __: str, event: EventDict) -> tuple[tuple[EventDict], EventDict]:
    return (event,), {}


def _back_again(name: str, lost: int) -> EventDict:
    return {
        "time": iso_utc(time.time()),
        "level": "warn",
        "module": "log",
        "event": f"{name} can be written again",
        "lines_lost": lost,
    }


def _console_renderer(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
    return structlog.dev.ConsoleRenderer(
        colors=colors,
        pad_event_to=0,
        timestamp_key="time",
        level_styles={level: styles.get(level, styles["debug"]) for level in LEVELS},
        exception_formatter=structlog.dev.plain_traceback,
        sort_keys=False,
    )


def _tame(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        return ascii(value)[1:-1]
    return value


def _plain(value: object) -> object:
    """Say in JSON's words what JSON cannot say."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)


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
