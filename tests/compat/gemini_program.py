"""Gemini CLI, the released program, in a home of a test."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.compat.beside import Beside
from tests.compat.gemini_api import GeminiModel
from tests.compat.messages_api import asking

Json = dict[str, Any]

SESSIONS = ".gemini/tmp"
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
}
_ENVIRONMENT = {
    "GEMINI_API_KEY": "nobody's",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "GEMINI_CLI_NO_RELAUNCH": "1",
}
_OPTIONS = ("--model", "gemini-2.5-flash", "--approval-mode", "yolo")


@dataclass(frozen=True)
class GeminiCli:
    """Gemini CLI, in a home."""

    beside: Beside
    program: tuple[str, ...]
    model: GeminiModel

    def copy_to(self, top: Path) -> GeminiCli:
        """Copy the home to another place."""
        return replace(self, beside=self.beside.copy_to(top))

    def run(self, prompt: str, *options: str) -> list[Json]:
        """Let it answer a prompt without a terminal; return the contents that it sent last.

        The home has the same name in all of them.
        """
        self.beside.run(*self.program, *_OPTIONS, *options, "--prompt", prompt)
        sent = json.dumps(self.model.contents()).replace(str(self.beside.home), "HOME")
        contents: list[Json] = json.loads(sent)
        return contents

    def resume(self, prompt: str) -> list[Json]:
        """Let it continue its only session; return the contents that it sent last.

        It makes a file of its own for each resumed session, whose name has the current minute.
        """
        path = self.session
        for other in self.beside.files():
            if other != path:
                other.unlink()
        return self.run(prompt, "--resume", "latest")

    @property
    def session(self) -> Path:
        """The file of the session; the others have no message."""
        return max(self.beside.files(), key=lambda path: path.stat().st_size)


def command(node: str, modules: Path) -> tuple[str, ...]:
    """Return the command of the program in a node_modules directory."""
    return (node, str(modules / "@google" / "gemini-cli" / "bundle" / "gemini.js"))


def home(top: Path, work: Path, model: GeminiModel) -> Beside:
    """Return an empty home for Gemini CLI, with a root of bsd."""
    env = _ENVIRONMENT | {"GOOGLE_GEMINI_BASE_URL": model.url}
    beside = Beside(top, "gemini", SESSIONS, work, env)
    (beside.source.parent / "settings.json").write_text(json.dumps(_SETTINGS))
    return beside


def three_turns(gemini: GeminiCli) -> None:
    """Make a session of three turns, the second and third of which resume it."""
    book = gemini.beside.work / "book.txt"
    book.write_text("".join(f"{n} a line of a file that somebody reads\n" for n in range(300)))
    command = ("run_shell_command", {"command": "seq 1 600"})
    gemini.run(asking("Read.", ("read_file", {"file_path": str(book)}), command))
    _age(gemini)
    gemini.resume(asking("Once more.", ("run_shell_command", {"command": "seq 1000 1900"})))
    _age(gemini)
    gemini.resume("Thank you.")
    _age(gemini)


def _age(gemini: GeminiCli) -> None:
    """Rename the session as if it had begun long ago: the program names files by the minute."""
    path = gemini.session
    path.rename(path.with_name(f"session-2026-01-02T03-04-{path.stem[-8:]}.jsonl"))
