"""Fixtures for every test: a home and an environment of its own, and a check for threads left."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bsd.core.layout import Layout
from tests import forbidden_programs
from tests.actions.performed import Caller
from tests.openclaw_tree import SHARED_DATA, fill
from tests.session_files import Clock, make_caller
from tests.spread import rank, unit_of_work
from tests.waiting import DEADLINE_SECONDS

# A loaded machine is no defect.
settings.register_profile(
    "unhurried",
    settings.get_profile(settings.get_current_profile_name()),
    max_examples=int(os.environ.get("BSD_EXAMPLES", "10")),  # more, to look for trouble
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

pytest_plugins = ("tests.servers.fixtures",)

_PLACE = pytest.StashKey[Path]()
_FORBIDDEN = pytest.StashKey[Path]()
_OURS = ("BRAINSURGEON_", "OPENCLAW_", "BSD_", "AUTO_REFRESH_MS")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep tests that share a daemon or a browser in one process (`--dist loadgroup`)."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = unit_of_work(config.rootpath)
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep six thousand collected tests out of garbage collection, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that the run does not end with one process still at work."""
    items.sort(key=lambda item: rank(item.path))


def pytest_configure(config: pytest.Config) -> None:
    """Make a directory for all files of this run, with the forbidden programs in it.

    Pytest's default directory is shared by all runs of a user. Each run that begins closes it to
    other users again, whom some tests let in.
    """
    place = Path(tempfile.mkdtemp(prefix="bsd-pytest-")).resolve()
    config.stash[_PLACE] = place
    place.chmod(0o755)  # other users reach from here the files that a test opens to them
    if config.option.basetemp is None:
        config.option.basetemp = place / "run"
    programs = place / "forbidden"
    programs.mkdir()
    forbidden_programs.put_into(programs)
    config.stash[_FORBIDDEN] = programs


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the files that tests wrote only if a test has failed."""
    if exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        place = session.config.stash[_PLACE]
        session.config.add_cleanup(partial(shutil.rmtree, place, ignore_errors=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Forbid npm and browsers from the first fixture on, unless markers allow them."""
    with forbidden_programs.forbidden(item, item.config.stash[_FORBIDDEN]):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that has called a forbidden program."""
    yield
    forbidden_programs.fail_if_called(item.config.stash[_FORBIDDEN])


@pytest.fixture(scope="session", autouse=True)
def private_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the real home as it is: fixtures that many tests share have another home, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def clean_environment(homes: Path) -> Iterator[Path]:
    """Give the test an empty HOME and none of the variables that steer bsd; yields that HOME."""
    home = Path(tempfile.mkdtemp(dir=homes))  # pytest would count all directories there
    # Not the fixtures `monkeypatch` and `tmp_path`: hypothesis objects to those in its tests.
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_OURS):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        patch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
        patch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
        patch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
        patch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
        for name in ("NOTIFY_SOCKET", "JOURNAL_STREAM", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        yield home


@pytest.fixture(autouse=True)
def no_leftover_threads() -> Iterator[None]:
    """Fail a test that leaves a thread running; a thread that is just ending gets a moment."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + DEADLINE_SECONDS
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"left running: {thread}"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real transcripts; read-only, copy before editing."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real transcripts in ../shared/data, which are not part of bsd")
    return SHARED_DATA


@pytest.fixture
def openclaw_root(tmp_path: Path) -> Path:
    """A filled OpenClaw directory: `main/sample`, `other_agent/sample`, and real sessions."""
    return fill(tmp_path / ".openclaw")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory in which a socket's path is short enough for the system.

    `tmp_path` may be too long: with a long user name, or on a Mac.
    """
    with tempfile.TemporaryDirectory(prefix="bsd-", dir="/tmp") as path:
        yield Path(path).resolve()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty root, private as bsd wants it."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture
def layout(root: Path) -> Layout:
    """A root in which agent `main` has no session yet."""
    layout = Layout(root)
    (layout.agents / "main" / "sessions").mkdir(parents=True)
    return layout


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def caller(layout: Layout, clock: Clock) -> Caller:
    """A caller who waits for sessions in use, without taking real time."""
    return make_caller(layout, clock)
