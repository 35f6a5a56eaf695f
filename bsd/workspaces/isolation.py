"""Putting a program into a box with bubblewrap: no network, nothing writable but its workspace.

An ordinary user's box is a user namespace. Root's is none, or it could not be made of what only
root may enter; inside, before the program starts, root becomes another user and gives up every
capability. What a box holds is not supposed but looked at, once, from within.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import resource
import secrets
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bsd.core.errors import BsdError, Unavailable
from bsd.workspaces import tree
from bsd.workspaces.place import OpenWorkspace
from bsd.workspaces.record import FILE_NAME

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
_FIRST_ACCOUNT, _ACCOUNTS = 1_900_000_000, 100_000_000
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
        return _FIRST_ACCOUNT <= self.uid < _FIRST_ACCOUNT + _ACCOUNTS


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
    number = _FIRST_ACCOUNT + secrets.randbelow(_ACCOUNTS)
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


# --- the system calls that a program in a box may not make: a seccomp filter ---
#
# What a program needs that computes, compiles or runs scripts is allowed; what is refused either
# reaches beyond the box (mounts, modules, clocks, keys, other namespaces) or has been the kernel's
# weak side again and again (io_uring, bpf, userfaultfd, perf). On processors that are not listed
# here there is no filter.

# Numbers of <asm/unistd.h>: on x86-64, on those that share the generic table; None where not.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "chroot": (161, 51),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "_sysctl": (156, None),
}
# Told as if the kernel were older: libraries then take the way that the filter can look at.
_UNKNOWN = {"clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426)}
_UNKNOWN |= {"io_uring_register": (427, 427)}
_CLONE, _IOCTL = (56, 220), (16, 29)
_CLONE_NEWUSER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # typing into the terminal of whoever started bsd
_X32 = 0x40000000  # a second table of x86-64, beside every number above

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Offsets in struct seccomp_data, little-endian.
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int  # AUDIT_ARCH_…
    column: int  # in the tables above
    second_table: bool = False


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, second_table=True),
    "aarch64": _Machine(0xC00000B7, 1),
    "riscv64": _Machine(0xC00000F3, 1),
}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter for this processor; None where there is none, or the kernel takes none."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    if machine is None and not os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
        return None
    return b"".join(_instructions(known))


def _instructions(machine: _Machine) -> list[bytes]:
    """A list without a loop: each test either answers, or falls through to the next."""
    lines = [
        _one(_LOAD, _ARCH),
        _one(_EQUAL, machine.audit, 1, 0),
        _one(_RETURN, _KILL),  # a program of another table, whose numbers mean other calls
        _one(_LOAD, _NUMBER),
    ]
    if machine.second_table:
        lines += _answer(_AT_LEAST, _X32, _ERRNO | errno.ENOSYS)
    for table, code in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in table.values():
            number = numbers[machine.column]
            if number is not None:
                lines += _answer(_EQUAL, number, _ERRNO | code)
    refused = _ERRNO | errno.EPERM
    lines += [
        _one(_EQUAL, _CLONE[machine.column], 0, 3),
        _one(_LOAD, _FIRST_ARGUMENT),
        *_answer(_ANY_BIT, _CLONE_NEWUSER, refused),
        _one(_LOAD, _NUMBER),
        _one(_EQUAL, _IOCTL[machine.column], 0, 5),
        _one(_LOAD, _SECOND_ARGUMENT),
        *_answer(_EQUAL, _TIOCSTI, refused),
        *_answer(_EQUAL, _TIOCLINUX, refused),
        _one(_RETURN, _ALLOW),
    ]
    return lines


def _answer(test: int, value: int, answer: int) -> list[bytes]:
    return [_one(test, value, 0, 1), _one(_RETURN, answer)]


def _one(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One struct sock_filter."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
