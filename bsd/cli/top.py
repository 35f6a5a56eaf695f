"""`bsd top`: the daemon and the sessions in use, on a terminal, until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bsd.cli.call import BsdCommand, Call
from bsd.cli.client import Client, NotRunning
from bsd.cli.output import counted, one_line, safe, size, table_lines
from bsd.cli.status_lines import (
    balance,
    queue_text,
    spell_when,
    unserved_lines,
    waiting_text,
    why_cut,
)
from bsd.cli.table_layout import wrap_line
from bsd.core.durations import spell_seconds
from bsd.core.errors import BsdError, Invalid, Unavailable
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.processes import cpu_seconds, memory_bytes
from bsd.maintenance import catalog
from bsd.transcripts.agents.programs import in_use

_RECENT_SECONDS = 120.0  # a session that was written to since then is in use
_MOST_LOOKED_AT = 30  # newest sessions, whose programs are asked whether they are open
_LOOKING_SHARE = 20  # the scan of all sessions may take one part in 20 of the time
_LEAST_PAUSE_SECONDS = 2.0
_MOST_CHANGES = 50
_OWN_SECONDS = 3.0  # between a write of bsd and the note of its result
_INDENT = 9  # columns before the text of a line of the head
_TITLES = ("IN USE", "LAST CHANGES")


@click.command("top", cls=BsdCommand)
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=1.0,
    metavar="SECONDS",
    help="The interval of updates [1].",
)
@click.pass_obj
def top_command(call: Call, /, every: float) -> None:
    """Watch the daemon at work: sessions in use, queue, last changes.

    Also shows the savings since the daemon's start, and its memory and CPU. q or Ctrl-C leaves.
    Exit code 3 if no daemon runs.

    \b
    Examples:
      bsd top
      bsd top --every 5
    """
    if call.json or not sys.stdout.isatty():
        hint = "`bsd status --json`, or `bsd status --watch`"
        raise Invalid("bsd top needs a terminal to draw on", hint=hint)
    client = Client(call.settings.socket)
    client.get("/api/health")  # raises NotRunning
    view = TopView(call.layout)
    console = Console(highlight=False, markup=False)
    with (
        _keys() as pressed,
        suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            view.look(client)
            width, height = console.size
            lines = view.lines(time.time(), width, height)
            live.update(_drawn(lines), refresh=True)
            if pressed(every):
                return


def _drawn(lines: Sequence[str]) -> Text:
    """Return the lines for rich, with titles in bold; markup in them has no effect."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, line in enumerate(lines):
        is_title = not number or line.startswith(_TITLES)
        text.append(f"\n{line}" if number else line, style="bold" if is_title else "")
    return text


@contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys while the block runs; yields a function that waits for a key to leave by."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        """Wait for `seconds`; returns True at once if a key to leave by is pressed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                typed = os.read(descriptor, 16)
                if not typed or typed[:1] in (b"q", b"Q") or typed == b"\x1b":
                    return True
        return False

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class SessionInUse:
    """A session that a program uses, or whose file was just written.

    Attributes:
        written: epoch seconds.
        why: the reason given by its program; None: its file was just written.
    """

    name: SessionName
    size: int
    written: float
    why: str | None

    @property
    def is_recent(self) -> bool:
        """True if only the time of its file shows that it is in use."""
        return self.why is None


@dataclass(slots=True)
class TopView:
    """The facts on the screen, and the lines that show them.

    Attributes:
        status: the document of `/api/status`; empty before the first look.
        problem: why the daemon does not answer.
    """

    layout: Layout
    status: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    sessions: tuple[SessionInUse, ...] = ()
    _looked_again: float = 0.0  # monotonic: when the sessions are scanned again
    _cpu: tuple[float, float] | None = None  # monotonic, seconds of a core
    _share: float | None = None  # of a core

    def look(self, client: Client) -> None:
        """Ask the daemon, and scan the sessions if that is due."""
        try:
            self.status, self.problem = client.get("/api/status"), None
        except (NotRunning, Unavailable) as problem:
            self.problem = f"{problem.message} (try: {problem.hint})"
        now = time.monotonic()
        if now >= self._looked_again:
            found = sessions_in_use(self.layout, time.time())
            self.sessions = tuple(each for each in found if not self._has_written(each))
            took = time.monotonic() - now
            self._looked_again = now + max(_LEAST_PAUSE_SECONDS, _LOOKING_SHARE * took)
        self._measure(time.monotonic())

    def _has_written(self, session: SessionInUse) -> bool:
        """Return True if the last write to a session was bsd's own, and no program has it open."""
        if not session.is_recent:
            return False
        for each in self.status.get("sessions", ()):
            if each["session"] == str(session.name):
                at = datetime.fromisoformat(each["at"]).timestamp()
                return bool(each["bytes_saved"]) and abs(at - session.written) < _OWN_SECONDS
        return False

    def _pids(self) -> list[int]:
        children = [child["pid"] for child in self.status.get("children", ())]
        return [self.status["pid"], *children] if self.status else []

    def _measure(self, now: float) -> None:
        used = sum(filter(None, map(cpu_seconds, self._pids())))
        if self._cpu is not None and now > self._cpu[0]:
            # The seconds of a child that has ended are missing in `used`.
            self._share = max(0.0, used - self._cpu[1]) / (now - self._cpu[0])
        self._cpu = now, used

    def lines(self, now: float, width: int, height: int) -> list[str]:
        """Return the lines of the screen; `now` is epoch seconds."""
        head = [part for line in self._head() for part in wrap_line(safe(line), width, _INDENT)]
        room = max(height - len(head) - 4, 4)
        in_use = self._table_in_use(now, width)[: max(room // 2, 3)]
        changes = self._table_of_changes(now, width)[: max(room - len(in_use), 3)]
        shown = [*head, "", *in_use, "", *changes]
        return [*shown[: height - 1], "q leaves"]

    def _head(self) -> Iterator[str]:
        status = self.status
        if self.problem is not None or not status:
            yield self.problem or ""
            return
        up = spell_seconds(status["uptime_seconds"])
        off = "" if status["enabled"] else "; extraction is switched off"
        yield f"bsd {status['version']} is {status['state']}, up {up}{off}: {status['root']}"
        yield f"daemon   {self._usage()}"
        yield f"queue    {queue_text(status['queue']) or 'empty'}"
        for worker in status["workers"]:
            if worker["session"]:
                yield f"         {worker['name']}: {worker['session']}"
        if waiting := waiting_text(status, time.time()):
            yield f"cache    {waiting}"
        totals = status["totals"]
        saved = f"{size(totals['bytes_saved'])}, about {totals['tokens_saved']:,} tokens"
        values = counted(totals["values"], "value")
        net = status["disk"]["net"]
        in_all = f"{size(net)} net in all" if net >= 0 else balance(net)
        yield f"saved    {saved} ({values}) since the start; {in_all}"
        for line in unserved_lines(status.get("unserved", ())):
            yield line.strip()
        if status["clock"]:
            yield f"! clock  {status['clock']}"

    def _usage(self) -> str:
        main, *children = self._pids()
        memory = memory_bytes(main)
        if memory is None:
            return f"process {main}; this system does not report its memory and CPU"
        cpu = "" if self._share is None else f", {100 * self._share:.0f} % of a core"
        text = f"process {main}: {size(memory)} of memory"
        if children:
            total = sum(filter(None, map(memory_bytes, children)))
            processes = "process" if len(children) == 1 else "processes"
            text += f", {size(total)} in {len(children)} child {processes}"
        return text + cpu

    def _table_in_use(self, now: float, width: int) -> list[str]:
        rows = [
            (
                str(each.name),
                size(each.size),
                spell_when(iso_utc(each.written), now),
                one_line(each.why or "written to just now", 60),
            )
            for each in self.sessions
        ]
        if not rows:
            return ["No session is in use."]
        title, lines = table_lines(
            ("IN USE", "SIZE", "WRITTEN", "BY"), rows, width, right=("SIZE",), last_may_shrink=True
        )
        return [*title, *lines]

    def _table_of_changes(self, now: float, width: int) -> list[str]:
        rows = [
            (
                str(each["session"]),
                spell_when(each["at"], now),
                str(each["status"]).replace("_", " "),
                size(each["bytes_saved"]) if each["bytes_saved"] > 0 else "",
                one_line(each["reason"] or why_cut(each), 80),
            )
            for each in self.status.get("sessions", ())[:_MOST_CHANGES]
            if each["status"] != "unchanged" or each["values"]
        ]
        if not rows:
            return ["No session has changed since the start of the daemon."]
        columns = ("LAST CHANGES", "WHEN", "", "SAVED", "WHY")
        title, lines = table_lines(columns, rows, width, right=("SAVED",), last_may_shrink=True)
        return [*title, *lines]


def sessions_in_use(layout: Layout, now: float) -> Iterator[SessionInUse]:
    """Yield the sessions in use, the last written first; every session's file is checked by stat.

    A session is in use if it was written within two minutes, or if it is among the newest and its
    program has it open.
    """
    with suppress(BsdError):  # a root without agents
        found = [(stat.st_mtime, name, stat.st_size) for name, stat in catalog.with_stats(layout)]
        found.sort(key=lambda each: -each[0])
        for number, (written, name, length) in enumerate(found):
            is_recent = now - written < _RECENT_SECONDS
            if not is_recent and number >= _MOST_LOOKED_AT:
                return
            why = None
            with suppress(BsdError):
                why = in_use(layout, name)
            if why is not None or is_recent:
                yield SessionInUse(name, length, written, why)
