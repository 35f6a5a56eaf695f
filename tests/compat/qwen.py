"""Qwen Code, the released program, in a home of a test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.compat.beside import Beside
from tests.compat.messages_api import Model, asking
from tests.compat.needed import node_modules

SESSIONS = ".qwen/projects"
_OPTIONS = ("--auth-type", "anthropic", "--model", "claude-opus-4-5", "--yolo")
_SETTINGS = {
    "general": {"enableAutoUpdate": False},
    "memory": {"enableManagedAutoMemory": False},  # it would ask the model, too
    "privacy": {"usageStatisticsEnabled": False},
}


@dataclass(frozen=True)
class QwenCode:
    """Qwen Code in a home."""

    beside: Beside
    program: tuple[str, ...]

    @classmethod
    def at(cls, node: str, top: Path, work: Path, model: Model) -> QwenCode:
        """Return Qwen Code in an empty home, with a root of bsd."""
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "nobody's"}
        beside = Beside(top, "qwen", SESSIONS, work, env)
        (beside.source.parent / "settings.json").write_text(json.dumps(_SETTINGS))
        package = node_modules("Qwen Code", "qwen") / "@qwen-code" / "qwen-code"
        return cls(beside, (node, str(package / "cli-entry.js")))

    def copy_to(self, top: Path) -> QwenCode:
        """Copy the home with its sessions."""
        return QwenCode(self.beside.copy_to(top), self.program)

    def run(self, prompt: str, *options: str) -> None:
        """Let Qwen Code answer a prompt without a terminal."""
        self.beside.run(*self.program, *_OPTIONS, *options, "-p", prompt)

    def three_turns(self) -> Path:
        """Make a session of three turns; values of all but the last may leave."""
        work = self.beside.work
        book, page = work / "book.txt", work / "page.txt"
        book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
        read = ("read_file", {"file_path": str(book)})
        count = ("run_shell_command", {"command": "seq 1 600", "is_background": False})
        fail = ("run_shell_command", {"command": "seq 900; exit 3", "is_background": False})
        write = ("write_file", {"file_path": str(page), "content": "A page. " * 100})
        edit = {"file_path": str(page), "old_string": "A page. " * 50, "new_string": "B " * 200}
        self.run(asking("Read.", read, count, write))
        [path] = self.beside.files()
        long = "Once more; " + "and mind what I have said about it. " * 30
        self.run(asking(long, ("edit", edit), fail), "--resume", path.stem)
        self.run("Thank you.", "--continue")
        assert self.beside.files() == [path]
        return path
