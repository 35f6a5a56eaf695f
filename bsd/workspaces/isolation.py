"""Putting a program into a box with bubblewrap: no network, nothing writable but its workspace."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUBBLEWRAP = "bubblewrap"
# What programs need to run at all; homes, and what else lies on this machine, are not among it.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SYSTEM_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"),
    *("/etc/passwd", "/etc/group", "/etc/mime.types"),
)
_PROBE_SECONDS = 10.0


def box(
    workspace: Path,
    environment: Mapping[str, str],
    *,
    protected: Sequence[str] = (),
    readable: Sequence[Path] = (),
) -> list[str]:
    """What to put before an argv to run it in the box; `protected` names stay read-only."""
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    argv += _system_places()
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - its own
    for path in readable:
        argv += ["--ro-bind-try", str(path), str(path)]
    argv += ["--bind", str(workspace), str(workspace)]
    for name in protected:
        argv += ["--ro-bind", str(workspace / name), str(workspace / name)]
    argv += ["--remount-ro", "/", "--chdir", str(workspace), "--clearenv"]
    for name, value in environment.items():
        argv += ["--setenv", name, value]
    return [*argv, "--"]


def why_not_isolated() -> str | None:
    """Why programs cannot be put into a box on this machine; None if they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return _trouble(os.geteuid())


@cache
def _trouble(_user: int) -> str | None:
    """Try it: user namespaces may be forbidden here."""
    argv = box(Path("/usr"), {"PATH": PATH})
    argv[argv.index("--bind")] = "--ro-bind"
    try:
        done = subprocess.run(
            [*argv, "true"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"bubblewrap does not work here: {said or f'exit code {done.returncode}'}"


def _system_places() -> list[str]:
    argv = []
    for place in _SYSTEM:
        if os.path.islink(place):  # /bin -> usr/bin
            argv += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            argv += ["--ro-bind", place, place]
    for place in _SYSTEM_FILES:
        argv += ["--ro-bind-try", place, place]
    return argv
