"""A surgeon who keeps a book, and agents that keep him busy, on a clock that a test drives."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bsd.foundation.errors import NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.session.operate import Worth
from bsd.surgery.plan import Plan, Report
from bsd.surgery.result import SessionResult, Status
from bsd.text.change import Edit, Identity
from tests.daemon.fast_forward import Clock, Machine

QUIET = 2.0  # seconds
RECENT = 3  # lines that stay
PROTECTED = 600.0  # seconds for which a restored line stays
BALLAST = 200 << 20  # bytes that a huge session has besides its lines
_LINE = 200  # bytes that leave with a line
_CLOSE = 1e-3  # floating seconds and a file's nanoseconds differ by less


class Wait(NamedTuple):
    """From when a session was ready to be worked on until it was (epoch seconds)."""

    name: SessionName
    since: float
    until: float


class Surgeon:
    """Takes lines out of sessions whose lines are `number state …`; writes down all he does."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.layout = layout
        self.clock = clock
        self.huge: set[SessionName] = set()
        self.broken: set[SessionName] = set()
        self.busy: set[SessionName] = set()
        self.calls: Counter[SessionName] = Counter()
        self.commits: Counter[SessionName] = Counter()
        self.taken: Counter[tuple[SessionName, int]] = Counter()
        self.written_at: dict[SessionName, float] = {}
        self.protected: dict[tuple[SessionName, int], float] = {}  # until when
        self.waits: list[Wait] = []
        self.stored: dict[Path, float] = {}  # file → its mtime

    def path(self, name: SessionName) -> Path:
        return self.layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"

    @property
    def operator(self) -> Surgeon:
        """Whoever recovers."""
        return self

    def recover(self) -> list[Any]:
        return []

    def extract(
        self,
        name: SessionName,
        *,
        dry_run: bool = False,
        overrides: Mapping[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
        worth: Worth | None = None,
    ) -> SessionResult:
        self.calls[name] += 1
        path, now = self.path(name), self.clock.wall
        try:
            before = Identity.of(path.stat())
        except FileNotFoundError:
            raise NotFound(f"{name} is gone") from None
        if name in self.broken:
            return SessionResult(str(name), Status.FAILED, reason="no luck")
        if name in self.busy or now - before.mtime_ns / 1e9 < QUIET - _CLOSE:
            return SessionResult(str(name), Status.BUSY)
        lines, taken = path.read_bytes().splitlines(keepends=True), []
        due: float | None = None
        for number, line in enumerate(lines[:-RECENT]):
            end = self.protected.get((name, number), 0.0)
            if end > now + _CLOSE:
                due = min(end, due or end)
            elif not line.endswith(b" out\n"):
                taken.append(number)
        plan = self._plan(name, before, taken)
        assert worth is not None
        if taken and not worth(plan):
            return SessionResult(
                str(name), Status.UNCHANGED, left_as=before, postponed=True, due_at=due
            )
        if taken:
            self._commit(name, lines, taken)
        return SessionResult(
            str(name),
            Status.EXTRACTED if taken else Status.UNCHANGED,
            values=len(taken),
            left_as=Identity.of(path.stat()),
            due_at=due,
        )

    def _plan(self, name: SessionName, before: Identity, taken: list[int]) -> Plan:
        size = before.size + BALLAST * (name in self.huge)
        report = Report("extract", len(taken), len(taken), size, size - _LINE * len(taken))
        # What was restored says so in its new line, as a real one does.
        edits = tuple(
            Edit(n, 0, b'{"_restored":""}' if (name, n) in self.protected else b"{}") for n in taken
        )
        return Plan(before, edits, report)

    def _commit(self, name: SessionName, lines: list[bytes], taken: list[int]) -> None:
        store, now = self.layout.store_dir(name), self.clock.wall
        store.mkdir(parents=True, exist_ok=True)
        since = self.written_at.pop(name, now)
        for number in taken:
            since = min(since, self.protected.pop((name, number), since))
            lines[number] = b"%06d out\n" % number
            self.taken[name, number] += 1
            file = store / f"{number:04}_tool_result.json"
            file.write_bytes(b"{}")
            os.utime(file, (now, now))
            self.stored[file] = file.stat().st_mtime
        self.commits[name] += 1
        self.waits.append(Wait(name, since, now))
        path = self.path(name)
        new = path.with_suffix(".new")
        new.write_bytes(b"".join(lines))
        os.replace(new, path)
        os.utime(path, (now, now))


class Agents:
    """Write into sessions, line by line; one event in ten is lost on its way to the daemon."""

    def __init__(self, surgeon: Surgeon, clock: Clock, chance: random.Random) -> None:
        self.machine: Machine | None = None  # the daemon, while it is up
        self.written: Counter[SessionName] = Counter()
        self.restored: Counter[tuple[SessionName, int]] = Counter()
        self.lost_events = 0
        self.turns = 0
        self._surgeon = surgeon
        self._clock = clock
        self._chance = chance

    def create(self, name: SessionName) -> None:
        path = self._surgeon.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._wrote(name)

    def append(self, name: SessionName) -> None:
        """Write a line; raises FileNotFoundError."""
        with self._surgeon.path(name).open("r+b") as file:  # never creates it
            file.seek(0, os.SEEK_END)
            file.write(b"%06d raw %b\n" % (self.written[name], b"x" * _LINE))
        self.written[name] += 1
        self._wrote(name)

    def turn(self, name: SessionName, begin: float) -> Iterator[tuple[float, SessionName]]:
        """When the lines of a turn are written; the pauses may be longer than the quiet time."""
        self.turns += 1
        for _ in range(self._chance.randrange(3, 9)):
            yield begin, name
            begin += self._chance.choice((0.05, 0.3, 1.0, 4.0))

    def restore(self, name: SessionName) -> None:
        """Somebody restores the first line that is out, if there is one."""
        path = self._surgeon.path(name)
        lines = path.read_bytes().splitlines(keepends=True)
        number = next((n for n, line in enumerate(lines) if line.endswith(b" out\n")), None)
        if number is None:
            return
        lines[number] = b"%06d back %b\n" % (number, b"x" * _LINE)
        path.write_bytes(b"".join(lines))
        self.restored[name, number] += 1
        self._surgeon.protected[name, number] = self._clock.wall + PROTECTED
        self._wrote(name, again=False)

    def delete(self, name: SessionName) -> None:
        self._surgeon.path(name).unlink()
        self._tell(name)

    def _wrote(self, name: SessionName, *, again: bool = True) -> None:
        now = self._clock.wall
        os.utime(self._surgeon.path(name), (now, now))
        if again or name in self._surgeon.written_at:
            self._surgeon.written_at[name] = now
        self._tell(name)

    def _tell(self, name: SessionName) -> None:
        if self.machine is None:
            return
        if self._chance.random() < 0.1:
            self.lost_events += 1
        else:
            self.machine.hint(name)
