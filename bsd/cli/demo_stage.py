"""Where `bsd demo` plays: a temporary root, and processes of which none outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bsd.cli.call import StopRequest
from bsd.cli.output import say, say_check, share, size
from bsd.cli.status import Client, NotRunning, find_client
from bsd.core.errors import BsdError, Unavailable
from bsd.core.files import make_private_dir
from bsd.core.filesystem import strength
from bsd.core.layout import Layout

_PAUSE_SECONDS = 0.05
_COMMAND_SECONDS = 90.0
_STOP_SECONDS = 10.0  # the daemon promises five
_TAIL = 2000  # characters of what a process said last

# What would lead a bsd to somebody else's root, settings, socket or service manager.
_FOREIGN = ("BRAINSURGEON_", "AUTO_REFRESH_MS", "OPENCLAW_", "XDG_CONFIG_HOME", "_BSD_")
_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "JOURNAL_STREAM")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """A root of its own with its own settings; `with` takes everything away at the end."""

    def __init__(self, request: StopRequest, *, keep: bool = False) -> None:
        self._request = request
        self._keep = keep
        self._processes: list[subprocess.Popen[bytes]] = []
        # The closing of a terminal ends us like any other signal, but not what we started.
        self._hangup = signal.signal(signal.SIGHUP, request.notice)
        self.directory = Path(tempfile.mkdtemp(prefix="bsd-demo-", dir=_strong_place()))
        self.root = self.directory / "openclaw"
        self.env = _environment(self.directory / "home")
        self._settings = self.directory / "bsd.toml"

    def __enter__(self) -> Self:
        (self.root / "agents").mkdir(parents=True)
        self._settings.write_text('log_level = "info"\nlog_format = "json"\n')
        found = strength(self.root)
        self.level = str(found.level)
        # How much longer than elsewhere a session must be quiet here before bsd touches it.
        self.extra_seconds = found.quiet_seconds
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}
        try:
            for process in reversed(self._processes):
                self._end(process)
            if not self._keep:
                shutil.rmtree(self.directory, ignore_errors=True)
        finally:
            for number, handler in {**before, signal.SIGHUP: self._hangup}.items():
                signal.signal(number, handler)

    @property
    def client(self) -> Client:
        """Asks the daemon of this stage, and no other."""
        return find_client(str(self.root), str(self._settings), self.env)

    def configure(self, **fields: Any) -> None:
        """Write `config.json`, before anything reads it."""
        path = Layout(self.root).config_file
        make_private_dir(path.parent)
        path.write_text(json.dumps(fields))

    def start_daemon(self) -> subprocess.Popen[bytes]:
        """`bsd run`, until it answers; raises Unavailable if it does not."""
        said = self.directory / "daemon.out"
        daemon = self.start([*self._bsd(), "run"], said)
        deadline = time.monotonic() + _COMMAND_SECONDS
        while not self._is_up():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(
                    f"the demo's daemon does not start: {_tail(said)}", hint="`bsd doctor`"
                )
            self._request.sleep(_PAUSE_SECONDS)
        return daemon

    def start(self, argv: list[str], said: Path) -> subprocess.Popen[bytes]:
        """Start a process that is ended when the stage closes; what it says goes to a file."""
        with said.open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,  # Ctrl-C is for us alone: we end the others in order
            )
        self._processes.append(process)
        return process

    def bsd(
        self,
        *arguments: str,
        meanwhile: Callable[[], object] = lambda: None,
        may_find: bool = False,
    ) -> dict[str, Any]:
        """Run another `bsd` to its end; returns its document. Raises BsdError if it fails.

        `may_find`: exit code 1 is an answer, too.
        """
        out, said = self.directory / "command.json", self.directory / "command.out"
        said.unlink(missing_ok=True)
        with out.open("wb") as answer, said.open("wb") as errors:
            process = subprocess.Popen(
                [*self._bsd(), "--json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=errors,
                env=self.env,
                start_new_session=True,
            )
            self._processes.append(process)
        deadline = time.monotonic() + _COMMAND_SECONDS + self.extra_seconds
        while process.poll() is None and time.monotonic() < deadline:
            meanwhile()
            self._request.sleep(_PAUSE_SECONDS)
        if process.returncode not in ((0, 1) if may_find else (0,)):
            raise BsdError(f"`bsd {' '.join(arguments)}` failed: {_tail(said)}")
        document: dict[str, Any] = json.loads(out.read_bytes())
        return document

    def stop(self, process: subprocess.Popen[bytes]) -> int | None:
        """Ask a process to end, and wait; returns its exit code, None if it had to be killed."""
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self.stop(process)

    def _is_up(self) -> bool:
        try:
            return self.client.get("/api/health")["status"] in {"ok", "degraded"}
        except (NotRunning, Unavailable):
            return False

    def _bsd(self) -> list[str]:
        place = ["--root", str(self.root), "--config", str(self._settings)]
        return [sys.executable, "-m", "bsd", *place]


def _strong_place() -> str | None:
    """Where commits are strong, if there is such a place: elsewhere bsd has to wait for long."""
    memory = "/dev/shm"  # noqa: S108 - mkdtemp makes a name in it that nobody can guess
    for place in (tempfile.gettempdir(), memory, os.environ.get("XDG_RUNTIME_DIR", "")):
        if os.access(place, os.W_OK | os.X_OK) and strength(Path(place)).level == "strong":
            return place
    return None


def _environment(home: Path) -> dict[str, str]:
    foreign = (*_FOREIGN, *_MANAGER)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "HOME": str(home)}


def _tail(said: Path) -> str:
    return said.read_text(encoding="utf-8", errors="replace").strip()[-_TAIL:] or "it says nothing"


_BAR = 24  # characters
_STYLES = {"agent": "36", "bsd": "32", "you": "33"}


class ScreenRow(NamedTuple):
    """A session in the table; sizes are bytes."""

    name: str
    written: int
    now: int
    placeholders: int


class Screen:
    """Prints as the demo goes on; a quiet one only remembers the checks."""

    def __init__(self, *, quiet: bool) -> None:
        self.checks: list[dict[str, Any]] = []
        self._quiet = quiet
        self._began = time.monotonic()
        self._live: Live | None = None

    @property
    def seconds(self) -> float:
        """How long the demo takes so far."""
        return time.monotonic() - self._began

    @property
    def well(self) -> bool:
        return all(check["ok"] for check in self.checks)

    def title(self, text: str) -> None:
        self._say("")
        self._say(text, "1")

    def tell(self, text: str) -> None:
        self._say(f"  {text}")

    def event(self, who: str, text: str) -> None:
        """Somebody (agent, bsd, you) did something."""
        self._say(f"  {self.seconds:5.1f} s  {who:<6} {text}", _STYLES[who])

    def check(self, text: str, ok: bool) -> None:
        self.checks.append({"check": text, "ok": ok})
        if not self._quiet:
            say_check("ok" if ok else "fail", text)
            sys.stdout.flush()

    @contextmanager
    def table(self) -> Iterator[None]:
        """Show the table below all lines, while the block runs, where there is a terminal."""
        if self._quiet or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            yield
            return

        console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
        with Live(console=console, transient=True, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, rows: Iterable[ScreenRow]) -> None:
        """Draw the table anew."""
        if self._live is None:
            return

        table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
        for heading in ("SESSION", "WRITTEN", "IN THE FILE", "PLACEHOLDERS"):
            table.add_column(heading, justify="left" if heading == "SESSION" else "right")
        table.add_column("")
        for row in rows:
            full = round(_BAR * row.now / row.written) if row.written else 0
            bar = "█" * min(_BAR, max(1, full))
            table.add_row(
                row.name,
                size(row.written),
                size(row.now),
                str(row.placeholders),
                f"{bar:░<{_BAR}} {share(row.now, row.written):>5}",
            )
        self._live.update(table, refresh=True)

    def _say(self, text: str, style: str = "") -> None:
        if not self._quiet:
            say(text, style=style)
            sys.stdout.flush()


def main(session: Path, script: Path, line_pause: float, turn_pause: float) -> None:
    """Write all turns; pauses are seconds."""
    for turn in sorted(script.iterdir()):
        for line in turn.read_bytes().splitlines(keepends=True):
            _append(session, line)
            time.sleep(line_pause)
        time.sleep(turn_pause)


def _append(session: Path, line: bytes) -> None:
    # Never created: if it is not there, something is wrong, and the demo shall say so.
    descriptor = os.open(session, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(f"a line of {session} was written in part only")
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
