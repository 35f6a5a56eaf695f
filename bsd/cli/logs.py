"""`bsd logs`: the end of the log, and new lines as they are written."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

from bsd.cli.call import BsdCommand, Call
from bsd.cli.completion import SESSION
from bsd.cli.output import note, safe, styled
from bsd.core.errors import os_problem
from bsd.core.files import Closing, plain_stream
from bsd.core.layout import SessionName
from bsd.core.logs import LEVELS

_POLL_SECONDS = 0.5
_MOST_READ = 64 << 20  # bytes
_STYLES = {"error": "1;31", "warn": "33", "info": "32", "debug": "2", "trace": "2"}


@click.command("logs", cls=BsdCommand)
@click.option("-f", "--follow", is_flag=True, help="Print new lines, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    metavar="N",
    help="Begin with the last N lines [50].",
)
@click.option(
    "--level",
    type=click.Choice(["trace", "debug", "info", "warn", "error"]),
    default="trace",
    metavar="LEVEL",
    help="Only lines of this level and above.",
)
@click.option("--session", type=SESSION, metavar="A/S", help="Only lines about this session.")
@click.pass_obj
def logs(call: Call, follow: bool, lines: int, level: str, session: SessionName | None) -> None:
    """Show the log, and follow it.

    Shows the end of <root>/logs/brainsurgeon.log. With --json, the lines are printed as in the
    file.

    \b
    Examples:
      bsd logs -f
      bsd logs --level warn
      bsd logs -n 500 --session main/4f2a… --json | jq .event
    """
    wanted = LineFilter(level, str(session) if session else None)
    file = LogReader(call.layout.refuse_outside(call.layout.log_file))
    with file:
        if not file.is_there():
            note(f"nothing has been logged yet: {file.path}")
        for line in file.last(lines, wanted):
            _print(line, as_json=call.json)
        sys.stdout.flush()
        if follow:
            for line in file.follow(wanted):
                _print(line, as_json=call.json)
                sys.stdout.flush()


def _print(line: bytes, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_line(line) + "\n")
        return
    moment, level, rest = console_line(line)
    shown = styled(f"{level:<5}", _STYLES.get(level, ""), sys.stdout)
    sys.stdout.write(f"{moment} {shown} {rest}\n")


class LogReader(Closing):
    """Reads a log file that another process writes. The file is opened at the first use.

    Args:
        sleep: waits between two reads of `follow`; `time.sleep` unless a test passes its own.
    """

    def __init__(self, path: Path, *, sleep: Callable[[float], None] | None = None) -> None:
        self.path = path
        self._sleep = sleep or time.sleep
        self._file: IO[bytes] | None = None
        self._begun = b""  # the beginning of a line whose end is not written yet

    def last(self, count: int, wanted: LineFilter) -> list[bytes]:
        """Return the last `count` wanted lines; `follow` continues after them.

        If the file is larger than 64 MB, only its end is read.
        """
        if self.is_there():
            assert self._file is not None  # noqa: S101 - it was opened
            start = os.fstat(self._file.fileno()).st_size - _MOST_READ
            if start > 0:
                self._file.seek(start)
                self._file.readline()  # the rest of a line
        return list(deque(filter(wanted.wants, self._new()), maxlen=count))

    def follow(self, wanted: LineFilter) -> Iterator[bytes]:
        """Yield wanted lines as they are written, without end. Reads twice a second."""
        while True:
            yield from filter(wanted.wants, self._new())
            self._sleep(_POLL_SECONDS)

    def is_there(self) -> bool:
        """Open the file if it is not open yet; returns False if it does not exist."""
        if self._file is None:
            try:
                self._file = plain_stream(self.path)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise os_problem(error, f"reading {self.path}") from error
        return True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _new(self) -> Iterator[bytes]:
        """Yield the new lines: the rest of the open file, then those of its successor."""
        if not self.is_there():
            return
        # Checked before reading: lines that the old file gets after this are not shown.
        replaced = self._is_replaced()
        yield from self._rest()
        if replaced:
            if self._begun:
                yield self._begun
                self._begun = b""
            self.close()
            if self.is_there():
                yield from self._rest()

    def _rest(self) -> Iterator[bytes]:
        assert self._file is not None  # noqa: S101 - it was opened
        if os.fstat(self._file.fileno()).st_size < self._file.tell():  # it was truncated
            self._file.seek(0)
            self._begun = b""
        for piece in self._file:
            self._begun += piece
            if piece.endswith(b"\n"):
                yield self._begun[:-1]
                self._begun = b""

    def _is_replaced(self) -> bool:
        """Return True if the path names another file now; during a rotation it may name no file."""
        assert self._file is not None  # noqa: S101 - it was opened
        here = os.fstat(self._file.fileno())
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)


_HEAD = ("time", "level", "module", "event")
_OWN_LINES = ("exception", "stacks", "traceback")  # texts of many lines


class LineFilter(NamedTuple):
    """Selects lines of at least `level`, about `session` (`agent/session`; None: any subject)."""

    level: str = "trace"
    session: str | None = None

    def wants(self, line: bytes) -> bool:
        """Return True for a line to show. A line that is not JSON has neither level nor session."""
        if not line:
            return False
        if self.level == "trace" and self.session is None:
            return True
        # Most lines are unwanted, and parsing is expensive.
        if self.session is not None and self.session.encode() not in line:
            return False
        fields = _parse(line)
        if fields is None:
            return False
        level = LEVELS.get(str(fields.get("level")), LEVELS["error"])
        if level < LEVELS[self.level]:
            return False
        return self.session is None or fields.get("session") == self.session


def console_line(line: bytes) -> tuple[str, str, str]:
    """Return the local time of a line, its level, and its event with `key=value`, all escaped."""
    fields = _parse(line)
    if fields is None:
        return "-" * 19, "?", safe(line.decode(errors="backslashreplace"))
    parts = [safe(str(fields.get("event", "")))]
    parts += [f"{safe(name)}={_value(fields[name])}" for name in fields if _is_short(name)]
    if fields.get("module"):
        parts.append(f"[{safe(str(fields['module']))}]")
    texts = [safe(str(fields[name]), lines=True) for name in _OWN_LINES if fields.get(name)]
    rest = " ".join(parts)
    for text in texts:
        rest += "\n    " + text.rstrip("\n").replace("\n", "\n    ")
    return _local(str(fields.get("time", ""))), safe(str(fields.get("level", "?"))), rest


def json_line(line: bytes) -> str:
    """Return a line as it is in the file, with characters escaped that could control a terminal."""
    text = line.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _is_short(name: str) -> bool:
    return name not in _HEAD and name not in _OWN_LINES


def _value(value: object) -> str:
    if isinstance(value, str):
        plain = value and value.isprintable() and not any(c in value for c in " =\"'")
        return value if plain else json.dumps(value)
    return safe(json.dumps(value))


def _local(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return safe(moment)
