"""The system calls that a program in a box may not make: a seccomp filter as the kernel reads it.

What a program needs that computes, compiles or runs scripts is allowed; what is refused either
reaches beyond the box (mounts, modules, clocks, keys, other namespaces) or has been the kernel's
weak side again and again (io_uring, bpf, userfaultfd, perf). On processors that are not listed here
there is no filter.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from dataclasses import dataclass

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
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data, little-endian


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
        _one(_LOAD, _FIRST),
        *_answer(_ANY_BIT, _CLONE_NEWUSER, refused),
        _one(_LOAD, _NUMBER),
        _one(_EQUAL, _IOCTL[machine.column], 0, 5),
        _one(_LOAD, _SECOND),
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
