"""A program's home with bsd: a separate root, with the program's directory as a source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked
from tests.openclaw_tree import set_idle
from tests.waiting import DEADLINE_SECONDS

EVERYTHING = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
_XDG = {"CONFIG": ".config", "STATE": ".local/state", "DATA": ".local/share", "CACHE": ".cache"}
_NOT_PASSED_ON = ("CLAUDE", "ANTHROPIC_", "PI_", "AI_AGENT", "BRAINSURGEON_")


@dataclass(frozen=True)
class Beside:
    """A home with one program's sessions, and bsd's root."""

    top: Path
    kind: str  # of source
    sessions: str  # directory of the sessions below the home
    work: Path  # directory in which the program runs: its name is part of the sessions' path
    env: dict[str, str] = field(default_factory=dict)  # in addition to the usual variables
    # prefix of a command that runs it as another user
    user: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in (self.source, self.root, self._config.parent, self.work):
            path.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f'[[sources]]\nkind = "{self.kind}"\npath = "{self.source}"\nname = "{self.kind}"\n'
        )
        own = self.root / ".brainsurgeon"
        own.mkdir(mode=0o700, exist_ok=True)
        settings = {"keep_recent": 0, "min_value_length": 200, "prefix_bound": "extract"}
        settings |= {"auto_cron": "0 0 1 1 *", "retention_cron": "0 0 1 1 *"}
        (own / "config.json").write_text(json.dumps(settings | {"trigger_types": EVERYTHING}))

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def source(self) -> Path:
        return self.home / self.sessions

    @property
    def _config(self) -> Path:
        return self.home / ".config" / "bsd" / "bsd.toml"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs in these tests."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
        own = {f"XDG_{what}_HOME": str(self.home / where) for what, where in _XDG.items()}
        return {**kept, "HOME": str(self.home), **own, **self.env}

    def copy_to(self, top: Path) -> Beside:
        """Copy everything to another place; programs keep the original working directory."""
        shutil.copytree(self.top, top, dirs_exist_ok=True)
        env = {k: v.replace(str(self.top), str(top)) for k, v in self.env.items()}
        return Beside(top, self.kind, self.sessions, self.work, env, self.user)

    def run(
        self, *command: str, ok: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here to its end."""
        done = subprocess.run(
            [*self.user, *command],
            cwd=cwd or self.work,
            env=self.environment,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        if ok:
            assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def bsd_command(self, *arguments: str) -> list[str]:
        """The command line of bsd on this root, for a program to run: bsd sees its caller."""
        return [sys.executable, "-m", "bsd", "--root", str(self.root), *arguments]

    def bsd(self, *arguments: str, ok: bool = True) -> Any:
        """Return the answer of bsd as a document; `ok` if it must succeed."""
        if self.user:  # the server of forked commands runs them as its own user
            done = self.run(*self.bsd_command("--json", *arguments), ok=ok)
        else:
            words = ("--root", str(self.root), "--json", *arguments)
            done = forked.run(*words, env=self.environment, cwd=self.work)
            assert not ok or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def rest(self) -> None:
        """Age all sessions, so that none counts as in use."""
        for path in self.files():
            set_idle(path)

    def extract(self) -> Any:
        """Extract everything that may leave; fail if no value left."""
        self.rest()
        done = self.bsd("extract")
        assert done["totals"]["values"] > 0, done
        return done

    def restore_all(self, *, ok: bool = True) -> Any:
        """Restore all values; extraction is off from then on."""
        self.rest()
        return self.bsd("restore-all", "--yes", ok=ok)

    def files(self) -> list[Path]:
        """Return the files of all sessions."""
        return sorted(self.source.rglob("*.jsonl"))

    def the_new_file(self, before: list[Path]) -> Path:
        """The only session file that is new."""
        [found] = set(self.files()) - {*before}
        return found


def placeholders(content: bytes) -> int:
    """Return the number of extracted values in lines, apart from the program's mere records."""
    return sum(
        line.count(b'"[[extracted-')
        for line in content.splitlines()
        if not line.startswith((b'{"type":"api-request', b'{"type":"last-prompt'))
    )
