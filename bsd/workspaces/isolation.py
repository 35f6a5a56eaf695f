"""Isolation of programs by bubblewrap, and their limits together by systemd.

The program in bubblewrap's sandbox has no network and no capabilities, sees no other processes, and
writes only to its workspace and to file systems in memory. Of the machine it reads the system's
programs and libraries; homes and other workspaces are not there.
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
NOBODY = 65534  # the user and group that root is in a sandbox
# The directories that programs need to run.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SYSTEM_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"),
    *("/etc/passwd", "/etc/group", "/etc/mime.types"),
)
_PROBE_SECONDS = 10.0
_SMALLEST_TMP = 1 << 16  # bytes
_SYSTEMD = Path("/run/systemd/system")  # exists as long as systemd is in charge
# The variables by which systemd-run finds the user's own systemd.
_BUS = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


def require_isolation(space: OpenWorkspace) -> None:
    """Raise Unavailable if bubblewrap does not work here, Forbidden if it would not hold root.

    Root in a sandbox still owns its files outside of it: no other user may reach a file that a
    program has left in the workspace, such as one that runs as its owner.
    """
    if problem := why_not_isolated():
        hint = "apt install bubblewrap; or run it without isolation: --no-isolate"
        raise Unavailable(f"programs cannot be isolated: {problem}", hint=hint)
    if os.geteuid() != 0:
        return
    for path, descriptor in ((space.path, space.fd), (space.root.path, space.root.fd)):
        found = os.fstat(descriptor)
        if found.st_uid != 0:
            raise Forbidden(
                f"{path} belongs to user {found.st_uid}, and bsd runs as root",
                hint="run it as that user, or without isolation: --no-isolate",
            )
    if os.fstat(space.root.fd).st_mode & 0o077:
        raise Forbidden(
            f"other users may enter {space.root.path}, where root's programs would run",
            hint=f"chmod 700 {space.root.path}; or run it as an ordinary user",
        )


@cache
def why_not_isolated() -> str | None:
    """Return why bubblewrap cannot be used on this machine; None if it can."""
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
        environment: all variables of the program.
        writable: the program may write to the workspace.
        protected: names in the workspace that stay read-only.
        readable: further directories that the program may read.
        memory_bytes: a quarter of it is the size of /tmp and of /dev/shm; 0 is no limit.
    """
    argv = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user"]
    argv += ["--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    if os.geteuid() == 0:
        argv += ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    if "--disable-userns" in _known_options():
        argv += ["--disable-userns"]
    # The kernel lets the owner of its settings write them, with no capability needed: root.
    argv += [*_system_places(), "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    argv += ["--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):  # noqa: S108 - the sandbox's own
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
    """Return the help text of bubblewrap: `--size` came with 0.7, `--disable-userns` with 0.8."""
    try:
        done = subprocess.run(
            ["bwrap", "--help"], check=False, capture_output=True, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


# --- limits of all processes of a run together ---


def why_no_scope() -> str | None:
    """Return why systemd cannot limit the processes of a run together; None if it can."""
    if not _SYSTEMD.is_dir():
        return "systemd does not run here"
    if shutil.which("systemd-run") is None:
        return "systemd-run is not installed"
    if os.geteuid() != 0 and _BUS[0] not in os.environ:
        return "this user has no systemd session"
    return None


def scope(limits: Limits) -> list[str]:
    """Return the arguments to put before an argv to run it in a scope of systemd with limits."""
    argv = [shutil.which("systemd-run") or "systemd-run", "--scope", "--quiet", "--collect"]
    if os.geteuid() != 0:
        argv.append("--user")
    if limits.memory_bytes:
        argv += ["-p", f"MemoryMax={limits.memory_bytes}", "-p", "MemorySwapMax=0"]
    if limits.processes:
        argv += ["-p", f"TasksMax={limits.processes}"]
    return [*argv, "--"]


def scope_environment() -> dict[str, str]:
    """Return the variables that systemd-run needs; the sandbox does not pass them on."""
    return {name: os.environ[name] for name in _BUS if name in os.environ}
