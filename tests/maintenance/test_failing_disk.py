"""A disk that cannot read one file: bsd says so clearly, and everything else goes on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import Unavailable
from bsd.core.layout import Layout
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import list_orphans
from bsd.store.search import ask
from bsd.transcripts.reader import TranscriptFile
from tests import forked
from tests.daemon.running import configure, running
from tests.openclaw_tree import add_session
from tests.refusing import raising
from tests.session_files import sample
from tests.waiting import wait_for

CONTENT = sample(6, 1)
PLACED = b"[[extracted-"
BAD = "agents/main/sessions/bad.jsonl"


@pytest.fixture
def root(root: Path) -> Path:
    """A root with two sessions."""
    for name in ("bad", "good"):
        os.utime(add_session(root, f"main/{name}", CONTENT), (1e9, 1e9))
    configure(root)
    return root


def bsd(root: Path, failing: Path, file: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_PRELOAD": str(failing), "FAILING_FILE": file}
    done = forked.run("--root", str(root), *arguments, env=env)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, (arguments, said)
    assert "internal error" not in said.lower(), (arguments, said)
    return done


WAYS: dict[str, Callable[[TranscriptFile], object]] = {
    "lines": lambda source: list(source.lines()),
    "holding": lambda source: list(source.lines_holding(b"x")),
    "read": lambda source: source.read(0, 10),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_cannot_be_read_is_an_error_that_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with TranscriptFile(root / BAD) as source:
        for call in ("pread", "preadv"):
            monkeypatch.setattr(os, call, raising(OSError(errno.EIO, os.strerror(errno.EIO))))
        with pytest.raises(Unavailable, match="Input/output error") as caught:
            WAYS[way](source)
    assert str(root / BAD) in caught.value.message
    assert "system log" in str(caught.value.hint)


def test_the_other_sessions_go_on(root: Path, failing: Path) -> None:
    done = bsd(root, failing, BAD, "extract")
    assert done.returncode == Unavailable.exit_code
    assert f"{root / BAD}: Input/output error" in done.stderr
    assert "Try: " in done.stderr
    assert PLACED in (root / BAD).with_name("good.jsonl").read_bytes()
    assert (root / BAD).read_bytes() == CONTENT
    for command in (("verify",), ("doctor",)):
        found = bsd(root, failing, BAD, *command)
        assert found.returncode == 1, found
        assert "Input/output error" in found.stdout
    found = bsd(root, failing, BAD, "restore-all", "--yes")
    assert found.returncode == Unavailable.exit_code
    assert PLACED not in (root / BAD).with_name("good.jsonl").read_bytes()


def test_the_rest_of_the_trash_is_listed(root: Path, failing: Path) -> None:
    for name in ("bad", "good"):
        assert bsd(root, failing, "none", "delete", f"main/{name}", "--yes").returncode == 0
    (meta,) = (root / "trash").glob("main_bad_*.meta.json")
    file = str(meta.relative_to(root))
    told = bsd(root, failing, file, "--json", "trash", "list")
    assert told.returncode == 1
    problems = {one["session"]: one["problem"] for one in json.loads(told.stdout)["sessions"]}
    assert problems == {"main/bad": f"reading {meta}: Input/output error", "main/good": None}
    shown = bsd(root, failing, file, "trash", "list")
    assert shown.returncode == 1
    assert "main/good" in shown.stdout
    assert f"{meta}: Input/output error" in shown.stderr
    back = bsd(root, failing, file, "trash", "restore", "main/bad")
    assert back.returncode == 1
    assert "Input/output error" in back.stderr
    assert bsd(root, failing, "none", "trash", "restore", "main/bad").returncode == 0
    assert (root / BAD).read_bytes() == CONTENT


def test_what_cannot_be_searched_is_named(root: Path, failing: Path) -> None:
    word = next(word for word in CONTENT.decode().split() if word.isalpha() and len(word) > 5)
    found = bsd(root, failing, BAD, "search", word)
    assert found.returncode == Unavailable.exit_code
    assert "main/good" in found.stdout
    assert f"main/bad was not searched: reading {root / BAD}: Input/output error" in found.stderr
    told = bsd(root, failing, BAD, "--json", "search", word)
    assert told.returncode == Unavailable.exit_code
    assert [one["session"] for one in json.loads(told.stdout)["unread"]] == ["main/bad"]


def test_a_stored_value_that_cannot_be_read_stays_a_placeholder(root: Path, failing: Path) -> None:
    assert bsd(root, failing, "nothing", "extract").returncode == 0
    before = (root / BAD).read_bytes()
    assert PLACED in before
    done = bsd(root, failing, "extracted/main_bad/0", "restore-all", "--yes")
    assert done.returncode != 0
    assert "Input/output error" in done.stderr
    assert "Try: " in done.stderr
    assert (root / BAD).read_bytes() == before
    assert (root / BAD).with_name("good.jsonl").read_bytes().count(PLACED) == 0
    assert bsd(root, failing, "nothing", "restore-all", "--yes").returncode == 0
    assert PLACED not in (root / BAD).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "extracted/main_bad/index.json",
        "history/main_bad/",
        "/sessions.json",
        "/audit.jsonl",
        "/search.db",
        "/state.db",
    ],
)
def test_whatever_it_is_that_cannot_be_read(root: Path, failing: Path, file: str) -> None:
    """No command ends with an internal error, and no session is damaged."""
    (root / BAD).with_name("sessions.json").write_text("{}")
    assert bsd(root, failing, "nothing", "extract").returncode == 0
    assert bsd(root, failing, "nothing", "search", "the").returncode == 0
    commands = [("verify",), ("history", "main/bad"), ("search", "the")]
    if file != "/sessions.json":  # a change then waits, as for a session in use
        commands = [("extract",), *commands, ("restore-all", "--yes")]
    for command in commands:
        bsd(root, failing, file, *command)
    assert bsd(root, failing, "nothing", "restore-all", "--yes").returncode == 0
    assert PLACED not in (root / BAD).read_bytes()
    assert verify(Layout(root), repair=True).clean


@pytest.mark.daemon
def test_the_daemon_goes_on(root: Path, failing: Path, tmp_path: Path) -> None:
    env = {"LD_PRELOAD": str(failing), "FAILING_FILE": BAD}
    with running(root, tmp_path, **env) as daemon:
        good = (root / BAD).with_name("good.jsonl")
        wait_for(lambda: PLACED in good.read_bytes(), "the other session")
        wait_for(lambda: "Input/output error" in daemon.log(), "it to be told")
        assert "internal error" not in daemon.log().lower()
        failed = [one for one in daemon.status()["sessions"] if one["session"] == "main/bad"]
        assert [one["status"] for one in failed] == ["failed"]
        assert str(root / BAD) in failed[0]["reason"]


ASKED: dict[str, Callable[[Layout], object]] = {
    "moving": lambda layout: Trash(layout, "never").items(),
    "orphans": list_orphans,
    "search.db": lambda layout: ask(layout.search_db, lambda _: None, None),
    "sessions": lambda layout: InFlight(layout).refuse_known(layout.sessions_dir("main")),
}


@pytest.mark.parametrize("place", ASKED)
def test_a_place_that_cannot_be_looked_at_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    layout = Layout(root)
    layout.trash.mkdir()
    (layout.trash / "main_x_20260101T000000.000Z.jsonl").touch()
    for directory in (layout.moving, layout.orphans):
        directory.mkdir(parents=True)
    layout.search_db.touch()
    for call in ("stat", "listdir"):
        real = getattr(os, call)

        def failing(path: object, *more: Any, real: Any = real, **named: Any) -> Any:
            if str(path).endswith(f"/{place}"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return real(path, *more, **named)

        monkeypatch.setattr(os, call, failing)
    with pytest.raises(Unavailable, match=f"{place}: Input/output error"):
        ASKED[place](layout)
