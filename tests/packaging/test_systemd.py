"""The systemd units: systemd accepts them, and the program works under their restrictions."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, ConfigError, Forbidden, Invalid
from tests.needs import require_linux, require_program
from tests.openclaw_tree import add_session
from tests.packaging.units import TEMPLATE, TOP, USER_UNIT, Unit
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

_SAFE = "20"  # `systemd-analyze security` counts in tenths
_ANOTHER_GROUP = 4711


def _verify(unit: Path, directory: Path, *options: str) -> str:
    """Return the output of `systemd-analyze verify` for a unit whose program exists."""
    copy = directory / unit.name
    text = unit.read_text(encoding="utf-8").replace("/usr/bin/bsd", require_program("true"))
    copy.write_text(text, encoding="utf-8")
    # Other units of the machine name sockets in it, whose paths must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        done = subprocess.run(
            [require_program("systemd-analyze"), "verify", "--man=no", *options, str(copy)],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"XDG_RUNTIME_DIR": runtime},
        )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("unit", "options"), [(TEMPLATE, []), (USER_UNIT, ["--user"])], ids=["template", "user"]
)
def test_systemd_has_no_objection(unit: Path, options: list[str], tmp_path: Path) -> None:
    assert _verify(unit, tmp_path, *options) == ""


def test_systemd_would_say_what_it_does_not_understand(tmp_path: Path) -> None:
    wrong = tmp_path / "in" / "bsd@.service"
    wrong.parent.mkdir()
    text = TEMPLATE.read_text(encoding="utf-8")
    wrong.write_text(text.replace("ProtectSystem=", "ProtectSystems="), encoding="utf-8")
    assert "ProtectSystems" in _verify(wrong, tmp_path)


def test_the_template_exposes_little() -> None:
    command = [require_program("systemd-analyze"), "security", "--offline=true"]
    done = subprocess.run(
        [*command, f"--threshold={_SAFE}", str(TEMPLATE)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout


@pytest.mark.parametrize("path", [TEMPLATE, USER_UNIT], ids=["template", "user"])
def test_what_does_not_heal_is_not_started_again(path: Path) -> None:
    lasting = {str(error.exit_code) for error in (Invalid, Forbidden, ConfigError)}
    passing = {str(error.exit_code) for error in BsdError.__subclasses__()} - lasting
    unit = Unit.read(path)
    named = set(unit.one("RestartPreventExitStatus").split())
    assert named >= lasting
    assert not named & passing
    assert unit.one("Restart") == "on-failure"


@pytest.mark.parametrize("path", [TEMPLATE, USER_UNIT], ids=["template", "user"])
def test_systemd_knows_how_to_talk_with_it(path: Path) -> None:
    unit = Unit.read(path)
    assert (unit.one("Type"), unit.one("NotifyAccess")) == ("notify", "main")
    assert int(unit.one("WatchdogSec")) > 0
    assert unit.one("ExecStart") == "/usr/bin/bsd run"


def _mind_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("path", [TEMPLATE, USER_UNIT], ids=["template", "user"])
def test_a_reload_needs_no_program_but_the_shell(path: Path) -> None:
    """A small Debian has no /bin/kill, so every reload that used it failed."""
    argv = shlex.split(Unit.read(path).one("ExecReload"))
    assert argv[0] == "/bin/sh"
    # The tests may run with this signal ignored (nohup), and child programs would inherit that.
    with subprocess.Popen(["sleep", "60"], preexec_fn=_mind_hangups) as process:  # noqa: PLW1509 - it only asks the system
        environ = {"MAINPID": str(process.pid), "PATH": "/nowhere"}
        subprocess.run(argv, check=True, env=environ)
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGHUP


def test_a_users_manager_is_asked_for_no_namespaces() -> None:
    """A user's manager has no namespaces to give: the unit would fail to start (226/NAMESPACE)."""
    keys = set(Unit.read(USER_UNIT).sections["Service"])
    assert not [key for key in keys if key.startswith(("Protect", "Private", "ReadWrite", "IP"))]
    assert not keys & {"User", "CapabilityBoundingSet", "AmbientCapabilities"}


def test_the_template_leaves_what_else_the_user_runs_alone() -> None:
    unit = Unit.read(TEMPLATE)
    assert "RemoveIPC" not in unit.sections["Service"]
    assert unit.all("ReadWritePaths") == [
        "-/home/%i/.openclaw",
        "-/home/%i/.local/state/bsd",
    ]


# --- the program under the units' restrictions ----------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One session is enough, since the restrictions are the same for each session."""
    root = tmp_path / ".openclaw"
    add_session(root, "main/sample", sample(12, 1))
    return root


def _sandboxed(unit: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    require_linux()
    require_program("systemd-analyze")  # has the groups of system calls; installs libseccomp
    return subprocess.run(
        [sys.executable, "-m", "tests.packaging.sandbox", str(unit), sys.executable, *argv],
        check=False,
        capture_output=True,
        text=True,
        cwd=TOP,
        timeout=DEADLINE_SECONDS,
    )


_FORBIDDEN = {
    "memory both written and run": "import mmap; mmap.mmap(-1, 4096, prot=7)",
    "privileged calls": "import os; os.chroot('/')",
    "calls for resources": "import os; os.setpriority(os.PRIO_PROCESS, 0, 19)",
    "a network": "import socket; socket.socket(socket.AF_INET)",
}


@pytest.mark.parametrize("program", _FORBIDDEN.values(), ids=_FORBIDDEN.keys())
def test_the_restrictions_restrict(program: str) -> None:
    done = _sandboxed(TEMPLATE, "-c", program)
    assert "Error: [Errno" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "unit", [TEMPLATE, pytest.param(USER_UNIT, marks=pytest.mark.soak)], ids=["template", "user"]
)
def test_sessions_are_cut_and_mended_under_the_restrictions(unit: Path, root: Path) -> None:
    def bsd(*arguments: str) -> str:
        done = _sandboxed(unit, "-m", "bsd", "--root", str(root), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    session = root / "agents" / "main" / "sessions" / "sample.jsonl"
    before = session.read_bytes()
    if os.geteuid() == 0:  # keeping the group of a file needs a privileged call
        os.chown(session, -1, _ANOTHER_GROUP)
    group = session.stat().st_gid
    bsd("extract", "main/sample")
    assert b"[[extracted-" in session.read_bytes()
    assert session.stat().st_gid == group
    bsd("verify")
    bsd("restore-all", "--yes", "main/sample")
    assert b"[[extracted-" not in session.read_bytes()
    assert len(session.read_bytes()) >= len(before)


@contextmanager
def _manager(path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(DEADLINE_SECONDS)
        yield listening


def _wait_for(listening: socket.socket, word: str) -> None:
    while word not in listening.recv(4096).decode().split("\n"):
        pass  # the socket's own time-out is the deadline


def _make_room(listening: socket.socket) -> None:
    """Read all messages that wait: the queue holds ten, and further ones are lost."""
    listening.settimeout(0)
    with suppress(BlockingIOError):
        while listening.recv(4096):
            pass
    listening.settimeout(DEADLINE_SECONDS)


@pytest.mark.parametrize("unit", [TEMPLATE, USER_UNIT], ids=["template", "user"])
def test_the_daemon_starts_works_and_stops_under_the_restrictions(
    unit: Path, root: Path, tmp_path: Path
) -> None:
    require_linux()
    require_program("systemd-analyze")
    channel = tmp_path / "notify"
    argv = [sys.executable, "-m", "tests.packaging.sandbox", str(unit)]
    argv += [sys.executable, "-m", "bsd", "--root", str(root), "run"]
    told = {"NOTIFY_SOCKET": str(channel), "WATCHDOG_USEC": "500000"}
    session = root / "agents" / "main" / "sessions" / "sample.jsonl"
    with (
        _manager(channel) as listening,
        (tmp_path / "stderr").open("wb") as stderr,
        subprocess.Popen(argv, cwd=TOP, env=os.environ | told, stderr=stderr) as daemon,
    ):
        try:
            _wait_for(listening, "READY=1")
            _wait_for(listening, "WATCHDOG=1")
            wait_for(lambda: b"[[extracted-" in session.read_bytes(), "the extraction")
            _make_room(listening)
            daemon.terminate()
            _wait_for(listening, "STOPPING=1")
            assert daemon.wait(DEADLINE_SECONDS) == 0
        finally:
            daemon.kill()
