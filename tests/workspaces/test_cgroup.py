"""Limits of a run as a whole: from systemd, from a delegated cgroup, or said to be missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.workspaces import Limits, create_session_sandbox, execute, process
from bsd.workspaces.execution import ALL
from bsd.workspaces.process import delegated, group

_LIMITS = Limits(memory_bytes=64 << 20, processes=64)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A directory that looks like a cgroup of ours, with the limits given to those in it."""
    parent = tmp_path / "cgroup" / "ours"
    parent.mkdir(parents=True)
    (parent / "cgroup.procs").touch()
    (parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "mounts").write_text(f"31 23 0:28 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/ours/leaf\n")
    return parent


def found(tmp_path: Path) -> Path | str:
    return delegated(tmp_path / "own", tmp_path / "mounts")


def test_the_one_above_ours_is_taken_if_it_limits(mounted: Path, tmp_path: Path) -> None:
    assert found(tmp_path) == mounted
    (tmp_path / "own").write_text("0::/ours\n")
    assert found(tmp_path) == mounted


@pytest.mark.parametrize("control", ["cpu", "memory", "pids", ""])
def test_one_that_does_not_limit_both_is_none(control: str, mounted: Path, tmp_path: Path) -> None:
    (mounted / "cgroup.subtree_control").write_text(control)
    assert "no cgroup that could limit" in str(found(tmp_path))


def test_without_cgroups_there_is_none(mounted: Path, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("4:memory:/old\n")
    assert found(tmp_path) == "there is no cgroup v2 here"
    (tmp_path / "own").unlink()
    assert found(tmp_path) == "there is no cgroup v2 here"
    (tmp_path / "own").write_text("0::/ours\n")
    (tmp_path / "mounts").write_text("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n")
    assert found(tmp_path) == "there is no cgroup v2 here"


@pytest.fixture
def without_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_SYSTEMD", tmp_path / "no-systemd")


@pytest.mark.usefixtures("without_systemd")
def test_a_run_joins_a_group_of_its_own(
    mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "delegated", lambda: mounted)
    made = []

    def make(directory: Path, limits: Limits) -> None:
        directory.mkdir()
        made.append((directory, limits))
        (directory / "cgroup.procs").touch()
        for name, line in (("memory.events", "oom 1\noom_kill 0\n"), ("pids.events", "max 3\n")):
            (directory / name).write_text(line)

    monkeypatch.setattr(process, "_make", make)
    monkeypatch.setattr(process, "_END_SECONDS", 0.0)
    create_session_sandbox("a", tmp_path / "spaces")
    done = execute("a", ["sh", "-c", "echo $$"], tmp_path / "spaces", isolate=False, limits=_LIMITS)
    directory, limits = made[0]
    assert limits == _LIMITS
    assert (directory / "cgroup.procs").read_text() == done.stdout, "it joined before it began"
    assert (directory / "cgroup.kill").read_text() == "1\n"
    assert (done.limits["memory_bytes"], done.limits["processes"]) == (ALL, ALL)
    assert done.error == "it wanted more than 64 processes at once"


def test_a_group_has_the_limits_and_goes(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = mounted / "one"
    process._make(directory, _LIMITS)
    assert (directory / "memory.max").read_text() == f"{64 << 20}\n"
    assert (directory / "memory.swap.max").read_text() == "0\n"
    assert (directory / "pids.max").read_text() == "64\n"
    for file in directory.iterdir():  # the kernel's files go with their directory
        file.unlink()
    os.mkfifo(directory / "cgroup.kill")  # refuses to be written: nobody is left
    (directory / "cgroup.kill").unlink()
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)
    process._end(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("without_systemd")
def test_a_group_that_cannot_be_made_is_said_to_be_missing(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(directory: Path, limits: Limits) -> None:
        directory.mkdir()
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(process, "delegated", lambda: mounted)
    monkeypatch.setattr(process, "_make", make)
    with group(_LIMITS) as one:
        assert one.missing == f"making a cgroup in {mounted}: Permission denied"
        assert one.before == ()
    assert not list(mounted.glob("bsd-run-*"))


# --- systemd ---


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `systemd-run` of our own: notes its options, and runs what follows them."""
    monkeypatch.setattr(process, "_SYSTEMD", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/4242")
    script = tmp_path / "systemd-run"
    script.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/called\n'
        'while [ "$1" != -- ]; do shift; done; shift\n'
        f'case "$3" in *memory.max*) cat {tmp_path}/answer; exit;; esac\nexec "$@"\n'
    )
    script.chmod(0o755)
    (tmp_path / "answer").write_text("67108864\n64\n")
    process.why_no_scope.cache_clear()
    yield tmp_path
    process.why_no_scope.cache_clear()


def test_systemd_makes_a_scope(systemd: Path) -> None:
    create_session_sandbox("a", systemd / "spaces")
    done = execute("a", ["env"], systemd / "spaces", isolate=False, limits=_LIMITS)
    assert done.succeeded, done
    assert (done.limits["memory_bytes"], done.limits["processes"]) == (ALL, ALL)
    called = (systemd / "called").read_text().splitlines()[-1]
    assert "--scope" in called
    assert f"-p MemoryMax={64 << 20} -p MemorySwapMax=0 -p TasksMax=64" in called
    assert ("--user" in called) == (os.geteuid() != 0)
    assert "XDG_RUNTIME_DIR" not in done.stdout


def test_the_users_systemd_is_found_but_not_shown_to_the_program(
    systemd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    create_session_sandbox("a", systemd / "spaces")
    script = systemd / "systemd-run"
    script.write_text(script.read_text().replace("\nwhile", f"\nenv > {systemd}/found\nwhile", 1))
    done = execute("a", ["env"], systemd / "spaces", isolate=False, limits=_LIMITS, env={"A": "1"})
    assert "--user" in (systemd / "called").read_text()
    assert "XDG_RUNTIME_DIR=/run/user/4242" in (systemd / "found").read_text()
    assert "XDG_RUNTIME_DIR" not in done.stdout
    assert "A=1" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("max\n64\n", "systemd is not given control"),
        ("", "systemd is not given control"),
    ],
)
def test_a_scope_that_limits_nothing_is_none(answer: str, words: str, systemd: Path) -> None:
    (systemd / "answer").write_text(answer)
    with group(_LIMITS) as one:
        assert words in (one.missing or "")


def test_a_systemd_that_refuses_says_why(systemd: Path) -> None:
    script = systemd / "systemd-run"
    script.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    create_session_sandbox("a", systemd / "spaces")
    done = execute("a", ["true"], systemd / "spaces", isolate=False, limits=_LIMITS)
    assert done.succeeded
    why = "systemd-run does not work here: Failed to connect to bus"
    assert done.limits["processes"] == f"does not hold: {why}"
    assert done.limits["memory_bytes"].endswith(why)


def test_nothing_to_limit_needs_no_group(systemd: Path) -> None:
    with group(Limits(memory_bytes=0, processes=0)) as one:
        assert one.before == ()
    assert not (systemd / "called").exists()
