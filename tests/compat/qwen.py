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
# The program would start itself again, with a larger heap.
_QUICK = {"QWEN_CODE_NO_RELAUNCH": "true"}
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
        env |= _QUICK | {"NODE_COMPILE_CACHE": str(work.parent / "compiled")}
        beside = Beside(top, "qwen", SESSIONS, work, env)
        package = node_modules("Qwen Code", "qwen") / "@qwen-code" / "qwen-code"
        qwen = cls(beside, (node, str(package / "cli.js")))
        qwen.settings.write_text(json.dumps(_SETTINGS))
        return qwen

    def copy_to(self, top: Path) -> QwenCode:
        """Copy the home with its sessions."""
        return QwenCode(self.beside.copy_to(top), self.program)

    def run(self, prompt: str, *options: str) -> None:
        """Let Qwen Code answer a prompt without a terminal."""
        self.beside.run(*self.program, *_OPTIONS, *options, "-p", prompt)

    @property
    def settings(self) -> Path:
        """The user's settings."""
        return self.beside.source.parent / "settings.json"

    def one_turn(self) -> Path:
        """Make a session with a long prompt, and results of several kinds."""
        work = self.beside.work
        book, page = work / "book.txt", work / "page.txt"
        book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
        end = "A page. " * 50
        edit = {"file_path": str(page), "old_string": f"{end}The end.", "new_string": "B " * 200}
        calls = (
            ("read_file", {"file_path": str(book)}),
            ("run_shell_command", {"command": "seq 1 600", "is_background": False}),
            ("write_file", {"file_path": str(page), "content": f"{end}{end}The end."}),
            ("edit", edit),
            ("run_shell_command", {"command": "seq 900; exit 3", "is_background": False}),
        )
        self.run(asking("Read, " + "and mind what I have said about it. " * 30, *calls))
        [path] = self.beside.files()
        return path
