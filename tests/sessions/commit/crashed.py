"""Set the stage for a crash: an idle session, its ledger, its oracle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.openclaw_tree import set_idle
from tests.sessions.commit.committing import recover_all
from tests.sessions.commit.ledger import Ledger
from tests.sessions.commit.oracle import Oracle

_THEN = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Theatre:
    """A root with a session in it."""

    root: Path
    path: Path
    original: bytes
    ledger: Ledger

    def oracle(self, in_doubt: tuple[bytes, ...] = ()) -> Oracle:
        return Oracle(self.root, self.path, self.original, self.ledger, in_doubt)

    def recover_and_judge(self, *, at_once: bool = True) -> list[str]:
        """Recover before and after the 60 s, each time twice; check after each."""
        problems = []
        for seconds in (5.0, 5.0, 70.0, 70.0) if at_once else (70.0, 70.0):
            results = recover_all(self.root, seconds)
            problems += [
                f"after {seconds} s: {one.state}: {one.detail}"
                for one in results
                if one.state == "failed"
            ]
            found = self.oracle().judge(is_over=seconds > 60)
            problems += [f"after {seconds} s: {problem}" for problem in found]
        problems += [f"left over: {file}" for file in self.oracle().leftovers()]
        return problems


@cache
def session() -> bytes:
    """A small session: three values that leave, and a stretch that the kernel copies."""
    header = {"type": "session", "version": 3, "id": "the-session", "timestamp": _THEN}
    entries: list[dict[str, Any]] = [header, _message("e1", "user", _block("u", 200))]
    for number in range(2, 8, 2):
        call = {"type": "toolCall", "id": f"call{number}", "name": "read", "arguments": {}}
        answer = _block(str(number), 1500)
        entries.append(_message(f"e{number}", "assistant", call))
        entries.append(_message(f"e{number + 1}", "toolResult", answer, toolCallId=call["id"]))
    entries.append(_message("e8", "user", _block("c", 70_000)))
    entries.append(_message("e9", "assistant", _block("d", 20), stopReason="stop"))
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def _block(letter: str, size: int) -> dict[str, Any]:
    return {"type": "text", "text": (letter * 40 + " ") * (size // 41 + 1)}


def _message(identity: str, role: str, block: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": [block], **more}
    about = {"type": "message", "id": identity, "parentId": None, "timestamp": _THEN}
    return {**about, "message": message}


def fast_directory() -> str | None:
    """A directory in memory, where leases are as strong as on a disk; None for the usual place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def theatre() -> Iterator[Theatre]:
    """A fresh session, untouched for an hour."""
    top = Path(tempfile.mkdtemp(prefix="bsd-crash-", dir=fast_directory()))
    try:
        yield build(top)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def build(top: Path) -> Theatre:
    root = top / "root"
    path = root / "agents/main/sessions/chat.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(session())
    set_idle(path)
    return Theatre(root, path, session(), Ledger(top / "ledger"))
