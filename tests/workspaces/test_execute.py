"""Programs in workspaces: their limits, their box, and the notes about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Invalid, NotFound, Unavailable
from bsd.workspaces import (
    ExecutionResult,
    Limits,
    create_session_sandbox,
    execute,
    isolation,
    prune_sessions,
    read_session_metadata,
    touch_session,
)
from tests.daemon.running import is_alive
from tests.needs import as_ordinary_user, require_linux
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS, wait_for
from tests.workspaces.spaces import (
    clock,
    fake_bubblewrap,
    make,
    names,
    note,
    noted,
    old,
    require_isolation,
)

_TOP = Path(__file__).parents[2]
Run = Callable[..., ExecutionResult]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_session_sandbox("a", tmp_path / "workspace")
    return tmp_path / "workspace"


@pytest.fixture(params=["boxed", "bare"])
def run(request: pytest.FixtureRequest, root: Path) -> Run:
    """Run a shell script in the workspace `a`, with and without a box."""
    boxed = request.param == "boxed"
    if boxed:
        require_isolation()

    def run(script: str, **how: Any) -> ExecutionResult:
        return execute("a", ["sh", "-c", script], root, isolate=boxed, **how)

    return run


def test_it_runs_inside_with_a_clean_environment(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    done = run("pwd; env; cat; echo oops >&2; echo made > file", env={"GIVEN": "2"}, stdin=b"in\n")
    assert done.succeeded, done
    lines = done.stdout.splitlines()
    assert lines[0] == str(root / "a")
    assert "GIVEN=2" in lines
    assert f"HOME={root / 'a'}" in lines
    assert "in" in lines
    assert "SECRET" not in done.stdout
    assert done.stderr == "oops\n"
    assert (root / "a" / "file").read_text() == "made\n"


def test_how_it_ended_is_told(run: Run) -> None:
    assert as_json(run("exit 3")).items() >= {"exit_code": 3, "error": "exit code 3"}.items()
    killed = run("kill -9 $$")
    assert "SIGKILL" in (killed.error or "")
    assert not killed.succeeded


def test_the_time_limit_ends_it_and_all_it_started(run: Run) -> None:
    done = run("sleep 100000 & sleep 100000", limits=Limits(seconds=0.3))
    assert (done.timed_out, done.succeeded) == (True, False)
    assert done.error == "its time limit of 0.3 s was over"
    assert done.metadata is not None
    assert done.metadata.last_error == done.error


def test_nobody_of_its_process_group_survives(run: Run, root: Path) -> None:
    done = run("(sleep 100000; echo late > late) & echo $! > pid")
    assert done.succeeded
    if not done.isolated:  # in a box it is a number of the box
        pid = int((root / "a" / "pid").read_text())
        wait_for(lambda: not is_alive(pid))


def test_limits_hold(run: Run, root: Path) -> None:
    python, places = sys.executable, [Path(sys.prefix), Path(sys.base_prefix)]
    limits = Limits(seconds=30, cpu_seconds=1, memory_bytes=300 << 20, file_bytes=1 << 20)
    huge = run(f"{python} -c 'bytearray(2**30)'", limits=limits, readable=places)
    assert not huge.succeeded
    assert "MemoryError" in huge.stderr
    big = run("head -c 3000000 /dev/zero > big", limits=limits)
    assert not big.succeeded
    assert (root / "a" / "big").stat().st_size == 1 << 20
    busy = run("while :; do :; done", limits=limits)
    assert not busy.succeeded
    assert not busy.timed_out


def test_output_is_bounded_and_counted(run: Run) -> None:
    done = run("head -c 5000000 /dev/zero; echo x >&2", limits=Limits(output_bytes=1000))
    assert done.succeeded
    assert (len(done.stdout), done.stdout_bytes) == (1000, 5_000_000)
    assert (done.truncated, done.stderr_bytes) == (True, 2)


def test_bytes_that_are_no_text_are_shown_somehow(run: Run) -> None:
    assert run(r"printf '\377ok'").stdout.endswith("ok")


def test_a_program_cannot_forge_its_metadata(run: Run, root: Path) -> None:
    """Read-only in a box; put back without a box, after any replacement."""
    before = noted(root / "a")
    for number, forge in enumerate(
        (
            'echo \'{"updated_at": "1999-01-01T00:00:00Z"}\' > .metadata.json',
            "rm -f .metadata.json",
            "rm -f .metadata.json; mkdir -p .metadata.json/x",
            "rm -f .metadata.json; ln -s /etc/passwd .metadata.json",
        ),
        start=1,
    ):
        run(f"({forge}) 2>/dev/null; true")
        after = noted(root / "a")
        assert not (root / "a" / ".metadata.json").is_symlink()
        assert after["created_at"] == before["created_at"]
        assert after["updated_at"] >= before["updated_at"]
        assert after["execution_count"] == number


def test_a_program_cannot_make_metadata_where_there_are_none(run: Run, root: Path) -> None:
    (root / "a" / ".metadata.json").unlink()
    done = run('echo \'{"updated_at": "1999-01-01T00:00:00Z"}\' > .metadata.json')
    assert done.metadata is None
    assert not (root / "a" / ".metadata.json").exists()
    note(root / "a", b"{ broken")
    run("echo '{}' > .metadata.json; true")
    assert (root / "a" / ".metadata.json").read_bytes() == b"{ broken"


def test_what_is_no_program_is_a_failed_run(run: Run, root: Path) -> None:
    boxed = run("true").isolated
    (root / "a" / "text").write_text("no program")
    for argv, words in (
        (["no-such-program"], "there is no program 'no-such-program'"),
        (["./nothing"], "there is no program './nothing'"),
        (["./text"], "'./text' is not executable"),
    ):
        done = execute("a", argv, root, isolate=boxed)
        assert (done.error, done.exit_code, done.stdout) == (words, None, "")
    metadata = read_session_metadata("a", root)
    assert metadata is not None
    assert (metadata.execution_count, metadata.last_error) == (4, "'./text' is not executable")


def test_a_program_where_nobody_may_look_is_a_failed_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", raising(PermissionError(13, "Permission denied")))
    done = execute("a", ["/closed/program"], root, isolate=False)
    assert "'/closed/program' is in a directory that user" in (done.error or "")


@pytest.mark.parametrize("argv", [[], "true", ["a\0b"], [1]], ids=repr)
def test_what_is_no_command(argv: Any, root: Path) -> None:
    with pytest.raises(Invalid):
        execute("a", argv, root, isolate=False)
    with pytest.raises(NotFound):
        execute("b", ["true"], root, isolate=False)
    assert noted(root / "a")["execution_count"] == 0


@pytest.mark.parametrize(
    "how",
    [
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": "\0"}},
        {"env": {"A": 1}},
    ],
    ids=repr,
)
def test_what_is_no_environment(how: dict[str, Any], root: Path) -> None:
    with pytest.raises(Invalid, match="variable"):
        execute("a", ["true"], root, isolate=False, **how)


@pytest.mark.parametrize(
    "limits",
    [{"seconds": -1}, {"seconds": float("nan")}, {"cpu_seconds": 1.5}, {"file_bytes": -1}],
    ids=repr,
)
def test_what_is_no_limit(limits: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="must be a") as caught:
        Limits(**limits)
    assert [one.field for one in caught.value.errors] == list(limits)


# --- the box ---


def test_a_box_has_no_network_and_nothing_writable_but_the_workspace(
    root: Path, tmp_path: Path
) -> None:
    require_isolation()
    (tmp_path / "secret").write_text("of the host")
    script = (  # /tmp is separate in the box: the path of the workspace may lead through it
        f"cat {tmp_path}/secret; touch {tmp_path}/made {root}/made /usr/made /etc/made /made; "
        "wc -l < /proc/net/dev; ls /home; echo mine > mine; ls -a ..; "
        f"echo t > /tmp/{root.parent.name}; ls /tmp"
    )
    done = execute("a", ["sh", "-c", script], root, isolate=True)
    assert (done.isolated, done.isolation) == (True, "bubblewrap")
    assert "of the host" not in done.stdout
    assert done.stdout.split("\n")[0] == "3", "a head of two lines, and lo"
    assert (root / "a" / "mine").read_text() == "mine\n"
    assert names(root) == ["a"], "the other workspaces, and what is ours, are not to be seen"
    assert ".bsd" not in done.stdout
    assert not (tmp_path / "made").exists()
    assert not Path("/made").exists()
    assert not Path(f"/tmp/{root.parent.name}").exists()
    assert "cannot touch '/made'" in done.stderr


def test_more_may_be_readable(root: Path, tmp_path: Path) -> None:
    require_isolation()
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "data").write_text("for it")
    script = f"cat {tmp_path}/given/data; echo no > {tmp_path}/given/data"
    done = execute("a", ["sh", "-c", script], root, isolate=True, readable=[tmp_path / "given"])
    assert done.stdout == "for it"
    assert (tmp_path / "given" / "data").read_text() == "for it"


def test_a_box_works_for_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_isolation()
    program = (
        "import tempfile, pathlib; from bsd.workspaces import *;"
        "root = pathlib.Path(tempfile.mkdtemp());"
        "done = create_session_sandbox('a', root).execute(['sh', '-c', 'id -u; echo x > f']);"
        "print(done.isolated, done.stdout.strip(), done.error, done.isolation);"
        "print(prune_sessions(0, root).deleted_sessions)"
    )
    answer = subprocess.run(
        [*as_ordinary_user(), sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=_TOP,
    )
    isolated, user, error, *_ = answer.stdout.split()
    assert (isolated, error) == ("True", "None"), answer.stdout
    assert user != "0"
    assert answer.stdout.splitlines()[1] == "['a']"


@pytest.fixture
def unknown() -> Iterator[None]:
    """The test for a working bubblewrap is repeated, also by the tests that follow."""
    isolation.why_not_isolated.cache_clear()
    yield
    isolation.why_not_isolated.cache_clear()


@pytest.mark.usefixtures("unknown")
def test_without_bubblewrap_a_program_runs_only_if_that_is_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(Unavailable, match="isolated: bubblewrap is not installed") as caught:
        execute("a", ["true"], root)
    assert "--no-isolate" in (caught.value.hint or "")
    assert noted(root / "a")["execution_count"] == 0
    done = execute("a", ["true"], root, isolate=False)
    assert (done.succeeded, done.isolated, done.isolation) == (True, False, "not asked for")
    assert done.limits["processes"] == "does not hold: it is not isolated"


@pytest.mark.usefixtures("unknown")
def test_a_bubblewrap_that_does_not_work_here_says_why(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bubblewrap(
        tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1", monkeypatch
    )
    with pytest.raises(Unavailable, match="not work here: bwrap: No permissions to create new"):
        execute("a", ["true"], root)


# --- simultaneous runs ---


def test_it_holds_the_workspace_and_prunings_skip_it(run: Run, root: Path) -> None:
    note(root / "a", old("a"))
    ended: list[ExecutionResult] = []

    def work() -> None:
        script = "echo > ready; until [ -e go ]; do sleep 0.01; done"
        ended.append(run(script, clock=clock))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for((root / "a" / "ready").exists)
        done = prune_sessions(24, root, clock=clock)
        assert (done.deleted_sessions, done.skipped_sessions) == ([], {"a": "in_use"})
        (root / "a" / "go").touch()
    finally:
        thread.join(DEADLINE_SECONDS)
    assert ended[0].succeeded
    done = prune_sessions(24, root, clock=clock)
    assert (done.deleted_sessions, done.skipped_sessions) == ([], {}), "it was used just now"


@pytest.mark.parametrize("isolate", [False, True])
def test_runs_at_the_same_time_are_all_counted_and_none_is_believed(
    isolate: bool, root: Path
) -> None:
    """A run ends while another, which forges, still runs; a third process touches the workspace.

    A touch replaces the file, and with it the mount of the box: the file can be written to.
    """
    if isolate:
        require_isolation()
    before = noted(root / "a")
    forge = 'echo \'{"updated_at":"1999-01-01T00:00:00Z"}\' > .metadata.json; touch ready$N; '
    script = forge + "until [ -e go$N ]; do sleep 0.01; done; " + forge
    threads = [
        threading.Thread(
            target=execute,
            args=("a", ["sh", "-c", script], root),
            kwargs={"isolate": isolate, "env": {"N": str(number)}},
        )
        for number in range(3)
    ]
    for number, thread in enumerate(threads):
        thread.start()
        wait_for((root / "a" / f"ready{number}").exists)
    assert touch_session("a", root) is not None
    for number, thread in enumerate(threads):
        (root / "a" / f"go{number}").touch()
        thread.join(DEADLINE_SECONDS)
    after = noted(root / "a")
    assert after["execution_count"] == 3
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]
    assert not [name for name in os.listdir(root / ".bsd") if name.startswith("witness")]


def test_whoever_leaves_the_process_group_goes_on_using_the_workspace(root: Path) -> None:
    """Only without a box: no program leaves a box."""
    require_linux()
    note(root / "a", old("a"))
    script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > pid; sleep 0.2"
    done = execute("a", ["sh", "-c", script], root, isolate=False, clock=lambda: 1e9)
    assert done.succeeded
    pid = int((root / "a" / "pid").read_text())
    try:
        assert prune_sessions(24, root, clock=clock).skipped_sessions == {"a": "in_use"}
        assert touch_session("a", root, clock=lambda: 1e9) is not None, "others may use it, too"
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: prune_sessions(24, root, clock=clock).deleted_sessions == ["a"])


def test_a_killed_host_leaves_nothing_running_in_a_box_and_nothing_believed(
    root: Path, tmp_path: Path
) -> None:
    require_isolation()
    make(root, "b", hours=1)
    truth = noted(root / "b")
    script = "echo > ready; while :; do sleep 0.01; done"
    program = (
        "import sys, pathlib; from bsd.workspaces import execute;"
        "execute('b', ['sh', '-c', sys.argv[2]], pathlib.Path(sys.argv[1]), isolate=True)"
    )
    host = subprocess.Popen([sys.executable, "-c", program, str(root), script], cwd=_TOP)
    try:
        wait_for((root / "b" / "ready").exists)
    finally:
        host.kill()
        host.wait()
    note(root / "b", old("b"))  # a write in its last moment
    assert read_session_metadata("b", root) is not None
    done = execute("b", ["true"], root, isolate=True)
    assert done.metadata is not None
    assert noted(root / "b")["created_at"] == truth["created_at"]
    assert done.metadata.execution_count == 1
