from __future__ import annotations

import os
import subprocess
import sys

from bsd.foundation import process
from tests.needs import require_linux


def test_a_process_lives_until_it_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.alive(child.pid)
    child.communicate()
    assert not process.alive(child.pid)
    assert process.starttime(child.pid) is None
    assert process.argv(child.pid) == ()


def test_two_processes_started_at_different_times() -> None:
    require_linux()
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0]) * os.sysconf("SC_CLK_TCK")
    ours, init = process.starttime(os.getpid()), process.starttime(1)
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
    start, ours = process.starttime(child.pid), process.starttime(os.getpid())
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
    assert process.argv(child.pid) == tuple(command)
    child.communicate()
