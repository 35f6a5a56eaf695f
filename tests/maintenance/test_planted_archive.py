"""Planted copies, packs and notes under a root do not make bsd write or destroy any file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import bring_back as bringing_back
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.sessions.idle import RetryBudget
from tests import forked
from tests.commands import Ended, run_here
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, keep
from tests.maintenance.trashing import NAME as TRASHED
from tests.maintenance.trashing import put, trash_of
from tests.needs import NOBODY
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import NAME, Clock, conversation, jsonl
from tests.untrusted import WAYS

OTHER = SessionName("main", "other")
CONTENT = jsonl(*conversation())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gone(layout: Layout, clock: Clock) -> Layout:
    """Two copied sessions that their program has then deleted."""
    paths = [add_session(layout.root, str(name), CONTENT) for name in (NAME, OTHER)]
    for path in paths:
        set_idle(path, 2 * DAY)
    keep(layout, clock)
    for path in paths:
        path.unlink()
    keep(layout, clock)
    return layout


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory where an attacker wants a file; below it, everything that a session's path may
    need.
    """
    outside = tmp_path / "outside"
    (outside / "sessions").mkdir(parents=True)
    return outside


def bsd(layout: Layout, *arguments: str) -> Ended:
    """Run a command, which must not end with an internal error."""
    return run_here(layout.root, *arguments)


def manifest(layout: Layout, name: SessionName = NAME) -> Path:
    [found] = layout.archive_dir(name).glob("session-*/copy.json")
    return found


def say(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a field of a copy, and leave out its checksum, as the first versions did."""
    said = json.loads(path.read_bytes())
    said.pop("sha256", None)
    change(said)
    path.write_text(json.dumps(said))


def everything(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


# --- fields of a copy ---


def _file(number: int, **more: object) -> Callable[[dict[str, Any]], object]:
    """Replace the transcript, or another file that is added, by another."""

    def change(said: dict[str, Any]) -> None:
        if number == len(said["files"]):
            said["files"].append(dict(said["files"][0]))
        said["files"][number].update(more)

    return change


def _path(path: str) -> Callable[[dict[str, Any]], object]:
    return _file(1, path=path)


ODD: dict[str, Callable[[dict[str, Any]], object]] = {
    "an absolute path": _path("/OUTSIDE/file"),
    "an absolute path of the transcript": _file(0, path="/OUTSIDE/file"),
    "a path upwards": _path("../../../outside/file"),
    "a path upwards below its directory": _path("s1/../../../../outside/file"),
    "another session's file": _path("other.jsonl"),
    "another session's directory": _path("other/file"),
    "its own directory": _path("s1/"),
    "a point": _path("s1/./file"),
    "a path with a NUL": _path("s1/a\0b"),
    "a path that is none": _path(["/"]),  # type: ignore[arg-type]
    "another session": lambda said: said.update(session="main/other"),
    "a session that is none": lambda said: said.update(session=[]),
    "another origin": lambda said: said.update(origin="0" * 16),
    "an origin that leads away": lambda said: said.update(origin="../../x"),
    "no time": lambda said: said.update(kept_at="now"),
    "a time that no calendar has": lambda said: said.update(kept_at=1e300),
    "gone when": lambda said: said.update(gone_at=[1]),
    "a title that is none": lambda said: said.update(title={"a": 1}),
    "a parent that is none": lambda said: said.update(parent=7),
    "a list that is none": lambda said: said.update(listed=[]),
    "left out what": lambda said: said.update(left_out=3),
    "put away where": lambda said: said.update(put_away="no"),
    "no files": lambda said: said.update(files=[]),
    "files that are none": lambda said: said.update(files={"a": 1}),
    "a mode that is none": _file(0, mode="4755"),
    "an identity that is none": _file(0, was=[1, 2, "3", 4, 5]),
    "an inode below zero": _file(0, was=[1, -2, 0, 4, 5]),
    "parts that are none": _file(0, parts=[["zz", 1]]),
    "a part of no size": _file(0, parts=[["00" * 32, -1], ["00" * 32, 1]]),
    "true as a number": _file(0, uid=True),
}


@pytest.fixture
def odd(layout: Layout, clock: Clock, outside: Path) -> dict[SessionName, Path]:
    """A deleted session with its copy for each of these, and a session whose copy is unchanged."""
    names = [SessionName("main", f"s{number}") for number in range(len(ODD))]
    paths = [add_session(layout.root, str(name), CONTENT) for name in (*names, OTHER)]
    for path in paths:
        set_idle(path, 2 * DAY)
    keep(layout, clock)
    for path in paths:
        path.unlink()
    keep(layout, clock)
    copies = {name: manifest(layout, name) for name in names}
    for name, change in zip(names, ODD.values(), strict=True):
        say(copies[name], change)
        text = copies[name].read_text().replace("/OUTSIDE", str(outside))
        copies[name].write_text(text.replace("s1/", f"{name.session}/"))
    return copies


def test_by_an_odd_copy_nothing_is_written(
    layout: Layout, odd: dict[SessionName, Path], outside: Path
) -> None:
    for (name, path), what in zip(odd.items(), ODD, strict=True):
        done = bsd(layout, "archive", "bring-back", str(name))
        assert done.code == 69, (what, done)
        assert str(path) in done.err, (what, done)
        assert "Try: " in done.err
    assert everything(outside) == everything(layout.agents) == {}


def test_beside_odd_copies_the_others_go_on(layout: Layout, odd: dict[SessionName, Path]) -> None:
    for command in ("sessions", "archive list", "search look", "status", "extract", "doctor"):
        assert bsd(layout, *command.split()).code in {0, 1, 3}, command
    found = bsd(layout, "verify", "--json")
    assert found.code == 1
    named = {one["where"] for one in json.loads(found.out)["findings"]}
    assert named >= {str(path.parent) for path in odd.values()}
    assert bsd(layout, "archive", "bring-back", str(OTHER)).code == 0
    assert layout.transcript(OTHER).read_bytes() == CONTENT


def test_a_copy_whose_checksum_is_another_one_is_named(gone: Layout) -> None:
    path = manifest(gone)
    said = json.loads(path.read_bytes())
    path.write_text(json.dumps(said | {"title": "another"}))
    done = bsd(gone, "archive", "bring-back", str(NAME))
    assert done.code == 69
    assert "checksum" in done.err


def test_a_copy_of_a_version_without_checksums_comes_back(gone: Layout) -> None:
    say(manifest(gone), lambda _: None)
    assert bsd(gone, "archive", "bring-back", str(NAME)).code == 0
    assert gone.transcript(NAME).read_bytes() == CONTENT


def test_no_more_than_permissions_come_back(gone: Layout) -> None:
    say(manifest(gone), _file(0, mode=0o104755, uid=NOBODY, gid=NOBODY))
    assert bsd(gone, "archive", "bring-back", str(NAME)).code == 0
    found = gone.transcript(NAME).stat()
    assert stat.S_IMODE(found.st_mode) == 0o755
    assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act on another user's directory")
def test_what_root_brings_back_belongs_to_whom_the_directory_belongs(
    tmp_path: Path, clock: Clock
) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    [name] = home.names
    for path in (home.source, *home.source.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    keep(home.layout, clock)
    home.delete_older_than(1)
    bring_back(home.layout, str(name), clock)
    assert home.now() == home.files
    owners = {path.stat().st_uid for path in home.source.rglob("*")}
    assert owners == {NOBODY}


# --- owners of these files ---


def packs(layout: Layout, name: SessionName = NAME) -> Path:
    [found] = layout.archive_dir(name).glob("session-*/*.zst")
    return found


@pytest.mark.parametrize("file", [manifest, packs])
@pytest.mark.parametrize("way", WAYS)
def test_what_others_have_made_or_may_change_is_named_and_left_alone(
    gone: Layout, way: str, file: Callable[[Layout], Path]
) -> None:
    path = file(gone)
    WAYS[way](path)
    before = everything(gone.archive)
    done = bsd(gone, "archive", "bring-back", str(NAME))
    assert done.code in {69, 77}, done
    assert path.name in done.err
    assert not gone.transcript(NAME).exists()
    found = bsd(gone, "verify")
    assert found.code == 1
    assert path.name in found.out
    for command in (("sessions",), ("archive", "list"), ("extract",)):
        assert bsd(gone, *command).code in {0, 1}, command
    assert everything(gone.archive) == before
    assert bsd(gone, "archive", "bring-back", str(OTHER)).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")
@pytest.mark.parametrize("place", [".brainsurgeon", "archive"])
def test_a_directory_of_bsd_s_own_that_another_user_has_made_is_refused(
    gone: Layout, place: str
) -> None:
    os.chown(gone.root / place, NOBODY, NOBODY)
    before = everything(gone.root)
    for command in (
        *(("sessions",), ("extract",), ("verify",), ("archive", "list"), ("run",), ("mcp",)),
        *(("archive", "bring-back", str(NAME)), ("trash", "list"), ("config", "show")),
    ):
        done = forked.run("--root", str(gone.root), *command)
        assert done.returncode == 77, (command, done)
        assert f"{gone.root / place} belongs to uid {NOBODY}" in done.stderr
        assert "Try: " in done.stderr
    assert everything(gone.root) == before


# --- directories that become links while a session comes back ---


class Flip:
    """A directory that becomes a link to another just before a call of the system."""

    def __init__(self, directory: Path, outside: Path) -> None:
        self._directory = directory
        self._outside = outside
        self.done = False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self._directory.rename(self._directory.with_name("moved"))
            self._directory.symlink_to(self._outside)

    def before(self, patching: pytest.MonkeyPatch, call: str) -> None:
        """Act before each first call that names a path below the directory."""
        real, name = getattr(os, call), self._directory.name

        def flipping(*arguments: Any, **named: Any) -> Any:
            if any(name in str(each) or f"{NAME.session}.jsonl" in str(each) for each in arguments):
                self()
            return real(*arguments, **named)

        patching.setattr(os, call, flipping)


CALLS = ("link", "mkdir", "open", "rename", "chmod", "utime", "lstat", "stat")


@pytest.mark.parametrize("where", ["sessions", "agent"])
@pytest.mark.parametrize("call", CALLS)
def test_a_session_is_not_brought_back_through_a_link(
    gone: Layout,
    clock: Clock,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    where: str,
) -> None:
    sessions = gone.sessions_dir("main")
    flip = Flip(sessions if where == "sessions" else sessions.parent, outside)
    copy = find_deleted(gone, str(NAME))

    def after_step(step: str) -> None:
        if step == "staged":
            flip.before(monkeypatch, call)

    budget = RetryBudget(wait=0.0, clock=clock.now)
    with suppress(BsdError):
        bringing_back.bring_back(gone, copy, budget=budget, after_step=after_step)
    monkeypatch.undo()
    assert everything(outside) == {}
    assert [path.name for path in outside.rglob("*")] == ["sessions"]


@pytest.mark.parametrize("where", ["sessions", "agent"])
@pytest.mark.parametrize("call", CALLS)
def test_a_session_is_not_restored_from_the_trash_through_a_link(
    layout: Layout, outside: Path, monkeypatch: pytest.MonkeyPatch, call: str, where: str
) -> None:
    path = put(layout)
    trash_of(layout).delete(TRASHED)
    flip = Flip(path.parent if where == "sessions" else path.parent.parent, outside)

    def after_step(step: str) -> None:
        if step == "store":
            flip.before(monkeypatch, call)

    with suppress(BsdError, OSError):
        trash_of(layout, after_step=after_step).restore(str(TRASHED))
    monkeypatch.undo()
    assert everything(outside) == {}


def test_a_directory_that_is_a_link_is_named(gone: Layout, clock: Clock, outside: Path) -> None:
    sessions = gone.sessions_dir("main")

    def after_step(step: str) -> None:
        if step == "staged":
            Flip(sessions, outside)()

    copy = find_deleted(gone, str(NAME))
    budget = RetryBudget(wait=0.0, clock=clock.now)
    with pytest.raises(BsdError, match=f"{sessions} is a symbolic link") as caught:
        bringing_back.bring_back(gone, copy, budget=budget, after_step=after_step)
    assert caught.value.hint
    assert everything(outside) == {}


# --- notes of a running `forget` ---


def note(layout: Layout, **more: object) -> Path:
    """A note that would destroy all stored content of a session."""
    said = {"version": 1, "session": str(NAME), "at": 4e9, "entry": None, "origin": None}
    path = layout.forgetting / "0123456789abcdef.json"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(json.dumps({**said, "hashes": [], **more}))
    path.chmod(0o600)
    return path


def test_by_a_note_of_bsd_s_own_the_forgetting_goes_on(gone: Layout) -> None:
    """Without this the other tests would prove nothing."""
    path = note(gone)
    bsd(gone, "extract")
    assert not path.exists()
    assert not gone.archive_dir(NAME).exists()


@pytest.mark.parametrize("way", WAYS)
def test_by_a_note_that_others_have_made_nothing_is_forgotten(gone: Layout, way: str) -> None:
    path = note(gone)
    WAYS[way](path)
    unforgotten(gone, path)


ODD_NOTES: dict[str, dict[str, object]] = {
    "an origin that leads away": {"origin": "/../../../trash"},
    "an origin that is none": {"origin": ["0" * 16]},
    "an entry that is none": {"entry": {"id": 1}},
    "hashes that are none": {"hashes": [1, None]},
    "a time that is none": {"at": "1"},
    "a time that no calendar has": {"at": 1e308},
    "a session that is none": {"session": 4},
}


@pytest.mark.parametrize("odd", ODD_NOTES)
def test_by_an_odd_note_nothing_is_forgotten(gone: Layout, odd: str) -> None:
    unforgotten(gone, note(gone, **ODD_NOTES[odd]))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{}", b"[]", b"\xff", b"1"])
def test_by_a_note_that_says_nothing_nothing_is_forgotten(gone: Layout, content: bytes) -> None:
    path = note(gone)
    path.write_bytes(content)
    unforgotten(gone, path)


def unforgotten(layout: Layout, path: Path) -> None:
    before = everything(layout.archive)
    assert bsd(layout, "extract").code in {0, 1}
    assert everything(layout.archive) == before
    assert os.path.lexists(path)
    found = bsd(layout, "verify", "--json")
    assert found.code == 1
    findings = {one["where"]: one for one in json.loads(found.out)["findings"]}
    assert findings[str(path)]["kind"] == "half_forgotten"
    assert findings[str(path)]["hint"]
    assert '"action":"refuse_file"' in layout.audit_file.read_text()
    assert path.name in layout.audit_file.read_text()
