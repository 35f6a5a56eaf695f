"""`bsd demo`: a daemon and an agent on made-up sessions, before your eyes, every byte compared."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bsd.cli.call import Call, StopRequest, command, stop_request
from bsd.cli.demo_stage import Screen, ScreenRow, Stage
from bsd.cli.output import counted, one_line, print_json, say, share, size
from bsd.cli.status import status_lines
from bsd.core.layout import Layout, SessionName
from bsd.sample import session_lines

# Sessions that agents have left, by size, and the one on which the agent goes on, by turns.
_AT_REST = {"main/harbour": 4 << 20, "research/berths": 1 << 20}
_LIVE = "main/tides"
_TURNS_BEFORE = 3
_TURNS = 4  # that the agent writes while we look

_AT_REST_SECONDS = 3600.0
_LINE_SECONDS = 0.07
_TURN_SECONDS = 3.0  # more than bsd's quiet time
_PROTECTED_SECONDS = 6
_PATIENCE_SECONDS = 40.0  # for one thing to happen; a busy machine is slow
_LOOK_SECONDS = 0.1
_SHOWN = 160  # characters of a line

_PLACEHOLDER = b"[[extracted-"
_BEGINS_TURN = b'"message":{"role":"user"'
_RESTORED = re.compile(rb',"_restored":"[^"]*"')


@command(
    "demo",
    """
    Starts a daemon and an agent on sessions in a temporary directory, shows what they do, puts
    everything back and compares every byte. Takes about half a minute and touches nothing of
    yours. Exit code 1 if a single byte came back different.

    \b
    Example:
      bsd demo
    """,
)
@click.option("--keep", is_flag=True, help="Leave the temporary directory for a closer look.")
@click.pass_obj
def demo(call: Call, /, keep: bool) -> int:
    screen = Screen(quiet=call.json)
    with stop_request() as request, Stage(request, keep=keep) as stage:
        play = Play(stage, screen, request)
        play.run()
        request.check()
    if call.json:
        document = {"exact": screen.well, "checks": screen.checks, "root": str(stage.root)}
        print_json({**document, "seconds": round(screen.seconds, 1)})
    else:
        if keep:
            say(f"\nLeft for you: {stage.root}")
        _sum_up(screen, play)
    return 0 if screen.well else 1


def _sum_up(screen: Screen, play: Play) -> None:
    verdict = "Every byte came back." if screen.well else "NOT everything came back exactly."
    say()
    say(
        f"{size(play.written)} in {counted(len(play.sessions), 'session')} came down to"
        f" {size(play.smallest)}, while an agent was writing;"
        f" {screen.seconds:.0f} s, {counted(len(screen.checks), 'check')}."
    )
    say(verdict, style="1;32" if screen.well else "1;31")


@dataclass
class DemoSession:
    """A session file, what was written into it by its owner, and how it looked last."""

    name: str
    path: Path
    content: bytes  # all that its owner wrote so far, or will have written at the end
    turns: tuple[bytes, ...] = ()  # of `content`, those that the agent is to write
    state: tuple[int, int, int] = (0, 0, 0)
    size: int = 0
    lines: int = 0
    placeholders: int = 0

    def look(self) -> bool:
        """See how the file is now; whether it changed since we looked last."""
        found = self.path.stat()
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if state == self.state:
            return False
        data = self.path.read_bytes()
        self.state, self.size = state, len(data)
        self.lines, self.placeholders = data.count(b"\n"), data.count(_PLACEHOLDER)
        return True

    @property
    def written(self) -> int:
        """How many bytes its owner has written so far; bsd changes no number of lines."""
        return sum(map(len, self.content.splitlines(keepends=True)[: self.lines]))

    @property
    def is_exact(self) -> bool:
        """Whether it is what its owner wrote, to the byte."""
        return self.path.read_bytes() == self.content


class Play:
    """What happens, scene by scene."""

    def __init__(self, stage: Stage, screen: Screen, request: StopRequest) -> None:
        self._stage = stage
        self._screen = screen
        self._request = request
        self._turns_seen = 0
        self.sessions: list[DemoSession] = []
        self.smallest = 0

    @property
    def written(self) -> int:
        return sum(len(session.content) for session in self.sessions)

    def run(self) -> None:
        self._make()
        daemon = self._start_daemon()
        with self._screen.table():
            self._extract_backlog()
            agent = self._start_agent()
            self._restore_beside_it()
            self._follow(agent)
        self._ask_status()
        self._stop(daemon)
        self._restore_all()
        self._verify()

    # --- the scenes ---

    def _make(self) -> None:
        self._screen.title("Three sessions, as agents leave them")
        for number, (name, length) in enumerate(_AT_REST.items()):
            self._add(name, session_lines(size=length, seed=number))
        turns = _turns(session_lines(turns=_TURNS_BEFORE + _TURNS, seed=9))
        self._add(_LIVE, turns[:-_TURNS], turns[-_TURNS:])
        self._stage.configure(keep_after_restore_seconds=_PROTECTED_SECONDS)
        for session in self.sessions:
            self._screen.tell(f"{session.name:<18}{size(session.size):>10}")

    def _add(self, name: str, begin: Iterable[bytes], turns: Iterable[bytes] = ()) -> None:
        own = SessionName.parse(name)
        path = Layout(self._stage.root).agents / own.agent / "sessions" / f"{own.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        before, later = b"".join(begin), tuple(turns)
        path.write_bytes(before)
        then = time.time() - _AT_REST_SECONDS
        os.utime(path, (then, then))
        session = DemoSession(name, path, before + b"".join(later), later)
        session.look()
        self.sessions.append(session)

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        self._screen.title("bsd run: the daemon starts to watch them")
        if self._stage.extra_seconds:
            self._screen.tell(
                "(This file system proves little, so bsd waits for"
                f" {self._stage.extra_seconds:.0f} s of quiet each time:"
                " this takes minutes.)"
            )
        daemon = self._stage.start_daemon()
        self._screen.event("bsd", f"watches {self._stage.root}")
        return daemon

    def _extract_backlog(self) -> None:
        done = self._wait(lambda: all(session.placeholders for session in self.sessions))
        self._screen.check("what was old has left every session, by itself", done)
        _, line = self._a_placeholder()
        at = line.index(_PLACEHOLDER)
        self._screen.title(f"A placeholder in its place ({self.sessions[0].name})")
        text = line[max(0, at - 60) : at + 100].decode(errors="replace")
        self._screen.tell(f"…{one_line(text, _SHOWN)}…")

    def _start_agent(self) -> subprocess.Popen[bytes]:
        live = self.sessions[-1]
        self._screen.title(f"Meanwhile an agent goes on with {live.name}")
        script = self._stage.directory / "script"
        script.mkdir()
        for number, turn in enumerate(live.turns):
            (script / f"{number:03}").write_bytes(turn)
        pauses = [str(_LINE_SECONDS), str(_TURN_SECONDS)]
        argv = [
            sys.executable,
            "-m",
            "bsd.cli.demo_stage",
            str(live.path),
            str(script),
            *pauses,
        ]
        return self._stage.start(argv, self._stage.directory / "agent.out")

    def _restore_beside_it(self) -> None:
        session = self.sessions[0]
        index, line = self._a_placeholder()
        entry = json.loads(line)["id"]
        before = session.placeholders
        answer = self._stage.bsd("restore", session.name, entry, meanwhile=self._look)
        restored = session.path.stat().st_mtime
        self._look()
        amount = size(sum(answer["sizes_bytes"].values()))
        keys = ", ".join(answer["keys_restored"])
        self._screen.event("you", f"bsd restore {session.name} {entry}: {keys} ({amount})")
        now = _RESTORED.sub(b"", _lines(session.path.read_bytes())[index])
        exact = now == _lines(session.content)[index]
        self._screen.check("the restored line is its old self, to the byte", exact)
        budget = _PATIENCE_SECONDS + _PROTECTED_SECONDS
        left = self._wait(lambda: session.placeholders >= before, budget)
        stayed = session.path.stat().st_mtime - restored
        self._screen.check(
            f"it stayed for {_PROTECTED_SECONDS} s (keep_after_restore_seconds), then left again",
            left and stayed > _PROTECTED_SECONDS - 0.5,
        )

    def _follow(self, agent: subprocess.Popen[bytes]) -> None:
        live = self.sessions[-1]
        all_lines = live.content.count(b"\n")
        ended = self._wait(lambda: agent.poll() is not None, 2 * _PATIENCE_SECONDS)
        whole = ended and agent.returncode == 0 and live.lines == all_lines
        self._screen.check("the agent could write every line, and none is missing", whole)
        self._wait(self._is_idle)
        extracted = live.size < len(live.content) // 2
        self._screen.check("what became old while it wrote has left, too", extracted)
        self.smallest = sum(session.size for session in self.sessions)

    def _ask_status(self) -> None:
        self._screen.title("bsd status")
        for line in status_lines(self._stage.client.get("/api/status"), time.time()):
            self._screen.tell(line)

    def _stop(self, daemon: subprocess.Popen[bytes]) -> None:
        self._screen.title("SIGTERM: the daemon stops")
        self._screen.check("it finished what it had begun", self._stage.stop(daemon) == 0)

    def _restore_all(self) -> None:
        self._screen.title("bsd restore-all: everything back")
        self._stage.bsd("restore-all", "--yes", meanwhile=self._look)
        for session in self.sessions:
            session.look()
            text = f"{session.name}: {len(session.content):,} bytes as they were written"
            self._screen.check(text, session.is_exact)

    def _verify(self) -> None:
        self._screen.title("bsd verify")
        found = self._stage.bsd("verify", may_find=True)
        for finding in found["findings"]:
            self._screen.tell(f"{finding['kind']}: {finding['where']}: {finding['message']}")
        files = counted(found["files"], "stored file")
        self._screen.check(
            f"{files} checked, nothing in flight, nothing missing", not found["findings"]
        )

    # --- what the scenes are made of ---

    def _a_placeholder(self) -> tuple[int, bytes]:
        """The first line of the first session that something was taken out of."""
        for index, line in enumerate(_lines(self.sessions[0].path.read_bytes())):
            if b'"_extracted"' in line and _PLACEHOLDER in line:
                return index, line
        raise LookupError("nothing was taken out of the demo's session")

    def _is_idle(self) -> bool:
        queue = self._stage.client.get("/api/status")["queue"]
        return not any(queue[key] for key in ("debouncing", "ready", "working", "waiting"))

    def _wait(self, look: Callable[[], Any], seconds: float = _PATIENCE_SECONDS) -> bool:
        """Show what goes on until `look` finds something true; whether it did, in time."""
        deadline = time.monotonic() + seconds + 4 * self._stage.extra_seconds
        self._look()
        while not look():
            if time.monotonic() > deadline:
                return False
            self._request.sleep(_LOOK_SECONDS)
            self._look()
        return True

    def _look(self) -> None:
        for session in self.sessions:
            before = session.size, session.placeholders
            if session.look():
                self._tell_change(session, *before)
        self._screen.show(
            ScreenRow(each.name, each.written, each.size, each.placeholders)
            for each in self.sessions
        )

    def _tell_change(
        self, session: DemoSession, size_before: int, placeholders_before: int
    ) -> None:
        live = self.sessions[-1]
        if session is live:
            self._tell_turns(live)
        more = session.placeholders - placeholders_before
        if more > 0:
            left = share(session.size, session.written)
            self._screen.event(
                "bsd",
                f"{session.name}: {counted(more, 'value')} out,"
                f" {size(size_before)} → {size(session.size)} ({left} of what was written)",
            )

    def _tell_turns(self, live: DemoSession) -> None:
        begun = live.content.count(b"\n") - sum(turn.count(b"\n") for turn in live.turns)
        for number, turn in enumerate(live.turns):
            begun += turn.count(b"\n")
            if number >= self._turns_seen and live.lines >= begun:
                self._turns_seen = number + 1
                lines = counted(turn.count(b"\n"), "line")
                self._screen.event(
                    "agent", f"{live.name}: turn {number + 1} written, {lines}, {size(len(turn))}"
                )


def _turns(lines: Iterable[bytes]) -> list[bytes]:
    """Put the lines of a session together into what comes before the first turn, and turns."""
    turns = [b""]
    for line in lines:
        if _BEGINS_TURN in line:
            turns.append(b"")
        turns[-1] += line
    return turns


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")
