"""GitHub Copilot CLI, the released program, offline, in a home of a test."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tests.compat.beside import Beside
from tests.compat.messages_api import Model, asking

Json = dict[str, Any]

SESSIONS = ".copilot/session-state"
EVENTS = "events.jsonl"
_PROGRAM = ("@github", "copilot-linux-x64", "copilot")
_NOT_PASSED_ON = ("COPILOT", "GITHUB", "GH_")
_IDS = re.compile(rb"(\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|toolu_[0-9]{16})")
# The time that the program puts before each prompt.
_TIME = re.compile(r"<current_datetime>[^<]*</current_datetime>")


@dataclass(frozen=True)
class Copilot:
    """The program in a home."""

    beside: Beside
    program: str
    model: Model

    def run(self, prompt: str, *options: str, session: str | None = None, ok: bool = True) -> str:
        """Let the program answer a prompt without a terminal, and return what it writes."""
        known = (f"--resume={session}",) if session else ()
        command = (self.program, "-p", prompt, "--allow-all", *known, *options)
        done = self.beside.run(*command, ok=ok)
        return done.stdout + done.stderr

    def path(self, session: str) -> Path:
        """Return the path of a session."""
        return self.beside.source / session / EVENTS

    def only_session(self) -> str:
        """Return the id of the only session."""
        [found] = self.beside.source.glob(f"*/{EVENTS}")
        return found.parent.name

    def request(self, session: str) -> Json:
        """Resume a session with a prompt, and return the request, without times and own paths."""
        self.model.requests.clear()
        self.run("Go on.", session=session)
        [request] = self.model.requests
        text = _TIME.sub("", json.dumps(request)).replace(str(self.beside.top), "")
        found: Json = json.loads(text)
        return found

    def fork(self, session: str) -> str:
        """Fork a session over the program's protocol, as its command /fork does; return the id."""
        command = (*self.beside.user, self.program, "--headless", "--no-auto-update", "--stdio")
        with subprocess.Popen(
            command,
            cwd=self.beside.work,
            env=self.beside.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            call = {"jsonrpc": "2.0", "id": 1, "method": "sessions.fork"}
            body = json.dumps(call | {"params": {"sessionId": session}}).encode()
            process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            process.stdin.flush()
            while True:
                length = 0
                while line := process.stdout.readline().strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                assert length, "it ended without an answer"
                answer = json.loads(process.stdout.read(length))
                if answer.get("id") == 1 and "method" not in answer:
                    break
            with suppress(BrokenPipeError):
                process.stdin.close()
        forked: str = answer["result"]["sessionId"]
        return forked


def at(
    modules: Path, top: Path, work: Path, model: Model, user: list[str] | None = None
) -> Copilot:
    """Return the program in an empty home, with a root of bsd."""
    env = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_BASE_URL": model.url,
        "COPILOT_PROVIDER_API_KEY": "of-nobody",
        "COPILOT_MODEL": "claude-sonnet-4.5",
        "COPILOT_CACHE_HOME": str(work.parent / "copilot-cache"),  # its program, unpacked
    }
    beside = Beside(top, "copilot", SESSIONS, work, env, user or [])
    return Copilot(beside, str(modules.joinpath(*_PROGRAM)), model)


def long_session(copilot: Copilot) -> str:
    """Make a session of two turns with all kinds of calls, and return its id."""
    work = copilot.beside.work
    book, new = work / "book.txt", work / "new.txt"
    book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
    view = ("view", {"path": str(book)})
    task = {
        "agent_type": "explore",
        "name": "look",
        "mode": "sync",
        "description": "Look around",
        "prompt": asking("Look.", view),
    }
    calls = (
        view,
        ("bash", {"command": "seq 1 600", "description": "Count"}),
        ("create", {"path": str(new), "file_text": "a line of a new file\n" * 40}),
        ("edit", {"path": str(new), "old_str": "a line of a new file\n" * 40, "new_str": "x"}),
        ("task", task),
        ("view", {"path": "/nothing/there"}),
    )
    copilot.run(asking("Read the book, and count.", *calls))
    session = copilot.only_session()
    again = ("bash", {"command": "seq 1000 1400", "description": "Count on"})
    copilot.run(asking("Once more, and mind what I said.", again), session=session)
    return session


def enlarged(content: bytes, size: int) -> Iterator[bytes]:
    """Yield a session of at least `size` bytes: its part before the compaction, again and again.

    Each repetition has ids of its own.
    """
    header, *lines = content.splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"session.compaction_complete"' in line)
    session = json.loads(header)["data"]["sessionId"].encode()
    pieces = _IDS.split(b"".join(lines[: end + 1]))
    yield header
    written = number = 0
    while written < size:
        number += 1
        names = [piece if piece == session else _renamed(piece, number) for piece in pieces[1::2]]
        part = b"".join(chain.from_iterable(zip(pieces[::2], [*names, b""], strict=True)))
        yield part
        written += len(part)
    yield from lines


def _renamed(identity: bytes, number: int) -> bytes:
    if identity.startswith(b"toolu_"):
        return b"toolu_%08d%b" % (number, identity[-8:])
    return b"%08x%b" % ((int(identity[:8], 16) + number * 2654435761) % 2**32, identity[8:])


def differing(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return the places at which two JSON values differ: the path, and both values."""
    found: list[tuple[str, Any, Any]] = []
    waiting = [("", one, other)]
    while waiting:
        path, was, now = waiting.pop()
        if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
            waiting += [(f"{path}.{key}", was[key], now[key]) for key in was]
        elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            waiting += [
                (f"{path}[{n}]", *pair) for n, pair in enumerate(zip(was, now, strict=True))
            ]
        elif was != now:
            found.append((path, was, now))
    return found
