"""Record of other programs' changes to a session; the oracle checks bsd against it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def line(writer: str, number: int, **more: Any) -> bytes:
    """A line as a session's owner appends it, with an id of its own."""
    body = {"type": "message", "id": f"{writer}-{number}", "parentId": None, **more}
    body.setdefault("message", {"role": "user", "content": f"{writer} says {number}"})
    return json.dumps(body).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Ledger:
    """An append-only file of events, written by several processes, after the fact."""

    path: Path

    def wrote(self, data: bytes, inode: int = 0, *, durable: bool = False) -> None:
        """A whole line was written to the session, which was this file then, and perhaps synced."""
        self._add({"event": "wrote", "line": data.decode(), "inode": inode, "durable": durable})

    def dropped(self, content: bytes) -> None:
        """These lines of the session were removed by its owner, on purpose."""
        self._add({"event": "dropped", "lines": content.decode().splitlines(keepends=True)})

    def renamed(self, to: Path) -> None:
        self._add({"event": "renamed", "to": str(to)})

    def deleted(self) -> None:
        self._add({"event": "deleted"})

    def created_another(self, content: bytes) -> None:
        """Another session was put at the path; bsd must not change it."""
        self._add({"event": "another", "content": content.decode()})

    def events(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(entry) for entry in self.path.read_bytes().splitlines()]

    def _add(self, event: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        fd = os.open(self.path, flags, 0o600)
        try:
            os.write(fd, json.dumps(event).encode() + b"\n")
        finally:
            os.close(fd)
