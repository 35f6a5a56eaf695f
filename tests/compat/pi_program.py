"""pi, the released program, in a home of a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from tests.compat.beside import Beside
from tests.compat.install import HERE, program
from tests.compat.messages_api import Model, asking
from tests.compat.terminal import Terminal, in_terminal

Json = dict[str, Any]

SESSIONS = ".pi/agent/sessions"
_NO_NETWORK = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
_MODEL = ("--provider", "anthropic", "--model", "claude-opus-4-5")


@dataclass(frozen=True)
class Pi:
    """A version of pi, in a home."""

    beside: Beside
    program: tuple[str, ...]

    def run(self, prompt: str, *options: str, cwd: Path | None = None) -> None:
        """Let pi answer a prompt without a terminal."""
        self.beside.run(*self.program, "-p", *_MODEL, *options, prompt, cwd=cwd)

    def export(self, session: Path, page: Path) -> None:
        """Let pi export a session as a page."""
        self.beside.run(*self.program, "--export", str(session), str(page))

    @contextmanager
    def commanded(self, *options: str) -> Iterator[Commands]:
        """Run pi under another program's commands."""
        process = subprocess.Popen(
            [*self.beside.user, *self.program, "--mode", "rpc", *_MODEL, *options],
            cwd=self.beside.work,
            env=self.beside.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            with process:
                yield Commands(cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout))
        finally:
            process.kill()

    @contextmanager
    def opened(self, *options: str) -> Iterator[Terminal]:
        """Run pi in a terminal; yield the terminal once pi is ready."""
        command = [*self.beside.user, *self.program, *_MODEL, *options]
        with in_terminal(command, self.beside.work, self.beside.environment) as terminal:
            terminal.wait_for(lambda: _MODEL[-1] in terminal.tail(), "pi to be ready")
            yield terminal


class Commands:
    """Commands from another program, line by line."""

    def __init__(self, asked: IO[bytes], told: IO[bytes]) -> None:
        self._asked = asked
        self._told = told
        self._number = 0

    def do(self, kind: str, **members: Any) -> Json:
        """Give a command; return its result. After a prompt, the answer is complete."""
        self._number += 1
        command = {"id": f"c{self._number}", "type": kind, **members}
        self._asked.write(json.dumps(command).encode() + b"\n")
        self._asked.flush()
        answer = self._wait_for(lambda said: said.get("id") == command["id"])
        assert answer["success"], answer
        if kind == "prompt":
            self._wait_for(lambda said: said["type"] == "agent_end")
        found: Json = answer.get("data") or {}
        return found

    def _wait_for(self, is_it: Any) -> Json:
        for line in self._told:
            said: Json = json.loads(line)
            if is_it(said):
                return said
        raise AssertionError("pi has ended")


def newest(node: str) -> tuple[str, ...]:
    """Return the command of the newest version; raises NotInstalled."""
    return (node, str(program("@earendil-works", "pi-coding-agent", "dist", "cli.js")))


def old(node: str) -> tuple[str, ...]:
    """Return the command of the version on which OpenClaw is built, as `install` brings it."""
    modules = HERE / "node_modules" / "@mariozechner"
    return (node, str(modules / "pi-coding-agent" / "dist" / "cli.js"))


def home(top: Path, work: Path, model: Model) -> Beside:
    """Return an empty home for pi, with a root of bsd."""
    beside = Beside(top, "pi", SESSIONS, work, _NO_NETWORK | {"ANTHROPIC_API_KEY": "nobody's"})
    settings = {"providers": {"anthropic": {"baseUrl": model.url}}}
    (beside.source.parent / "models.json").write_text(json.dumps(settings))
    return beside


def three_turns(pi: Pi) -> Path:
    """Make a session of three turns; values of all but the last may leave."""
    book = pi.beside.work / "book.txt"
    book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
    pi.run(asking("Read.", ("read", {"path": str(book)}), ("bash", {"command": "seq 1 600"})))
    long = "Once more; " + "and mind what I have said about it. " * 30
    pi.run(asking(long, ("bash", {"command": "seq 1000 1400"})), "--continue")
    pi.run("Thank you.", "--continue")
    [path] = pi.beside.files()
    return path
