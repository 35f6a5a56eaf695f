"""The commands that bsd writes into the configuration of agents' programs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from bsd.core.errors import BsdError
from bsd.core.locations import find_socket, usual_root
from bsd.transcripts.agents.setup_files import SetupCommands


def own_command() -> list[str]:
    """Return the command that runs this bsd from any directory."""
    name = os.path.basename(sys.argv[0])
    found = shutil.which(sys.argv[0]) if name == "bsd" else None
    # Links are not resolved: the target may move with the next version.
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "bsd"]


def hook_script() -> Path:
    """Return the path of the script that Claude Code's hooks run."""
    return Path(__file__).with_name("claude_hook.py")


def setup_commands(options: tuple[str, ...], socket: Path) -> SetupCommands:
    """Return the commands for programs of this user.

    Args:
        options: the global options that bsd needs to find its root and settings.
        socket: the daemon's socket.
    """
    script = str(hook_script())
    hook = [sys.executable, "-I", "-S", script]
    if not _is_usual(socket):
        hook += ["--socket", str(socket)]
    # If bsd is removed without `bsd agents off`, Python exits with 2, and Claude Code would then
    # not let the agent end its turn. So the command ignores errors.
    command = f"{shlex.join(hook)} 2>/dev/null || true"
    return SetupCommands((*own_command(), *options, "mcp"), command, script, options)


def _is_usual(socket: Path) -> bool:
    """Return True if the script finds the socket without an option, in any environment."""
    home = {"HOME": os.environ.get("HOME", "")}
    try:
        return socket == find_socket(usual_root(home), home)
    except BsdError:  # two roots exist
        return False
