"""A root with all kinds of bsd's files, and the directories of three other programs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden.steady import Steady, document
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.session_files import sample
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.tree import raw

# No work starts by itself: every answer comes from a request.
_CONFIG = {"age_threshold_hours": 87_600, "auto_cron": "0 0 1 1 *", "retention_cron": "0 0 1 1 *"}

_EACH = {"level", "event", "time", "timestamp", "ts"}  # fields in each line of the log

_PASSING = ("inflight", "-wal", "-shm", "-journal", ".lock")  # exists for a while


@dataclass(frozen=True)
class World:
    """The places of all files."""

    top: Path
    home: Path
    steady: Steady

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def workspaces(self) -> Path:
        return self.top / "workspaces"

    @property
    def sessions(self) -> list[Path]:
        found = [
            *self.root.glob("agents/*/sessions/*.jsonl"),
            *self.top.glob("programs/**/*.jsonl"),
        ]
        return sorted(found)

    def rest(self) -> None:
        """Let time pass: bsd plans no change of a file that was just written."""
        for path in self.sessions:
            set_idle(path)

    def lies(self) -> dict[str, Any]:
        """Return all files of bsd: paths with their modes, and the content of some documents."""
        found: dict[str, Any] = {}
        for path in sorted(self.root.rglob("*")):
            name = self.steady.text(str(path.relative_to(self.root)))
            if not name.startswith("agents") and not any(part in name for part in _PASSING):
                found[name] = f"{path.lstat().st_mode:o}"
        documents = [*sorted(self.root.glob("extracted/*/*/*.json"))[:3]]
        documents += self.root.glob("trash/**/*.json")
        for path in documents:
            content = document(path.read_text(encoding="utf-8"))
            found[self.steady.text(str(path.relative_to(self.root)))] = self.steady(content)
        return found

    def noted(self, seen: dict[str, int]) -> dict[str, Any]:
        """Return the lines since the last call: those of the audit log, and some of the log."""
        said = self.added("logs/brainsurgeon.log", seen)
        log = [" ".join((one["level"], one["event"], *sorted(set(one) - _EACH))) for one in said]
        return {"audit": self.added(".brainsurgeon/audit.jsonl", seen), "log": log}

    def added(self, file: str, seen: dict[str, int]) -> list[Any]:
        """Return the lines added to a file since its last size in `seen`."""
        path = self.root / file
        content = path.read_bytes() if path.exists() else b""
        content = content[: content.rfind(b"\n") + 1]  # another process may be writing
        start, seen[file] = seen.get(file, 0), len(content)
        # A writer that finds a half-written line begins a new line, though the first may be
        # completed since.
        lines = filter(None, content[start:].splitlines())
        return [self.steady(document(line.decode())) for line in lines]


def make(top: Path, home: Path) -> World:
    """Make the same world every time, except for place and time."""
    root = top / "root"
    for number, (name, turns) in enumerate(
        {"main/alpha": 4, "main/beta": 2, "main/spare": 1, "other/gamma": 2, "other/old": 1}.items()
    ):
        add_session(root, name, sample(turns, number + 1))
        set_status(root, name, "done")
    add_session(root, "main/foreign", b'{"hello":"world"}\n')
    sources = []
    for kind in (PI, CLAUDE_CODE, CODEX):
        place = top / "programs" / kind.sessions
        path = place / kind.directory / f"{kind.session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(raw(kind.lines()))
        set_idle(path)
        sources.append(f'[[sources]]\nkind = "{kind.kind}"\npath = "{place}"\n')
    own = root / ".brainsurgeon"
    own.mkdir(mode=0o700)
    (own / "config.json").write_text(json.dumps(_CONFIG))
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    workspaces = top / "workspaces"
    settings.write_text(f'workspace_root = "{workspaces}"\n' + "\n".join(sources))
    places = {
        top: "<top>",
        home: "<home>",
        Path(sys.executable): "<python>",
        Path(sys.prefix): "<prefix>",
        Path(__file__).parents[2]: "<bsd>",
    }
    found = World(top, home, Steady(places, sorted(top.rglob("*.jsonl"))))
    os.chmod(top, 0o700)
    return found
