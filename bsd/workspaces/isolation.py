"""Isolation of programs with bubblewrap, and common limits of their processes with systemd.

A program in bubblewrap's sandbox has no network and no capabilities, sees no other processes, and
writes only to its workspace and to file systems in memory. It can read the system's programs and
libraries; home directories and other workspaces do not exist in the sandbox.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from bsd.core.errors import Forbidden, Unavailable
from bsd.workspaces.place import OpenWorkspace
from bsd.workspaces.process import Limits

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUBBLEWRAP = "bubblewrap"
NOBODY = 65534  # the user and group of root's programs in a sandbox
# The directories that programs need to run.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SYSTEM_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"),
    *("/etc/passwd", "/etc/group", "/etc/mime.types"),
)
_PROBE_SECONDS = 10.0
_SMALLEST_TMP = 1 << 16  # bytes
_SYSTEMD = Path("/run/systemd/system")  # exists if systemd is the init system
# The variables with which systemd-run finds the user's systemd.
_BUS = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


def require_isolation(space: OpenWorkspace) -> None:
    """Check that a program in this workspace can be isolated.

    Files that root's programs leave in the workspace belong to root outside the sandbox, too. So
    for root, no other user may reach the workspace: it could contain a set-user-ID program.

    Raises:
        Unavailable: bubblewrap does not work on this machine.
        Forbidden: bsd runs as root, and other users can enter the workspace root.
    """
    if problem := why_not_isolated():
        hint = "apt install bubblewrap; or run the program without isolation: --no-isolate"
        raise Unavailable(f"programs cannot be isolated: {problem}", hint=hint)
    if os.geteuid() != 0:
        return
    for path, descriptor in ((space.path, space.fd), (space.root.path, space.root.fd)):
        found = os.fstat(descriptor)
        if found.st_uid != 0:
            raise Forbidden(
                f"{path} belongs to user {found.st_uid}, and bsd runs as root",
                hint="run bsd as that user, or without isolation: --no-isolate",
            )
    if os.fstat(space.root.fd).st_mode & 0o077:
        raise Forbidden(
            f"other users may enter {space.root.path}, where root's programs would run",
            hint=f"chmod 700 {space.root.path}; or run bsd as an ordinary user",
        )


@cache
def why_not_isolated() -> str | None:
    """Return the reason why bubblewrap cannot be used on this machine; None if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    argv = [*sandbox(Path("/usr"), {"PATH": PATH}, writable=False), "/bin/sh", "-c", "exit 0"]
    try:
        done = subprocess.run(
            argv,
            env={"PATH": PATH},
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}"
    if done.returncode == 0:
        return None
    first_line = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"bubblewrap does not work here: {first_line or f'exit code {done.returncode}'}"


def sandbox(
    workspace: Path,
    environment: Mapping[str, str],
    *,
    writable: bool = True,
    protected: Sequence[str] = (),
    readable: Sequence[Path] = (),
    memory_bytes: int = 0,
) -> list[str]:
    """Return the arguments to put before an argv to run it in a sandbox.

    Args:
        environment: the complete environment of the program.
        writable: the program may write to the workspace.
        protected: names in the workspace that stay read-only.
        readable: further directories that the program may read.
        memory_bytes: /tmp and /dev/shm each get a quarter of it; 0 means no limit.
    """
    argv = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user"]
    argv += ["--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    if os.geteuid() == 0:
        argv += ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    if "--disable-userns" in _known_options():
        argv += ["--disable-userns"]
    # /proc/sys belongs to root, and its owner may write to it even without capabilities.
    argv += [*_system_places(), "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    argv += ["--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):  # noqa: S108 - inside the sandbox
        argv += ["--perms", "1777"]
        if memory_bytes and "--size" in _known_options():
            argv += ["--size", str(max(memory_bytes // 4, _SMALLEST_TMP))]
        argv += ["--tmpfs", place]
    for path in readable:
        argv += ["--dir", str(path.parent), "--ro-bind-try", str(path), str(path)]
    bind = "--bind" if writable else "--ro-bind"
    argv += ["--dir", str(workspace.parent), bind, str(workspace), str(workspace)]
    for name in protected:
        argv += ["--ro-bind", str(workspace / name), str(workspace / name)]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(workspace), "--clearenv"]
    for name, value in environment.items():
        argv += ["--setenv", name, value]
    return [*argv, "--"]


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


@cache
def _known_options() -> str:
    """Return bubblewrap's help text; `--size` is new in 0.7, `--disable-userns` in 0.8."""
    try:
        done = subprocess.run(
            ["bwrap", "--help"], check=False, capture_output=True, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


# --- common limits of all processes of a run ---


def why_no_scope() -> str | None:
    """Return the reason why systemd cannot limit the processes of a run; None if it can."""
    if not _SYSTEMD.is_dir():
        return "systemd does not run here"
    if shutil.which("systemd-run") is None:
        return "systemd-run is not installed"
    if os.geteuid() != 0 and _BUS[0] not in os.environ:
        return "this user has no systemd session"
    return None


def scope(limits: Limits) -> list[str]:
    """Return the arguments to put before an argv to run it in a systemd scope with limits."""
    argv = [shutil.which("systemd-run") or "systemd-run", "--scope", "--quiet", "--collect"]
    if os.geteuid() != 0:
        argv.append("--user")
    if limits.memory_bytes:
        argv += ["-p", f"MemoryMax={limits.memory_bytes}", "-p", "MemorySwapMax=0"]
    if limits.processes:
        argv += ["-p", f"TasksMax={limits.processes}"]
    return [*argv, "--"]


def scope_environment() -> dict[str, str]:
    """Return the variables that systemd-run needs; the sandbox removes them."""
    return {name: os.environ[name] for name in _BUS if name in os.environ}
