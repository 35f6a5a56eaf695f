"""Runs a program under the system call restrictions of a unit on machines without systemd.

    python -m tests.packaging.sandbox UNIT PROGRAM ARGUMENT...

Applies SystemCallFilter, SystemCallErrorNumber=EPERM, MemoryDenyWriteExecute, NoNewPrivileges and
RestrictAddressFamilies=AF_UNIX of the unit. libseccomp builds the filters as systemd does, and they
hold for all processes that the program starts. Settings that need mount namespaces are left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.packaging.units import Unit

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000  # with an errno
_NOT_EQUAL, _MASKED_EQUAL = 1, 7
_PROT_WRITE, _PROT_EXEC, _SHM_EXEC = 2, 4, 0o100000


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class _Filter:
    """A seccomp filter; if several are loaded, all of them apply."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._library.seccomp_init.argtypes = [ctypes.c_uint32]
        self._library.seccomp_load.argtypes = [ctypes.c_void_p]
        self._library.seccomp_rule_add_array.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.POINTER(_Comparison),
        ]
        self._context = self._library.seccomp_init(default)
        if not self._context:
            raise OSError("seccomp_init failed")

    def add(self, action: int, call: str, *comparisons: _Comparison) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # not a system call of this machine
            return
        array = (_Comparison * len(comparisons))(*comparisons)
        self._check(
            self._library.seccomp_rule_add_array(
                self._context, action, number, len(comparisons), array
            )
        )

    def load(self) -> None:
        """Load the filter for the rest of the process; it permits no new privileges."""
        self._check(self._library.seccomp_load(self._context))

    @staticmethod
    def _check(result: int) -> None:
        if result < 0:
            raise OSError(-result, os.strerror(-result))


def allowed_calls(unit: Unit) -> set[str]:
    """Return the system calls that the unit's SystemCallFilter lines allow in systemd's reading."""
    calls = _expand("@default")
    for line in unit.all("SystemCallFilter"):
        named: set[str] = set().union(*map(_expand, line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


@cache
def _expand(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    members = re.findall(r"^    (@?\w[\w-]*)$", listed, re.MULTILINE)
    assert members, listed
    return set().union(*map(_expand, members))


def restrict(unit: Unit) -> None:
    """Restrict this process and its future children as the unit does; there is no way back."""
    calls = allowed_calls(unit)  # read before the filters forbid starting programs
    if unit.all("MemoryDenyWriteExecute") == ["yes"]:
        _no_memory_both_written_and_run().load()
    if unit.all("RestrictAddressFamilies") == ["AF_UNIX"]:
        families = _Filter(_ALLOW)
        other = _Comparison(0, _NOT_EQUAL, socket.AF_UNIX, 0)
        families.add(_REFUSE | errno.EAFNOSUPPORT, "socket", other)
        families.load()
    assert unit.one("SystemCallErrorNumber") == "EPERM"
    _only(calls).load()


def _only(calls: Iterable[str]) -> _Filter:
    filter_ = _Filter(_REFUSE | errno.EPERM)
    for call in calls:
        filter_.add(_ALLOW, call)
    return filter_


def _no_memory_both_written_and_run() -> _Filter:
    filter_ = _Filter(_ALLOW)
    refuse = _REFUSE | errno.EPERM
    both = _PROT_WRITE | _PROT_EXEC
    filter_.add(refuse, "mmap", _Comparison(2, _MASKED_EQUAL, both, both))
    for call in ("mprotect", "pkey_mprotect"):
        filter_.add(refuse, call, _Comparison(2, _MASKED_EQUAL, _PROT_EXEC, _PROT_EXEC))
    filter_.add(refuse, "shmat", _Comparison(2, _MASKED_EQUAL, _SHM_EXEC, _SHM_EXEC))
    return filter_


def main() -> None:
    unit, *argv = sys.argv[1:]
    restrict(Unit.read(Path(unit)))
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
