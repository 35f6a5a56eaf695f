"""A user's home on a machine where nothing is configured, and bsd called there without `--root`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.cli.main import run
from tests.commands import Ended
from tests.openclaw_tree import set_idle

PLACES = {
    "claude-code": ".claude/projects/-home-me/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
    "codex": ".codex/sessions/2026/01/05/rollout-2026-01-05T09-00-00-x.jsonl",
    "pi": ".pi/agent/sessions/--home-me--/2026_x.jsonl",
}


class Machine:
    """A user's home, and bsd called there without `--root`."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.openclaw = home / ".openclaw"
        self.own = home / ".local" / "share" / "bsd"
        self.settings = home / ".config" / "bsd" / "bsd.toml"
        self._capture = capture

    def __call__(self, line: str) -> Ended:
        """Call bsd in this process, without a terminal."""
        code = run(line.split())
        out, err = self._capture.readouterr()
        assert "internal error" not in err, err
        return Ended(code, out, err)

    def has(self, kind: str, content: bytes = b"{}\n") -> Path:
        """Let a program have a session."""
        path = self.home / PLACES[kind]
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        set_idle(path)
        return path

    def set(self, text: str) -> None:
        self.settings.parent.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(text)

    def root(self) -> Path:
        """Which root is meant."""
        ended = self("config path --json")
        assert ended.code == 0, ended.err
        return Path(ended.document["path"]).parents[1]
