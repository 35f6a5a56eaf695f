"""`bsd demo`: runs a daemon and an agent on generated sessions, and compares every byte."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bsd.cli.call import BsdCommand, Call
from bsd.cli.client import Client, NotRunning
from bsd.cli.output import counted, one_line, print_json, say, say_check, size
from bsd.cli.status_lines import status_lines
from bsd.cli.stopping import StopRequest, stop_request
from bsd.core.errors import BsdError, Unavailable
from bsd.core.files import make_private_dir
from bsd.core.filesystem import strength
from bsd.core.layout import Layout
from bsd.core.locations import find_socket
from bsd.sample import session_lines

# The idle sessions with their sizes in bytes, and the session that the agent continues.
_IDLE = {"main/harbour": 4 << 20, "research/berths": 1 << 20}
_LIVE = "main/tides"
_TURNS_BEFORE = 3
_TURNS = 4  # that the agent writes during the demo

_IDLE_SECONDS = 3600.0
_LINE_SECONDS = 0.07
_TURN_SECONDS = 3.0  # more than bsd's quiet time
_PROTECTED_SECONDS = 6
_LONGEST_SECONDS = 40.0  # for one step; a busy machine is slow
_COMMAND_SECONDS = 90.0
_STOP_SECONDS = 15.0  # the daemon promises ten
_LOOK_SECONDS = 0.1

_PLACEHOLDER = b"[[extracted-"
_BEGINS_TURN = b'"message":{"role":"user"'
_RESTORED = re.compile(rb',"_restored":"[^"]*"')
# Variables that point bsd to another root, settings file, socket or service manager.
_FOREIGN = (
    *("BRAINSURGEON_", "AUTO_REFRESH_MS", "OPENCLAW_", "XDG_CONFIG_HOME", "_BSD_"),
    *("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "JOURNAL_STREAM"),
)


@click.command("demo", cls=BsdCommand)
@click.option("--keep", is_flag=True, help="Leave the temporary directory for a closer look.")
@click.pass_obj
def demo(call: Call, keep: bool) -> int:
    """Try bsd on made-up sessions in a temporary place.

    Starts a daemon and an agent on sessions in a temporary directory, shows their work, puts all
    values back and compares every byte. Takes about half a minute and does not touch your own
    sessions. Exit code 1 if a byte differs.

    \b
    Example:
      bsd demo
    """
    began = time.monotonic()
    with stop_request() as request, temporary_place(request, keep=keep) as directory:
        run = Demo(directory, request, quiet=call.json)
        run.run()
        request.check()
    seconds, exact = time.monotonic() - began, all(check["ok"] for check in run.checks)
    if call.json:
        document = {"exact": exact, "checks": run.checks, "root": str(run.root)}
        print_json({**document, "seconds": round(seconds, 1)})
        return 0 if exact else 1
    if keep:
        say(f"\nLeft for you: {directory}")
    say(
        f"\n{size(sum(len(one.content) for one in run.sessions))} in"
        f" {counted(len(run.sessions), 'session')} came down to {size(run.smallest)}, while an"
        f" agent was writing; {seconds:.0f} s, {counted(len(run.checks), 'check')}."
    )
    verdict = "Every byte came back." if exact else "NOT everything came back exactly."
    say(verdict, style="1;32" if exact else "1;31")
    return 0 if exact else 1


@contextmanager
def temporary_place(request: StopRequest, *, keep: bool) -> Iterator[Path]:
    """Make a directory, and remove it at the end unless `keep` is set.

    A file system where commits are strong is preferred: on others, bsd waits for 30 s of quiet
    before each commit. If the terminal closes, the demo stops as after Ctrl-C.
    """
    before = signal.signal(signal.SIGHUP, request.notice)
    memory = "/dev/shm"  # noqa: S108 - mkdtemp makes a name in it that cannot be guessed
    places = (tempfile.gettempdir(), memory, os.environ.get("XDG_RUNTIME_DIR", ""))
    usable = (place for place in places if os.access(place, os.W_OK | os.X_OK))
    strong = (place for place in usable if strength(Path(place)).level == "strong")
    directory = Path(tempfile.mkdtemp(prefix="bsd-demo-", dir=next(strong, None)))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGHUP, before)


@dataclass
class DemoSession:
    """A session file and its expected content."""

    name: str
    path: Path
    content: bytes  # with all turns, including those that the agent has not written yet
    turns: tuple[bytes, ...] = ()  # the end of `content`, which the agent writes
    size: int = 0  # bytes, at the last `read`
    placeholders: int = 0

    def read(self) -> bytes:
        """Return the content of the file, and note its size and number of placeholders."""
        data = self.path.read_bytes()
        self.size, self.placeholders = len(data), data.count(_PLACEHOLDER)
        return data


class Demo:
    """One run of the demo.

    Args:
        directory: an empty directory for the demo's root and settings.
        request: raises Stopped at the next wait if a signal has come.
        quiet: print no output.
    """

    def __init__(self, directory: Path, request: StopRequest, *, quiet: bool) -> None:
        self.root = directory / "openclaw"
        self.sessions: list[DemoSession] = []
        self.checks: list[dict[str, Any]] = []
        self.smallest = 0  # bytes of all sessions together
        self._directory, self._request, self._quiet = directory, request, quiet
        self._settings = directory / "bsd.toml"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
        self._env = {**kept, "HOME": str(directory / "home")}
        self._client = Client(find_socket(self.root, self._env))
        self._began = time.monotonic()
        self._ended = threading.Event()  # the agent writes no more
        self._agent_wrote_all = False

    def run(self) -> None:
        """Run all steps and record their checks."""
        self._make_sessions()
        with self._daemon() as daemon:
            self._extract_backlog()
            agent = threading.Thread(target=self._be_an_agent, args=(self.sessions[-1],))
            agent.start()
            try:
                self._restore_beside_it()
                self._follow(agent)
            finally:
                self._ended.set()
                agent.join()
            self._title("bsd status")
            for line in status_lines(self._client.get("/api/status"), time.time()):
                self._say(f"  {line}")
            self._title("SIGTERM: the daemon stops")
            self._check("it finished its work in progress", stop_daemon(daemon) == 0)
        self._restore_all()
        self._verify()

    def _make_sessions(self) -> None:
        self._title("Three sessions, as agents leave them")
        self._settings.write_text('log_level = "info"\nlog_format = "json"\n')
        config = Layout(self.root).config_file
        make_private_dir(config.parent)
        config.write_text(json.dumps({"keep_after_restore_seconds": _PROTECTED_SECONDS}))
        for number, (name, length) in enumerate(_IDLE.items()):
            self._make_session(name, session_lines(size=length, seed=number))
        turns = [b""]
        for line in session_lines(turns=_TURNS_BEFORE + _TURNS, seed=9):
            if _BEGINS_TURN in line:
                turns.append(b"")
            turns[-1] += line
        self._make_session(_LIVE, turns[:-_TURNS], tuple(turns[-_TURNS:]))
        for session in self.sessions:
            self._say(f"  {session.name:<18}{size(session.size):>10}")

    def _make_session(
        self, name: str, lines: Iterable[bytes], turns: tuple[bytes, ...] = ()
    ) -> None:
        agent, _, session = name.partition("/")
        path = self.root / "agents" / agent / "sessions" / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before := b"".join(lines))
        then = time.time() - _IDLE_SECONDS
        os.utime(path, (then, then))
        self.sessions.append(DemoSession(name, path, before + b"".join(turns), turns))
        self.sessions[-1].read()

    @contextmanager
    def _daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start `bsd run`, wait until it answers, and end it after the block."""
        self._title("bsd run: the daemon starts to watch them")
        self._extra_seconds = strength(self.root).quiet_seconds
        if self._extra_seconds:
            self._say(
                "  (This file system guarantees little, so bsd waits for"
                f" {self._extra_seconds:.0f} s of quiet each time: this takes minutes.)"
            )
        output = self._directory / "daemon.out"
        with output.open("wb") as file:
            daemon = subprocess.Popen(
                self._argv("run"),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,  # Ctrl-C reaches only the demo, which stops the daemon
            )
        try:
            if not self._wait(lambda: daemon.poll() is not None or self._is_up(), _COMMAND_SECONDS):
                raise Unavailable("the demo's daemon does not answer", hint="`bsd doctor`")
            if daemon.poll() is not None:
                said = output.read_text(errors="replace").strip()
                raise Unavailable(f"the demo's daemon does not start: {said}", hint="`bsd doctor`")
            self._event("bsd", f"watches {self.root}")
            yield daemon
        finally:
            stop_daemon(daemon)

    def _is_up(self) -> bool:
        try:
            return self._client.get("/api/health")["status"] in {"ok", "degraded"}
        except (NotRunning, Unavailable):
            return False

    def _extract_backlog(self) -> None:
        done = self._wait(lambda: all(session.placeholders for session in self.sessions))
        self._check("old values were extracted from every session, without a command", done)
        _, line = self._extracted_line()
        at = line.index(_PLACEHOLDER)
        self._title(f"A placeholder in its place ({self.sessions[0].name})")
        text = line[max(0, at - 60) : at + 100].decode(errors="replace")
        self._say(f"  …{one_line(text, 160)}…")

    def _extracted_line(self) -> tuple[int, bytes]:
        """Return the number and the content of the first line with an extracted value.

        It is a line of the first session.
        """
        for number, line in enumerate(self.sessions[0].path.read_bytes().split(b"\n")):
            if b'"_extracted"' in line and _PLACEHOLDER in line:
                return number, line
        raise LookupError("nothing was extracted from the demo's session")

    def _be_an_agent(self, session: DemoSession) -> None:
        """Append the turns line by line, as agents do; runs in a thread."""
        self._title(f"Meanwhile an agent continues {session.name}")
        for number, turn in enumerate(session.turns, 1):
            for line in turn.splitlines(keepends=True):
                # Without O_CREAT: a session that has vanished must not be created again.
                descriptor = os.open(session.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                os.write(descriptor, line)
                os.close(descriptor)
                if self._ended.wait(_LINE_SECONDS):
                    return
            lines = counted(turn.count(b"\n"), "line")
            self._event("agent", f"{session.name}: turn {number} written, {lines}")
            if self._ended.wait(_TURN_SECONDS):
                return
        self._agent_wrote_all = True

    def _restore_beside_it(self) -> None:
        session = self.sessions[0]
        number, line = self._extracted_line()
        entry, before = json.loads(line)["id"], session.placeholders
        answer = self._bsd("restore", session.name, entry)
        restored_at = session.path.stat().st_mtime
        amount, keys = size(sum(answer["sizes_bytes"].values())), ", ".join(answer["keys_restored"])
        self._event("you", f"bsd restore {session.name} {entry}: {keys} ({amount})")
        now = _RESTORED.sub(b"", session.path.read_bytes().split(b"\n")[number])
        exact = now == session.content.split(b"\n")[number]
        self._check("the restored line equals the original, to the byte", exact)
        self._report_changes()
        longest = _LONGEST_SECONDS + _PROTECTED_SECONDS
        left = self._wait(lambda: session.placeholders >= before, longest)
        stayed = session.path.stat().st_mtime - restored_at
        self._check(
            f"it stayed {_PROTECTED_SECONDS} s (keep_after_restore_seconds), then was extracted",
            left and stayed > _PROTECTED_SECONDS - 0.5,
        )

    def _follow(self, agent: threading.Thread) -> None:
        live = self.sessions[-1]
        self._wait(lambda: not agent.is_alive(), 2 * _LONGEST_SECONDS)
        same = live.path.read_bytes().count(b"\n") == live.content.count(b"\n")
        self._check(
            "the agent could write every line, and none is missing", self._agent_wrote_all and same
        )
        self._wait(self._is_idle)
        extracted = live.size < len(live.content) // 2
        self._check("values that became old meanwhile were extracted, too", extracted)
        self.smallest = sum(session.size for session in self.sessions)

    def _is_idle(self) -> bool:
        queue = self._client.get("/api/status")["queue"]
        return not any(queue[key] for key in ("debouncing", "ready", "working", "waiting"))

    def _restore_all(self) -> None:
        self._title("bsd restore-all: everything back")
        self._bsd("restore-all", "--yes")
        for session in self.sessions:
            text = f"{session.name}: {len(session.content):,} bytes as they were written"
            self._check(text, session.path.read_bytes() == session.content)

    def _verify(self) -> None:
        self._title("bsd verify")
        found = self._bsd("verify", codes=(0, 1))
        for finding in found["findings"]:
            self._say(f"  {finding['kind']}: {finding['where']}: {finding['message']}")
        text = (
            f"{counted(found['files'], 'stored file')} checked, nothing in flight, nothing missing"
        )
        self._check(text, not found["findings"])

    # --- helpers ---

    def _argv(self, *arguments: str) -> list[str]:
        place = ["--root", str(self.root), "--config", str(self._settings)]
        return [sys.executable, "-m", "bsd", *place, *arguments]

    def _bsd(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run another `bsd` and return its document; raises BsdError if it fails."""
        done = subprocess.run(
            self._argv("--json", *arguments),
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=self._env,
            start_new_session=True,
            timeout=_COMMAND_SECONDS + self._extra_seconds,
        )
        self._request.check()
        if done.returncode not in codes:
            said = done.stderr.decode(errors="replace").strip()
            raise BsdError(f"`bsd {' '.join(arguments)}` failed: {said}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def _wait(self, condition: Callable[[], object], seconds: float = _LONGEST_SECONDS) -> bool:
        """Report changes of sessions until the condition is true; returns False at the deadline."""
        deadline = time.monotonic() + seconds + 4 * self._extra_seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._request.sleep(_LOOK_SECONDS)
            self._report_changes()
        return True

    def _report_changes(self) -> None:
        for session in self.sessions:
            size_before, placeholders_before = session.size, session.placeholders
            session.read()
            if (more := session.placeholders - placeholders_before) > 0:
                sizes = f"{size(size_before)} → {size(session.size)}"
                self._event("bsd", f"{session.name}: {counted(more, 'value')} out, {sizes}")

    def _title(self, text: str) -> None:
        self._say(f"\n{text}", "1")

    def _event(self, actor: str, text: str) -> None:
        style = {"agent": "36", "bsd": "32", "you": "33"}[actor]
        self._say(f"  {time.monotonic() - self._began:5.1f} s  {actor:<6} {text}", style)

    def _check(self, text: str, ok: bool) -> None:
        self.checks.append({"check": text, "ok": ok})
        if not self._quiet:
            say_check("ok" if ok else "fail", text)
            sys.stdout.flush()

    def _say(self, text: str, style: str = "") -> None:
        if not self._quiet:
            say(text, style=style)
            sys.stdout.flush()


def stop_daemon(daemon: subprocess.Popen[bytes]) -> int | None:
    """Ask the daemon to stop, and wait; returns its exit code, None if it had to be killed."""
    if daemon.poll() is None:
        daemon.terminate()
    try:
        return daemon.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
        return None
