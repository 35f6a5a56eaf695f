"""The suite's foundation: the promises of conftest to every test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spread import rank, unit_of_work
from tests.waiting import DEADLINE_SECONDS

_TOP = Path(__file__).parents[1]


def test_home_is_empty_and_our_variables_are_gone(clean_environment: Path) -> None:
    assert Path.home() == clean_environment
    assert list(clean_environment.iterdir()) == []
    assert not [n for n in os.environ if n.startswith(("BRAINSURGEON_", "OPENCLAW_"))]


@pytest.fixture(scope="session")
def home_of_fixtures() -> Path:
    return Path.home()


def test_what_tests_share_has_no_real_home_either(
    home_of_fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert home_of_fixtures.is_relative_to(tmp_path_factory.getbasetemp())


def _pytest(module: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest separately, on a module outside the suite."""
    argv = ["-p", "tests.conftest", "-c", os.devnull, f"--rootdir={module.parent}", str(module)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, *argv],
        check=False,
        capture_output=True,
        text=True,
        cwd=_TOP,
        env=os.environ | env,
        timeout=DEADLINE_SECONDS,
    )


@pytest.mark.soak  # about the tests themselves
@pytest.mark.parametrize(("outcome", "left"), [("True", False), ("False", True)])
def test_a_run_has_a_directory_of_its_own_and_leaves_it_only_after_a_failure(
    tmp_path: Path, outcome: str, left: bool
) -> None:
    """A directory that all runs share would be closed to other users by each new run."""
    module = tmp_path / "test_place.py"
    module.write_text(f"def test_it(tmp_path): print(tmp_path); assert {outcome}\n")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = _pytest(module, "-s", TMPDIR=str(temporary))
    used = re.search(rf"{temporary}/(bsd-pytest-\w+)/", done.stdout)
    assert used, done.stdout + done.stderr
    assert done.returncode == int(left)
    assert [path.name for path in temporary.iterdir()] == ([used[1]] if left else [])


_CALLS = """
import subprocess
import pytest

@pytest.fixture(scope="module")
def npx():
    subprocess.run(["npx", "of a fixture"], check=False)

def test_plain(): subprocess.run(["npm", "of a plain test"], check=False)
@pytest.mark.slow
def test_slow(): subprocess.run(["chromium", "of a slow test"], check=False)
def test_fixture(npx): ...
@pytest.mark.compat
def test_compat(): subprocess.run(["npm", "install"], check=True)
@pytest.mark.web
def test_web(): subprocess.run(["chromium"], check=True)
def test_none(): ...
"""


@pytest.mark.soak  # about the tests themselves
def test_only_tests_with_their_markers_call_npm_and_browsers(tmp_path: Path) -> None:
    """Stand-ins take the place of the real programs here."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("npm", "npx", "chromium"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} $* >> {tmp_path}/called\n")
        (programs / name).chmod(0o755)
    module = tmp_path / "test_calls.py"
    module.write_text(_CALLS)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = _pytest(module, "-rA", PATH=path, TMPDIR=str(tmp_path))
    assert (tmp_path / "called").read_text() == "npm install\nchromium\n", done.stdout
    failed = set(re.findall(r"^ERROR .*::test_(\w+)", done.stdout, re.MULTILINE))
    assert failed == {"plain", "slow", "fixture"}, done.stdout
    said = "needs the marker compat or web: it called "
    for call in ("npm of a plain test", "chromium of a slow test", "npx of a fixture"):
        assert f"{said}['{call}']" in done.stdout


def test_a_filled_root_is_at_rest(openclaw_root: Path) -> None:
    sessions = list(openclaw_root.glob("agents/*/sessions/*.jsonl"))
    assert len(sessions) >= 2
    assert all(path.stat().st_mtime < time.time() - 60 for path in sessions)


# --- shared fixtures are made once, in any number of processes ---


_PAGE = "tests/http/web/test_page_day.py"
_INDEXER = "tests/daemon/test_indexer.py"
_KILL = "tests/sessions/commit/test_kill.py"
_QUICKER = ("tests/maintenance/test_unreadable.py", "tests/planning/test_properties.py")


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        (f"{_PAGE}::test_a[x::y]", _PAGE),
        ("tests/test_house.py::test_a", "tests/test_house.py"),
        ("tests/compat/test_pi.py::test_a", "tests/compat/pi"),
        ("tests/compat/test_context.py::test_a", "tests/compat/pi"),
        ("tests/compat/test_claude_code.py::test_a", "tests/compat"),
        ("tests/compat/test_in_sight.py::test_a", "tests/compat"),
        ("tests/compat/test_codex.py::test_a", "tests/compat/test_codex.py"),
        (f"{_INDEXER}::test_a", _INDEXER),  # shares a daemon
        (f"{_KILL}::test_a[1]", f"{_KILL}::test_a[1]"),  # long, and alone
    ],
)
def test_what_a_test_is_given_to_a_worker_with(test: str, unit: str) -> None:
    assert unit_of_work(_TOP)(test) == unit


def test_what_takes_long_begins_early() -> None:
    modules = [_PAGE, "tests/packaging/test_release.py", _KILL, *_QUICKER, "tests/test_sample.py"]
    ranks = [rank(_TOP / module) for module in modules]
    assert ranks == sorted(set(ranks))
