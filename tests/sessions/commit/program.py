"""Changes that the agent's program makes to its session between a crash and the recovery."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.sessions.commit.ledger import Ledger, line

AgentProgram = Callable[[Path, Ledger], None]


def append(path: Path, data: bytes) -> None:
    """Append as appendFileSync does, but never create the session."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        assert os.write(fd, data) == len(data)
    finally:
        os.close(fd)


def nothing(path: Path, ledger: Ledger) -> None:
    """Leaves the session alone."""


def appends(path: Path, ledger: Ledger, writer: str = "owner") -> None:
    for number in range(3):
        data = line(writer, number)
        append(path, data)
        ledger.wrote(data)


def rewrites_in_place(path: Path, ledger: Ledger) -> None:
    added = line("owner", 0)
    content = path.read_bytes() + added
    path.write_bytes(content)
    ledger.wrote(added)


def rewrites_by_rename(path: Path, ledger: Ledger) -> None:
    added = line("owner", 0)
    other = path.with_suffix(".tmp")
    other.write_bytes(path.read_bytes() + added)
    other.rename(path)
    ledger.wrote(added)


def compacts(path: Path, ledger: Ledger) -> None:
    """Rewrite the session without its oldest messages."""
    lines = path.read_bytes().splitlines(keepends=True)
    other = path.with_suffix(".tmp")
    other.write_bytes(b"".join(lines[:1] + lines[4:]))
    other.rename(path)
    ledger.dropped(b"".join(lines[1:4]))


def renames_away(path: Path, ledger: Ledger) -> None:
    away = path.with_suffix(".jsonl.reset.2026-01-01")
    path.rename(away)
    ledger.renamed(away)


def deletes(path: Path, ledger: Ledger) -> None:
    ledger.dropped(path.read_bytes())
    ledger.deleted()
    path.unlink()


def replaces_by_another(path: Path, ledger: Ledger) -> None:
    """Delete the session and begin another under the same name."""
    deletes(path, ledger)
    header = {"type": "session", "version": 3, "id": "another", "timestamp": "2026-01-02"}
    content = json.dumps(header).encode() + b"\n" + line("stranger", 0)
    path.write_bytes(content)
    ledger.created_another(content)


OWNERS: dict[str, AgentProgram] = {
    program.__name__: program
    for program in (
        nothing,
        appends,
        rewrites_in_place,
        rewrites_by_rename,
        compacts,
        renames_away,
        deletes,
        replaces_by_another,
    )
}
