"""Sessions that tests delete, and the files that then lie in the trash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bsd.core.audit import AuditLog
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
from tests.openclaw_tree import set_idle

HOUR = 3600.0
NAME = SessionName("main", "s1")
HEADER = b'{"type":"session","version":3,"id":"s1"}\n'
SESSION = HEADER + b'{"type":"message","id":"e1","message":{"role":"user","content":"hi"}}\n'


def trash_of(layout: Layout, **more: Any) -> Trash:
    how = {name: more.pop(name) for name in ("actor", "after_step") if name in more}
    return Trash(layout, "14d", budget=RetryBudget(**{"wait": 0.0, **more}), **how)


def put(layout: Layout, name: SessionName = NAME, *, store: int = 2) -> Path:
    """An idle session with some stored files, an hour old."""
    path = layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SESSION)
    path.chmod(0o644)
    set_idle(path)
    for number in range(store):
        directory = layout.store_dir(name)
        make_private_dir(directory)
        file = directory / f"{number:04d}_thinking.json"
        file.write_bytes(b"x" * 100)
        file.chmod(0o600)
        set_idle(file)
    if store:
        make_private_dir(layout.archive_dir(name))
        pack = layout.archive_dir(name) / "20260101T000000Z-0123456789abcdef.zst"
        pack.write_bytes(b"a pack of " + str(name).encode())
        pack.chmod(0o600)
        set_idle(pack)
    return path


def register(layout: Layout, agent: str, text: str) -> Path:
    path = layout.agents / agent / "sessions" / "sessions.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    set_idle(path)
    return path


def registry(**sessions: dict[str, Any]) -> str:
    return json.dumps({f"agent:main:{key}": value for key, value in sessions.items()}, indent=2)


def tree(layout: Layout) -> dict[str, tuple[int, bytes]]:
    """All files of the sessions: names, modes, bytes."""
    found = {}
    for top in (layout.agents, layout.extracted, layout.archive, layout.history):
        for path in sorted(top.rglob("*")) if top.exists() else ():
            status = path.lstat()
            found[str(path)] = (status.st_mode, path.read_bytes() if path.is_file() else b"")
    return found


def audit(layout: Layout) -> list[dict[str, Any]]:
    return list(AuditLog(layout.audit_file).search(b""))
