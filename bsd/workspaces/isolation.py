"""Putting a program into a box with bubblewrap: no network, nothing writable but its workspace.

An ordinary user's box is a user namespace. Root's is none, or it could not be made of what only
root may enter; inside, before the program starts, root becomes another user and gives up every
capability. What a box holds is not supposed but looked at, once, from within.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bsd.foundation.errors import BsdError, Unavailable
from bsd.workspaces import tree
from bsd.workspaces.place import OpenWorkspace
from bsd.workspaces.record import FILE_NAME
from bsd.workspaces.syscalls import filter_program

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUBBLEWRAP = "bubblewrap"
# What programs need to run at all; homes, and what else lies on this machine, are not among it.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SYSTEM_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"),
    *("/etc/passwd", "/etc/group", "/etc/mime.types"),
)
_APART = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
# For the way into the workspace, and for becoming somebody else; nothing of it is left then.
_ROOTS_OWN = ("CAP_DAC_READ_SEARCH", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID")
_BECOME = ("--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
_PROBE_SECONDS = 10.0
# systemd's table of user numbers leaves 1,879,048,192 to 2,147,483,647 to nobody.
_FIRST, _COUNT = 1_900_000_000, 100_000_000
_NOBODY = 65534  # in containers that know few numbers
_MAP = Path("/proc/self/uid_map")
_LOOK = "cat /proc/self/status; grep ' /proc/sys ' /proc/self/mountinfo"


def box(  # noqa: PLR0913 - a box has as many sides
    workspace: Path,
    environment: Mapping[str, str],
    *,
    account: Account | None = None,
    seccomp: int | None = None,
    processes: int = 0,
    memory_bytes: int = 0,
    protected: Sequence[str] = (),
    readable: Sequence[Path] = (),
) -> list[str]:
    """What to put before an argv to run it in the box; `protected` names stay read-only.

    `account` is who root becomes, `seccomp` a descriptor of the filter; 0 processes or bytes (of
    what lies in memory: /tmp) are no limit.
    """
    argv = [
        shutil.which("bwrap") or "bwrap",
        *(_APART if account else ["--unshare-all"]),
        "--unshare-cgroup-try",
    ]
    argv += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for name in _ROOTS_OWN if account else ():
        argv += ["--cap-add", name]
    argv += _system_places()
    argv += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):  # noqa: S108 - its own
        argv += _in_memory(place, memory_bytes)
    for path in readable:
        argv += ["--dir", str(path.parent), "--ro-bind-try", str(path), str(path)]
    argv += ["--dir", str(workspace.parent), "--bind", str(workspace), str(workspace)]
    for name in protected:
        argv += ["--ro-bind", str(workspace / name), str(workspace / name)]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(workspace), "--clearenv"]
    for name, value in () if account else environment.items():
        argv += ["--setenv", name, value]
    if seccomp is not None:
        argv += ["--seccomp", str(seccomp)]
    return [*argv, "--", *_becoming(account, environment), *_at_most(processes)]


@contextmanager
def seccomp_filter() -> Iterator[int | None]:
    """A descriptor of the filter, to be inherited; None where there is none."""
    program = filter_program()
    if program is None:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(program)
        file.seek(0)
        yield file.fileno()


def counts_processes(account: Account | None) -> bool:
    """Whether a limit of processes counts those of the box only."""
    if account is not None:
        return account.alone
    version = re.match(r"(\d+)\.(\d+)", platform.release())  # each user namespace counts its own
    return bool(version and (int(version[1]), int(version[2])) >= (5, 14))


def why_not_isolated() -> str | None:
    """Why programs cannot be put into a box on this machine; None if they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return _trouble(os.geteuid())


@cache
def _trouble(user: int) -> str | None:
    """Try it: user namespaces may be forbidden here, and rights may be left."""
    if user == 0 and _setpriv() is None:
        return "setpriv (of util-linux), by which root becomes another user, is not installed"
    try:
        with seccomp_filter() as seccomp:
            account = spare_account() if user == 0 else None
            argv = box(Path("/usr"), {"PATH": PATH}, account=account, seccomp=seccomp)
            argv[argv.index("--bind")] = "--ro-bind"
            done = subprocess.run(
                [*argv, "/bin/sh", "-c", _LOOK],
                env={"PATH": PATH},
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_PROBE_SECONDS,
                pass_fds=() if seccomp is None else (seccomp,),
            )
    except BsdError as error:
        return error.message
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}"
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        return f"bubblewrap does not work here: {said or f'exit code {done.returncode}'}"
    left = _left(done.stdout.decode("utf-8", "replace"), filtered=seccomp is not None)
    return f"bubblewrap holds too little here: {left}" if left else None


def _left(seen: str, *, filtered: bool) -> str | None:
    """What a program in the box could still do that it should not; None if nothing."""
    facts = dict(re.findall(r"^(\w+):\s*(\S+)", seen, re.MULTILINE))
    if any(int(facts.get(name, "1"), 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")):
        return "capabilities are left"
    if facts.get("NoNewPrivs") != "1":
        return "programs may gain rights"
    if filtered and facts.get("Seccomp") != "2":
        return "system calls are not filtered"
    if int(facts.get("Uid", "0")) == 0:
        return "it is root"
    if not re.search(r" /proc/sys ro[, ]", seen):
        return "/proc/sys is writable"
    return None


def _becoming(account: Account | None, environment: Mapping[str, str]) -> list[str]:
    """The environment comes last: nothing in it must be believed while root is still root."""
    if account is None:
        return []
    setpriv = _setpriv() or "setpriv"
    who = [f"--reuid={account.uid}", f"--regid={account.gid}"]
    become = [setpriv, *who, *_BECOME, "--no-new-privs", "--"]
    return [*become, *with_environment(environment)]


def with_environment(environment: Mapping[str, str]) -> list[str]:
    """What to put before an argv for this environment and nothing else, whatever is there."""
    given = [f"{name}={value}" for name, value in environment.items()]
    return ["/usr/bin/env", "-i", "--", *given, "/bin/sh", "-c", 'exec "$@"', "sh"]


def _setpriv() -> str | None:
    """By its path: the program's own PATH must not decide what root runs."""
    return shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")


def _at_most(processes: int) -> list[str]:
    """A shell that lowers the limit inside, where nobody else is counted, and becomes the rest."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]  # beyond which nothing can be raised
    if not processes or (hard != resource.RLIM_INFINITY and hard <= processes):
        return []
    # dash and busybox call it -p, which is another thing to bash and cannot be set there.
    limit = f"ulimit -p {processes} 2>/dev/null || ulimit -u {processes}"
    return ["/bin/sh", "-c", f'{limit} && exec "$@"', "sh"]


def _in_memory(place: str, most: int) -> list[str]:
    size = ["--size", str(max(most // 4, 1 << 16))] if most and _knows_size() else []
    return ["--perms", "1777", *size, "--tmpfs", place]


@cache
def _knows_size() -> bool:
    """bubblewrap before 0.7 gives a tmpfs half of the memory."""
    try:
        done = subprocess.run(
            ["bwrap", "--help"], check=False, capture_output=True, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--size" in done.stdout + done.stderr


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


# --- whose rights a program in a box has when root starts it: never root's ---
#
# The owner of the workspace, if that is an ordinary user; else the owner of the root in which it
# lies; else a number that belongs to nobody else, taken once and kept as the workspace's owner.


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group by number; `alone`: no process outside this workspace has this user."""

    uid: int
    gid: int

    @property
    def alone(self) -> bool:
        return _FIRST <= self.uid < _FIRST + _COUNT


def account_of(space: OpenWorkspace) -> Account | None:
    """Who a program in this workspace is to be; None if simply whoever calls, who is not root."""
    if os.geteuid() != 0:
        return None
    for descriptor in (space.fd, space.root.fd):
        found = os.fstat(descriptor)
        if found.st_uid:
            return Account(found.st_uid, found.st_gid or found.st_uid)
    return spare_account()


def spare_account() -> Account:
    """A user that nobody else is; `nobody` where such numbers do not exist. Raises Unavailable."""
    number = _FIRST + secrets.randbelow(_COUNT)
    for candidate in (number, _NOBODY):
        if _exists(candidate):
            return Account(candidate, candidate)
    raise Unavailable(
        "root has no other user here that a program could run as",
        hint="run it as an ordinary user, or with --no-isolate",
    )


def hand_over(space: OpenWorkspace, account: Account) -> None:
    """Give the account what root has put into the workspace; what has other names stays root's."""
    tree.give(space.fd, account.uid, account.gid, skip=FILE_NAME)


def _exists(number: int) -> bool:
    """Whether this user number means anything in our user namespace."""
    try:
        ranges = [line.split() for line in _MAP.read_text(encoding="ascii").splitlines()]
    except OSError:  # not Linux
        return True
    return any(int(first) <= number < int(first) + int(count) for first, _, count in ranges)
