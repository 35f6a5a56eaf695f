"""Permissions of a program in a box, started by any user including root, and the report on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import Forbidden
from bsd.workspaces import Limits, create_session_sandbox, execute, isolation
from bsd.workspaces.execution import ALL, NO_LIMIT
from tests.needs import as_ordinary_user
from tests.workspaces.spaces import noted, require_isolation

_TOP = Path(__file__).parents[2]
# Reports its user, its permissions, and the results of its attempts.
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
    "no new rights": status["NoNewPrivs"],
    "sysctl": tries(open, "/proc/sys/vm/swappiness", "w"),
    "sys is read-only": bool(os.statvfs("/proc/sys").f_flag & os.ST_RDONLY),
    "given": tries(open, "given", "a"), "tmp": bool(tries(open, "/tmp/t", "w")),
    "shared memory": tries(open, "/dev/shm/t", "w"), "device": tries(open, "/dev/new", "w"),
    "unshare": number(272, 0x10000000), "pid": os.getpid() < 20,
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
    """Return the answer of a run, with the program's own report under `said`."""
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


def test_in_a_box_no_other_user_namespace_can_be_made(told: dict[str, Any]) -> None:
    if "--disable-userns" not in isolation._known_options():
        pytest.skip("needs bubblewrap 0.8")
    if os.uname().machine == "x86_64":  # the program knows its number
        assert told["said"]["unshare"] != "done"


def said_no(answer: str) -> bool:
    return answer in {"Read-only file system", "Permission denied"}


# --- root ---


@pytest.fixture
def as_root(root: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return root


def test_root_runs_nothing_isolated_in_the_workspace_of_another_user(as_root: Path) -> None:
    os.chown(as_root / "a", 4242, 4242)
    with pytest.raises(Forbidden, match="belongs to user 4242, and bsd runs as root") as caught:
        shell(as_root, "true")
    assert "--no-isolate" in (caught.value.hint or "")
    assert noted(as_root / "a")["execution_count"] == 0


def test_root_runs_nothing_isolated_where_other_users_may_enter(as_root: Path) -> None:
    """A program could leave a file there that runs as its owner, root."""
    as_root.chmod(0o755)
    with pytest.raises(Forbidden, match="other users may enter") as caught:
        shell(as_root, "true")
    assert f"chmod 700 {as_root}" in (caught.value.hint or "")


def test_the_programs_environment_is_only_the_programs(root: Path) -> None:
    """Not for commands before it, outside of the box or as root."""
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


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemd-run that records its arguments, and only has the effect of a scope."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "systemd-run"
    noted = tmp_path / "scope"
    loop = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    fake.write_text(f'#!/bin/sh\necho "$@" > {noted}\n{loop}\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(isolation, "_SYSTEMD", tmp_path)
    return noted


def test_systemd_limits_all_processes_together(root: Path, systemd: Path) -> None:
    done = shell(root, "env", processes=8, memory_bytes=1 << 30)
    assert done.error is None
    assert (done.limits["processes"], done.limits["memory_bytes"]) == (ALL, ALL)
    assert "XDG_RUNTIME_DIR" not in done.stdout
    words = systemd.read_text().partition(" -- ")[0].split()
    assert "--scope" in words
    assert {"TasksMax=8", "MemoryMax=1073741824", "MemorySwapMax=0"} <= set(words)
    assert ("--user" in words) == (os.geteuid() != 0)


def test_without_systemd_the_answer_says_which_limits_do_not_hold(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_SYSTEMD", tmp_path / "none")
    done = shell(root, "true")
    missing = "systemd does not run here"
    assert done.limits["processes"] == f"does not hold: {missing}"
    assert done.limits["memory_bytes"] == f"of each process, not {ALL}: {missing}"


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
