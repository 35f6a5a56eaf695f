"""`bsd logs`: what the log says, and what is added to it."""

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
from bsd.core.files import LARGEST_RECORD, Closing, plain_file
from bsd.core.layout import SessionName
from bsd.core.logs import LEVELS

_STYLES = {"error": "1;31", "warn": "33", "info": "32", "debug": "2", "trace": "2"}


@click.command("logs", cls=BsdCommand)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
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
    """Show the log, and go on showing what is added.

    Shows the end of <root>/logs/brainsurgeon.log. With --json the lines are as they stand there.

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
    shown = console_line(line)
    head = f"{shown.time} {styled(f'{shown.level:<5}', _STYLES.get(shown.level, ''), sys.stdout)}"
    sys.stdout.write(f"{head} {shown.rest}\n")


_BLOCK = 1 << 16  # bytes
_POLL_SECONDS = 0.5


class LogReader(Closing):
    """Lines of a file that others write. Opens it at the first question."""

    def __init__(self, path: Path, *, sleep: Callable[[float], None] | None = None) -> None:
        self.path = path
        self._sleep = sleep or time.sleep
        self._file: IO[bytes] | None = None
        self._begun = b""  # of a line whose end is still to come

    def is_there(self) -> bool:
        return self._open()

    def last(self, count: int, wanted: LineFilter) -> list[bytes]:
        """The last `count` wanted lines; `follow` goes on after them."""
        found: deque[bytes] = deque()
        if not self._open() or self._file is None:
            return []
        end = self._file.seek(0, os.SEEK_END)
        complete = True
        for line in _backwards(self._file, end):
            if complete:  # what stands after the last newline: nothing, or half a line
                self._begun, complete = line, False
            elif len(found) == count:
                break
            elif line and wanted.wants(line):
                found.appendleft(line)
        self._file.seek(end)
        return list(found)

    def follow(self, wanted: LineFilter) -> Iterator[bytes]:
        """Wanted lines as they come; never ends by itself. Looks twice a second."""
        while True:
            for line in self._new():
                if line and wanted.wants(line):
                    yield line
            self._sleep(_POLL_SECONDS)

    def _new(self) -> Iterator[bytes]:
        """What has come since: the rest of the file that we know, then its successor."""
        if self._file is None and not self._open():
            return
        # First the look, then the reading: what an old file gets after this is no longer ours.
        replaced = self._is_replaced()
        yield from self._rest()
        if replaced:
            if self._begun:
                yield self._take_begun()
            self.close()
            if self._open():
                yield from self._rest()

    def _rest(self) -> Iterator[bytes]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # truncated: all that is there now is new
            self._begun = b""
        while block := self._file.read(_BLOCK):
            *lines, rest = (self._begun + block).split(b"\n")
            self._begun = rest
            yield from lines

    def _take_begun(self) -> bytes:
        line, self._begun = self._begun, b""
        return line

    def _is_replaced(self) -> bool:
        """Whether the name stands for another file now. Between two of them it stands for none."""
        if self._file is None:
            return False
        here = os.fstat(self._file.fileno())
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def _open(self) -> bool:
        if self._file is None:
            try:
                self._file = plain_file(self.path)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise os_problem(error, f"reading {self.path}") from error
        return True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _backwards(file: IO[bytes], end: int) -> Iterator[bytes]:
    """The parts between newlines before `end`, the last first."""
    pieces: list[bytes] = []  # of the part whose begin is still to come, the last piece first
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        block = file.read(end - start)
        end = start
        *lines, last = block.split(b"\n")
        pieces.append(last)
        if not lines and len(pieces) * _BLOCK > LARGEST_RECORD:
            return  # no line of ours is so long: what stands before it is not looked for
        while lines:
            yield b"".join(reversed(pieces))
            pieces = [lines.pop()]
    yield b"".join(reversed(pieces))


_HEAD = ("time", "level", "module", "event")
_OWN_LINES = ("exception", "stacks", "traceback")  # texts of many lines


class LineFilter(NamedTuple):
    """Lines of at least `level`, about `session` (`agent/session`; None: about anything)."""

    level: str = "trace"
    session: str | None = None

    def wants(self, line: bytes) -> bool:
        """Whether to show a line; one that is no JSON has no level and no session."""
        if self.level == "trace" and self.session is None:
            return True
        # Most lines are unwanted, and parsing is dear.
        if self.session is not None and self.session.encode() not in line:
            return False
        fields = _parse(line)
        if fields is None:
            return False
        level = LEVELS.get(str(fields.get("level")), LEVELS["error"])
        if level < LEVELS[self.level]:
            return False
        return self.session is None or fields.get("session") == self.session


class ShownLine(NamedTuple):
    """A line for people, in three parts."""

    time: str
    level: str
    rest: str


def console_line(line: bytes) -> ShownLine:
    """Turn a line into local time, level, event and `key=value`; nothing in it is dangerous."""
    fields = _parse(line)
    if fields is None:
        return ShownLine("-" * 19, "?", safe(line.decode(errors="backslashreplace")))
    parts = [safe(str(fields.get("event", "")))]
    parts += [f"{safe(name)}={_value(fields[name])}" for name in fields if _is_short(name)]
    if fields.get("module"):
        parts.append(f"[{safe(str(fields['module']))}]")
    texts = [safe(str(fields[name]), lines=True) for name in _OWN_LINES if fields.get(name)]
    rest = " ".join(parts)
    for text in texts:
        rest += "\n    " + text.rstrip("\n").replace("\n", "\n    ")
    return ShownLine(_local(str(fields.get("time", ""))), safe(str(fields.get("level", "?"))), rest)


def json_line(line: bytes) -> str:
    """A line as it stands in the file, but for characters that could command a terminal."""
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
