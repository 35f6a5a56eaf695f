"""What a program in a box may do: whoever starts it, root too, and what the answer says of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bsd.workspaces import Limits, create_session_sandbox, execute, isolation
from bsd.workspaces.execution import ALL, NO_LIMIT
from bsd.workspaces.isolation import filter_program
from tests.needs import as_ordinary_user
from tests.workspaces.spaces import fake_bubblewrap, noted, require_isolation

_TOP = Path(__file__).parents[2]
# Says of itself who it is, what it may do, and what it tried.
_PROGRAM = """
import ctypes, json, os, re
status = dict(re.findall(r"^(\\w+):\\s*(.*)$", open("/proc/self/status").read(), re.M))
def tries(what, *arguments):
    try:
        return str(what(*arguments))
    except OSError as error:
        return error.strerror
def number(call, *arguments):
    ctypes.set_errno(0)
    libc = ctypes.CDLL(None, use_errno=True)
    return "done" if libc.syscall(call, *arguments) == 0 else os.strerror(ctypes.get_errno())
print(json.dumps({
    "ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(),
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no new rights": status["NoNewPrivs"], "filtered": status["Seccomp"],
    "sysctl": tries(open, "/proc/sys/vm/swappiness", "w"),
    "sys is read-only": bool(os.statvfs("/proc/sys").f_flag & os.ST_RDONLY),
    "given": tries(open, "given", "a"), "tmp": bool(tries(open, "/tmp/t", "w")),
    "shared memory": tries(open, "/dev/shm/t", "w"), "device": tries(open, "/dev/new", "w"),
    "unshare": number(272, 0x10000000), "keyctl": number(250, 0, 0, 0),
    "reboot": number(169, 0, 0, 0), "pid": os.getpid() < 20,
}))
"""
_HOST = """
import json, pathlib, sys, tempfile
from bsd.core.answers import as_json
from bsd.workspaces import create_session_sandbox
root = pathlib.Path(tempfile.mkdtemp())
box = create_session_sandbox("a", root)
(box.path / "given").write_text("x")
done = box.execute(["python3", "-c", sys.argv[1]], isolate=True)
print(json.dumps(as_json(done)))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_isolation()
    create_session_sandbox("a", tmp_path / "workspace")
    return tmp_path / "workspace"


def shell(root: Path, script: str, **limits: Any) -> Any:
    return execute("a", ["sh", "-c", script], root, isolate=True, limits=Limits(**limits))


@pytest.fixture(params=["as who runs the tests", "as an ordinary user"])
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The answer of a run, with what the program said of itself under `said`."""
    require_isolation()
    if shutil.which("python3", path=isolation.PATH) is None:
        pytest.skip("needs a Python among the system's programs")
    before = as_ordinary_user() if request.param == "as an ordinary user" else []
    answer = subprocess.run(
        [*before, sys.executable, "-c", _HOST, _PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        cwd=_TOP,
    )
    document: dict[str, Any] = json.loads(answer.stdout)
    assert document["error"] is None, document
    return {**document, "said": json.loads(document["stdout"])}


def test_nobody_in_a_box_is_root_or_may_what_root_may(told: dict[str, Any]) -> None:
    said = told["said"]
    assert told["isolated"]
    assert told["user"] != 0
    assert set(said["ids"][:3]) == {told["user"]}
    assert 0 not in said["ids"]
    assert 0 not in said["groups"]
    assert [int(each, 16) for each in said["capabilities"]] == [0] * 5
    assert said["no new rights"] == "1"
    assert said["pid"], "it sees no other processes"


def test_in_a_box_the_kernels_settings_are_read_only(told: dict[str, Any]) -> None:
    assert said_no(told["said"]["sysctl"])
    assert told["said"]["sys is read-only"]
    assert said_no(told["said"]["device"])


def test_what_was_put_into_the_workspace_is_the_programs(told: dict[str, Any]) -> None:
    assert "name='given'" in told["said"]["given"]
    assert told["said"]["tmp"]
    assert "name='/dev/shm/t'" in told["said"]["shared memory"]


@pytest.mark.skipif(filter_program() is None, reason="needs a filter for this processor")
def test_system_calls_that_reach_beyond_the_box_are_refused(told: dict[str, Any]) -> None:
    assert told["said"]["filtered"] == "2"
    if os.uname().machine == "x86_64":  # of which the program knows the numbers
        calls = [told["said"][name] for name in ("unshare", "keyctl", "reboot")]
        assert calls == ["Operation not permitted"] * 3


def said_no(answer: str) -> bool:
    return answer in {"Read-only file system", "Permission denied"}


# --- whose the workspace is ---


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_roots_workspace_gets_a_user_of_its_own_and_keeps_it(root: Path) -> None:
    space = root / "a"
    (space / "deep").mkdir()
    (space / "deep" / "mine").write_text("x")
    (space / "deep" / "mine").chmod(0o600)
    outside = root.parent / "elsewhere"
    outside.write_text("with two names")
    os.link(outside, space / "linked")
    (space / "pointing").symlink_to(outside)
    first = shell(root, "cat deep/mine && echo more >> deep/mine && echo new > new")
    assert first.error is None
    assert first.user >= 1 << 30, "a number that belongs to nobody"
    for name in ("", "deep", "deep/mine", "new"):
        assert (space / name).stat().st_uid == first.user
    assert outside.stat().st_uid == 0, "its other name may lie anywhere"
    assert stat.S_IMODE(outside.stat().st_mode) == stat.S_IMODE(outside.lstat().st_mode)
    assert shell(root, "true").user == first.user
    assert noted(space)["execution_count"] == 2
    other = create_session_sandbox("b", root)
    assert other.execute(["true"]).user != first.user


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("whose", ["a", "."], ids=["the workspace's", "the root's"])
def test_an_ordinary_owner_is_who_roots_program_runs_as(whose: str, root: Path) -> None:
    os.chown(root / whose, 4242, 4343)
    done = shell(root, "id -u; id -g; id -G; echo x > made")
    assert done.stdout.split() == ["4242", "4343", "4343"]
    assert (root / "a" / "made").stat().st_uid == 4242


def test_the_programs_environment_is_only_the_programs(root: Path) -> None:
    """Not of what goes before it, outside of the box or as root."""
    for name in ("bwrap", "setpriv", "sh", "env", "systemd-run"):
        (root / "a" / name).write_text(f"#!/bin/sh\nid -u > {root}/a/who-{name}\n")
        (root / "a" / name).chmod(0o755)
    tool = root / "a" / "loaded.so"
    tool.write_text("no library")
    path = f"{root / 'a'}:/usr/bin:/bin"
    given = {"PATH": path, "LD_PRELOAD": str(tool), "A": "1 2"}
    done = execute("a", ["id", "-u"], root, isolate=True, env=given)
    assert done.stdout.strip() == str(done.user)
    assert not list((root / "a").glob("who-*"))
    told = execute("a", ["/usr/bin/env"], root, isolate=True, env=given).stdout.splitlines()
    assert {"A=1 2", f"PATH={path}", f"LD_PRELOAD={tool}"} <= set(told)
    assert done.stderr.count("cannot be preloaded") <= 3, "only in the box, as whom it is for"


# --- limits ---


def test_processes_are_limited_and_the_answer_says_so(root: Path) -> None:
    script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo all"
    done = shell(root, script, processes=8)
    assert not done.succeeded
    assert "all" not in done.stdout
    assert done.limits["processes"] == ALL
    assert shell(root, script.replace("sleep 5", "sleep 0"), processes=64).stdout == "all\n"


def test_a_workspace_that_grows_over_its_limit_is_ended(root: Path) -> None:
    step = "head -c 1000000 /dev/zero > file$n; n=$((n + 1)); sleep 0.05"
    done = shell(root, f"n=0; while [ $n -lt 2000 ]; do {step}; done", disk_bytes=3_000_000)
    assert "more than its limit of 2.9 MB" in (done.error or "")
    assert not done.timed_out
    again = shell(root, "echo started")
    assert again.succeeded, "its limit is another one"
    full = shell(root, "echo started", disk_bytes=3_000_000)
    assert "more than its limit" in (full.error or "")
    assert (full.stdout, full.exit_code) == ("", None)
    quick = shell(root, "head -c 9000000 /dev/zero > big", disk_bytes=99_000_000)
    assert quick.error is None


def test_one_that_is_quicker_than_any_look_is_told(root: Path) -> None:
    done = shell(root, "head -c 5000000 /dev/zero > big", disk_bytes=1_000_000)
    assert "more than its limit of" in (done.error or "")
    assert done.exit_code == 0


def test_what_lies_in_memory_is_limited_too(root: Path) -> None:
    for place in ("/tmp", "/dev/shm"):
        done = shell(root, f"head -c 60000000 /dev/zero > {place}/big", memory_bytes=160_000_000)
        assert "No space left" in done.stderr, done


def test_no_limits_are_none(root: Path) -> None:
    none = {"processes": 0, "disk_bytes": 0, "memory_bytes": 0, "file_bytes": 0, "cpu_seconds": 0}
    done = shell(root, "echo x", seconds=0.0, **none)
    assert done.stdout == "x\n"
    assert set(done.limits.values()) == {NO_LIMIT}


# --- the truth ---


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("CapEff:\t00000000a80425fb", "capabilities are left"),
        ("NoNewPrivs:\t0", "programs may gain rights"),
        ("Seccomp:\t0", "system calls are not filtered"),
        ("Uid:\t0\t0\t0\t0", "it is root"),
        ("1 2 0:3 / /proc/sys rw,relatime - proc proc rw", "/proc/sys is writable"),
    ],
)
def test_a_box_that_holds_too_little_is_none(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ["CapPrm:\t0", "CapEff:\t0", "CapBnd:\t0", "CapAmb:\t0", "NoNewPrivs:\t1", "Seccomp:\t2"]
    good += ["Uid:\t7\t7\t7\t7", "1 2 0:3 / /proc/sys ro,relatime - proc proc rw"]
    monkeypatch.setattr(isolation, "filter_program", lambda: b"\0" * 8)
    for lines, expected in ((good, None), ([*_without(good, line), line], says)):
        seen = tmp_path / f"seen-{expected is None}"
        seen.mkdir()
        (seen / "text").write_text("\n".join(lines) + "\n")
        with monkeypatch.context() as patched:
            fake_bubblewrap(seen, f"cat {seen}/text", patched)
            isolation._trouble.cache_clear()
            try:
                trouble = isolation.why_not_isolated()
            finally:
                isolation._trouble.cache_clear()
        assert trouble == (expected and f"bubblewrap holds too little here: {expected}")


def _without(lines: list[str], line: str) -> list[str]:
    """All lines but the one of this name."""
    name = "/proc/sys" if "/proc/sys" in line else line.partition("\t")[0]
    return [each for each in lines if name not in each]
