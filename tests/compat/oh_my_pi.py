"""oh-my-pi, the released program, in a home of a test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.compat.beside import Beside
from tests.compat.messages_api import Model, asking
from tests.compat.needed import node_modules

SESSIONS = ".omp/agent/sessions"
_OPTIONS = ("-p", "--model", "anthropic/claude-opus-4-5", "--auto-approve", "--no-title")
_OFFLINE = {"PI_OFFLINE": "1", "OMP_SKIP_SETUP": "1"}


@dataclass(frozen=True)
class OhMyPi:
    """oh-my-pi in a home."""

    beside: Beside
    program: tuple[str, ...]

    @classmethod
    def at(cls, top: Path, work: Path, model: Model) -> OhMyPi:
        """Return oh-my-pi in an empty home, with a root of bsd."""
        env = {"ANTHROPIC_API_KEY": "nobody's", "TMPDIR": str(work.parent)}
        beside = Beside(top, "oh-my-pi", SESSIONS, work, env | _OFFLINE)
        settings = {"providers": {"anthropic": {"baseUrl": model.url}}}
        (beside.source.parent / "models.yml").write_text(json.dumps(settings))
        modules = node_modules("oh-my-pi", "oh_my_pi")
        bun = modules / "@oven" / "bun-linux-x64" / "bin" / "bun"
        cli = modules / "@oh-my-pi" / "pi-coding-agent" / "dist" / "cli.js"
        return cls(beside, (str(bun), str(cli)))

    def copy_to(self, top: Path) -> OhMyPi:
        """Copy the home with its sessions."""
        return OhMyPi(self.beside.copy_to(top), self.program)

    def run(self, prompt: str, *options: str) -> None:
        """Let oh-my-pi answer a prompt without a terminal."""
        self.beside.run(*self.program, *_OPTIONS, *options, prompt)

    def one_turn(self) -> Path:
        """Make a session with a long prompt, and results of several kinds."""
        book, page = self.beside.work / "book.txt", self.beside.work / "page.txt"
        book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
        calls = (
            ("read", {"path": str(book)}),
            ("write", {"path": str(page), "content": "A page. " * 100}),
            ("bash", {"command": "seq 1 600"}),
        )
        self.run(asking("Read, " + "and mind what I have said about it. " * 30, *calls))
        [path] = self.beside.files()
        return path
