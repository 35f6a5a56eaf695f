"""`make demo`, `make test` and `make test-all`: the packages they install, the tests they run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.needs import require_program
from tests.waiting import DEADLINE_SECONDS

_TOP = Path(__file__).parents[1]
_PROJECT = tomllib.loads((_TOP / "pyproject.toml").read_text(encoding="utf-8"))
_PYTEST = _PROJECT["tool"]["pytest"]["ini_options"]
_ADDS_THE_REST = "pip install --quiet --no-deps -r requirements.lock"


def _make(*arguments: str, cwd: Path = _TOP, **env: str) -> subprocess.CompletedProcess[str]:
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PIP_NO_CACHE_DIR", "PYTHON")
    environ = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        [require_program("make"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environ | env,
        timeout=DEADLINE_SECONDS,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout that looks fresh to make."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy2(_TOP / name, tmp_path)
    return tmp_path


def _pytest_arguments(target: str) -> list[str]:
    """Return the arguments with which `make TARGET` calls pytest."""
    plan = _make("-n", target, "TESTS=").stdout.splitlines()
    (call,) = (line for line in plan if "-m pytest" in line)
    return shlex.split(call.partition("-m pytest")[2])


def _selected(arguments: list[str], tmp_path: Path) -> set[str]:
    """Return the kinds of tests that a pytest call selects; one more test has no kind."""
    markers = [text.partition(":")[0] for text in _PYTEST["markers"]]
    text = "import pytest\n\ndef test_plain(): ...\n"
    for name in markers:
        text += f"\n@pytest.mark.{name}\ndef test_{name}(): ...\n"
    module = tmp_path / "test_kinds.py"
    module.write_text(text)
    expression = [word for pair in pairwise(arguments) if pair[0] == "-m" for word in pair]
    how = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, *how, *expression, str(module)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=DEADLINE_SECONDS,
    )
    return set(re.findall(r"::test_(\w+)", done.stdout))


def test_make_test_leaves_out_what_takes_long_or_needs_npm_or_a_browser(tmp_path: Path) -> None:
    selected = _selected(_pytest_arguments("test"), tmp_path)
    assert selected.isdisjoint({"compat", "servers", "web", "slow", "chaos", "soak"})
    assert selected == {"plain", "daemon", "crash"}


def test_make_test_all_leaves_out_only_what_soak_runs(tmp_path: Path) -> None:
    selected = _selected(_pytest_arguments("test-all"), tmp_path)
    assert "soak" not in selected
    assert len(selected) == len(_PYTEST["markers"])  # all other kinds, and the test of no kind


def test_the_check_of_a_change_runs_all_tests() -> None:
    text = (_TOP / ".ci" / "run").read_text(encoding="utf-8")
    calls = re.findall(r"^ *make (\S+(?: \w+)?)( &)?", text, re.MULTILINE)
    installed = [(".venv", ""), (".venv/.runtime", ""), (".venv", "")]
    in_order = [*installed, ("docs lint", " &"), ("test-all", "")]
    assert calls == in_order, "no test is run twice"
    for waited in ("installing", "checks"):
        assert f'wait "${waited}"\n' in text, "a fault there is one of the check"


def test_only_test_all_installs_programs_of_npm() -> None:
    for target in ("demo", "test"):
        assert "tests.compat" not in _make("-n", target).stdout
    assert "-m tests.compat.install" in _make("-n", "test-all").stdout


@pytest.mark.parametrize(
    ("directory", "marker"), [("tests/compat", "compat"), ("tests/http/web", "web")]
)
def test_modules_that_need_programs_carry_their_marker(directory: str, marker: str) -> None:
    modules = sorted((_TOP / directory).glob("test_*.py"))
    assert modules
    marked = re.compile(rf"^pytestmark = (\[\s*)?pytest\.mark\.{marker}\b", re.MULTILINE)
    without = [path.name for path in modules if not marked.search(path.read_text("utf-8"))]
    assert without == []


def test_limits_of_tests_are_made_from_one_figure() -> None:
    """A test with a limit of its own fails one day on a busy machine."""
    assert _PYTEST["timeout"] == 3 * DEADLINE_SECONDS
    own = re.compile(r"mark\.timeout|[( ]timeout=[1-9]\d|\.wait\([1-9]\d|wait_for\(.*seconds=")
    modules = [
        path
        for path in (_TOP / "tests").rglob("*.py")
        if not {"bench", "node_modules", ".venv", Path(__file__).name} & set(path.parts)
    ]
    found = [
        f"{path.relative_to(_TOP)}: {line.strip()}"
        for path in modules
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    assert found == []


def test_the_demo_installs_what_bsd_needs_to_run_and_the_tests_add_the_rest(
    checkout: Path,
) -> None:
    demo = _make("-n", "demo", cwd=checkout).stdout
    assert "--editable ." in demo
    assert "PIP_CONSTRAINT=requirements.lock" in demo
    assert _ADDS_THE_REST not in demo
    both = _make("-n", "test", cwd=checkout).stdout
    assert both.index("--editable .") < both.index(_ADDS_THE_REST)


@pytest.mark.parametrize("order", [("demo", "test"), ("test", "demo")])
def test_in_any_order_nothing_is_installed_twice(checkout: Path, order: tuple[str, str]) -> None:
    stamps = {"demo": [".runtime"], "test": [".runtime", ".installed"]}
    (checkout / ".venv").mkdir()
    for name in stamps[order[0]]:
        (checkout / ".venv" / name).touch()
    again = _make("-n", order[0], cwd=checkout).stdout
    assert "pip install" not in again
    other = _make("-n", order[1], cwd=checkout).stdout
    assert "--editable" not in other
    assert (_ADDS_THE_REST in other) == (order[1] == "test")


def test_requirements_that_contradict_the_lock_file_can_be_locked(checkout: Path) -> None:
    plan = _make("-n", "lock", cwd=checkout)
    assert ".ci/lock.py > requirements.lock.new" in plan.stdout
    assert "pip install" not in plan.stdout


def test_a_python_that_makes_no_environments_is_an_error_that_says_what_to_do(
    checkout: Path,
) -> None:
    """Debian's Python without the package python3-venv makes no environments."""
    python = checkout / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'ensurepip'\" >&2\nexit 1\n")
    python.chmod(0o755)
    done = _make("demo", f"PYTHON={python}", cwd=checkout)
    assert done.returncode != 0
    assert "Try: apt install python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("has_cache", [False, True])
def test_pip_leaves_no_cache_where_there_was_none(tmp_path: Path, has_cache: bool) -> None:
    more = tmp_path / "more.mk"
    more.write_text("show:\n\t@echo no cache: $$PIP_NO_CACHE_DIR\n")
    home = tmp_path / "home"
    (home / ".cache" / ("pip" if has_cache else "other")).mkdir(parents=True)
    files = ("-f", str(_TOP / "Makefile"), "-f", str(more))
    said = _make(*files, "show", HOME=str(home), XDG_CACHE_HOME="", PIP_CACHE_DIR="").stdout
    assert said == ("no cache:\n" if has_cache else "no cache: 1\n")


def test_the_lock_file_names_all_that_bsd_needs_to_run() -> None:
    """Otherwise pip would choose the version of a missing package."""
    text = (_TOP / "requirements.lock").read_text(encoding="utf-8")
    pinned = {line.partition("==")[0] for line in text.splitlines() if "==" in line}
    needed: set[str] = set()
    waiting = [*_PROJECT["project"]["dependencies"], *_PROJECT["build-system"]["requires"]]
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if (wanted.marker and not wanted.marker.evaluate({"extra": ""})) or name in needed:
            continue
        needed.add(name)
        waiting += distribution(name).requires or []
    assert needed - pinned == set()
