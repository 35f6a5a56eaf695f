"""The filter of system calls, run here as the kernel would run it."""

from __future__ import annotations

import errno
import struct

import pytest

from bsd.workspaces.isolation import filter_program

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSED, _UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_NEWUSER = 0x10000000


def answer(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter answers to this call."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    audit = _ARCH[machine] if arch is None else arch
    data = struct.pack("<IIQ6Q", number, audit, 0, *given)
    program = filter_program(machine)
    assert program is not None
    lines = list(struct.iter_unpack("=HBBI", program))
    here, value = 0, 0
    while True:
        code, if_true, if_false, operand = lines[here]
        here += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x06:
                return int(operand)
            case 0x15 | 0x35 | 0x45:
                tests = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand}
                here += if_true if tests[code] else if_false
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize(
    ("machine", "name", "number"),
    [
        *(("x86_64", name, number) for name, number in {
            "mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "keyctl": 250, "reboot": 169,
            "init_module": 175, "settimeofday": 164, "open_by_handle_at": 304, "pivot_root": 155,
        }.items()),
        *(("aarch64", name, number) for name, number in {
            "mount": 40, "unshare": 97, "setns": 268, "bpf": 280, "keyctl": 219, "reboot": 142,
        }.items()),
    ],
)  # fmt: skip
def test_what_reaches_beyond_the_box_is_refused(machine: str, name: str, number: int) -> None:
    assert answer(machine, number) == _REFUSED


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        ("x86_64", {0, 1, 2, 9, 57, 59, 61, 101, 231, 257, 302, 318}),  # read … execve, ptrace …
        ("aarch64", {56, 63, 64, 93, 117, 221, 222, 261}),
    ],
)
def test_what_programs_do_is_allowed(machine: str, numbers: set[int]) -> None:
    assert {answer(machine, number) for number in numbers} == {_ALLOW}


@pytest.mark.parametrize(("machine", "clone", "ioctl"), [("x86_64", 56, 16), ("aarch64", 220, 29)])
def test_arguments_count(machine: str, clone: int, ioctl: int) -> None:
    assert answer(machine, clone, 0x11) == _ALLOW
    assert answer(machine, clone, _NEWUSER | 0x11) == _REFUSED
    assert answer(machine, ioctl, 0, 0x5401) == _ALLOW
    assert answer(machine, ioctl, 0, 0x5412) == _REFUSED
    assert answer(machine, ioctl, 0, 0x5412 | 1 << 32) == _REFUSED, "the kernel takes 32 bits"
    assert answer(machine, ioctl, 0, 0x541C) == _REFUSED
    assert answer(machine, 435) == _UNKNOWN, "clone3, whose flags no filter can see"


def test_other_tables_of_numbers_are_no_way_round() -> None:
    assert answer("x86_64", 21, arch=0x40000003) == _KILL  # mount, for programs of 32 bits
    assert answer("x86_64", 165 | 0x40000000) == _UNKNOWN


def test_a_processor_that_is_not_listed_has_no_filter() -> None:
    assert filter_program("s390x") is None
