from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from bsd.core import processes
from bsd.core.processes import give_back_memory
from tests.needs import require_linux


def test_a_process_lives_until_it_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert processes.alive(child.pid)
    child.communicate()
    assert not processes.alive(child.pid)
    assert processes.starttime(child.pid) is None
    assert processes.argv(child.pid) == ()


def test_two_processes_started_at_different_times() -> None:
    require_linux()
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0]) * os.sysconf("SC_CLK_TCK")
    ours, init = processes.starttime(os.getpid()), processes.starttime(1)
    assert ours is not None
    assert init is not None
    assert init < ours <= uptime + 1


def test_a_programs_name_cannot_shift_the_fields() -> None:
    require_linux()
    program = """if True:
        open("/proc/self/comm", "w").write("a) R (1 2")
        print("ready", flush=True)
        input()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    start, ours = processes.starttime(child.pid), processes.starttime(os.getpid())
    child.communicate()
    assert start is not None
    assert ours is not None
    assert start >= ours


def test_a_command_line_keeps_its_empty_arguments() -> None:
    require_linux()
    command = [sys.executable, "-c", "print(flush=True); input()", "", "two words", "ö", ""]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()  # right after exec there is a moment without a command line
    assert processes.argv(child.pid) == tuple(command)
    child.communicate()


# --- free memory returns to the system if the C library can return it ---


# Thousands of small pieces, of which the last stays: unless told, glibc then keeps all of them.
_PIECES = """
from bsd.core.processes import give_back_memory

def taken():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pieces = [bytes(1000) for _ in range(60_000)]
full = taken()
del pieces[:-1]
give_back_memory()
print(full - taken())
"""


def test_free_memory_is_given_back() -> None:
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("needs glibc")
    told = subprocess.run(
        [sys.executable, "-c", _PIECES], check=True, capture_output=True, text=True
    )
    assert int(told.stdout) > 40_000_000


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_library_that_cannot_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Mock(spec=[]))
    monkeypatch.setattr(sys, "platform", platform)
    give_back_memory()
