"""Operations that an error or a kill interrupts, and how the next command deals with them."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import Conflict
from bsd.core.layout import Layout
from bsd.maintenance.bring_back import sweep_returning
from tests.calls_of_os import path_of
from tests.commands import Commands
from tests.durability import Disk
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, keep
from tests.openclaw_tree import add_session, grow_old, set_idle
from tests.session_files import Clock, conversation, entry, jsonl
from tests.sessions.commit.disk_calls import was_killed

SESSION = "main/s1"
STORED = re.compile(r"\d{4}_\w+(?:-\d+)?\.json")
WORD = "Quicksilver"


@pytest.fixture
def bsd(root: Path) -> Commands:
    return Commands(root)


@pytest.fixture
def path(root: Path) -> Path:
    """A session whose first long result contains a word that no other place has."""
    entries = conversation(4)
    block = entries[2]["message"]["content"][0]
    block["text"] = f"{WORD} {block['text']}"
    return add_session(root, SESSION, jsonl(*entries))


@pytest.fixture
def original(bsd: Commands, root: Path, path: Path) -> bytes:
    was = path.read_bytes()
    assert bsd("extract", SESSION)["totals"]["entries"] == 4
    grow_old(root)
    return was


def messages(content: bytes) -> list[Any]:
    return [json.loads(line).get("message") for line in content.splitlines()]


Wanted = Callable[[str], bool]


def failing(patch: pytest.MonkeyPatch, wanted: Wanted, after: int = 0) -> None:
    """Removing a file fails if its path is `wanted`, except for the first `after` of them."""
    left = [after]

    def wrapped(original: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, **more: Any) -> None:
            if wanted(os.fsdecode(path)):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(path))
            original(path, **more)

        return remove

    for name in ("unlink", "remove"):
        patch.setattr(os, name, wrapped(getattr(os, name)))


def dying(call: str, wanted: Wanted, act: Callable[[], object]) -> bool:
    """Do the work in a process that is killed at a call of `os` on a path that is `wanted`."""

    def work() -> None:
        original = getattr(os, call)

        def wrapped(*paths: Any, **more: Any) -> Any:
            if wanted(str(path_of(paths, more, int(call in ("link", "rename"))))):
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*paths, **more)

        setattr(os, call, wrapped)
        act()

    return was_killed(work)


def journals(root: Path) -> list[Path]:
    return list(root.glob(".brainsurgeon/forgetting/*.json"))


# --- forgetting ---


@pytest.mark.parametrize("named", [(), ("e1",)], ids=["session", "entry"])
def test_forgetting_that_fails_half_way_is_finished_by_the_next_command(
    bsd: Commands,
    root: Path,
    path: Path,
    original: bytes,
    named: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note of the deletion stays after the first file is gone."""
    assert WORD.encode() in original
    keep(Layout(root), Clock())
    with monkeypatch.context() as patch:
        # Some files of a session go before; of an entry, its history has gone by then.
        if named:
            failing(patch, lambda name: name.endswith(".zst"))
        else:
            failing(patch, lambda name: STORED.fullmatch(Path(name).name) is not None, 1)
        before = path.read_bytes()
        said = bsd.said("archive", "forget", SESSION, *named, "--yes")
    assert said.code != 0
    assert "Input/output error" in said.err
    assert len(journals(root)) == 1
    bsd("retention")
    assert journals(root) == []
    assert not [file for file in root.glob("extracted/**/*.json") if WORD in file.read_text()]
    if not named:
        assert not (root / "extracted/main_s1").exists()
        assert not (root / "archive/main_s1").exists()
    assert path.read_bytes() == before, "the session itself stays"
    nothing = bsd.said("archive", "forget", SESSION, *named, "--yes")
    assert nothing.code != 0
    assert "stores no data" in nothing.err
    assert journals(root) == []


@pytest.mark.crash
@pytest.mark.parametrize("place", ["stored", "packed"])
def test_what_is_stored_of_an_entry_since_is_not_taken_by_what_goes_on(
    bsd: Commands, root: Path, path: Path, original: bytes, place: str
) -> None:
    """The entry leaves its session again after its forgetting was killed."""
    assert original
    if place == "packed":
        bsd("retention")
    content = "*.zst" if place == "packed" else "0002_*.json"
    forget = partial(bsd.said, "archive", "forget", SESSION, "e1", "--yes")
    assert dying("unlink", lambda name: Path(name).match(content), forget)
    (journal,) = journals(root)
    written = json.loads(journal.read_bytes())
    journal.write_text(json.dumps({**written, "at": written["at"] - DAY}))  # all came since
    for file in root.glob("extracted/*/0002_*.json"):
        set_idle(file, -60)
    before = sorted(root.glob("archive/*/*.zst")) + sorted(root.glob("extracted/*/0002_*.json"))
    bsd.said("extract", SESSION)
    assert journals(root) == []
    assert before
    assert all(file.exists() for file in before)
    assert path.is_file()


def copies(root: Path) -> list[Path]:
    return sorted(root.glob("archive/main_s1/*/copy.json"))


@pytest.mark.crash
@pytest.mark.parametrize("newer", [False, True])
def test_a_copy_that_was_made_since_is_not_taken_by_what_goes_on(
    bsd: Commands, root: Path, path: Path, *, newer: bool
) -> None:
    """Of two sessions of one name, one's copy was being deleted; then that session came back."""
    was = path.read_bytes()
    layout, clock = Layout(root), Clock()
    for content in (was, jsonl({"type": "session", "version": 3, "id": "t"}, *conversation()[6:7])):
        path.write_bytes(content)
        set_idle(path, 3 * DAY)
        keep(layout, clock)
        path.unlink()
        keep(layout, clock)  # it is seen to be gone
    first, second = sorted(bsd("archive", "list")["sessions"], key=lambda one: -one["size"])
    forget = partial(bsd.said, "archive", "forget", first["id"], "--yes")
    assert dying("unlink", lambda name: name.endswith("copy.json"), forget)
    assert (len(journals(root)), len(copies(root))) == (1, 2)
    if newer:
        path.write_bytes(was + jsonl(entry(99, "user", "more")))
        set_idle(path, 2 * DAY)
        keep(layout, clock)
    bsd("retention")
    assert journals(root) == []
    assert len(copies(root)) == 1 + newer
    if newer:
        path.unlink()
        keep(layout, clock)
    left = {one["id"] for one in bsd("archive", "list")["sessions"]}
    assert left == {second["id"], *([first["id"]] if newer else [])}


# --- bringing back ---


@pytest.fixture
def gone(bsd: Commands, root: Path, path: Path, original: bytes) -> bytes:
    keep(Layout(root), Clock())
    path.unlink()
    assert len(bsd("archive", "list")["sessions"]) == 1
    return original


def left_over(root: Path) -> list[str]:
    """Files that only a running call may have: temporary files, in any directory."""
    found = [*root.glob("agents/**/.*"), *root.glob(".brainsurgeon/returning/*")]
    return sorted(str(one.relative_to(root)) for one in found)


@pytest.mark.crash
@pytest.mark.parametrize("then", ["again", "sweep", "forget"])
def test_temporary_files_of_a_killed_bring_back_go(
    bsd: Commands, root: Path, path: Path, gone: bytes, then: str
) -> None:
    bring_back = partial(bsd.said, "archive", "bring-back", SESSION)
    assert dying("link", lambda name: name == str(path), bring_back)
    assert not path.exists()
    assert left_over(root) != []
    assert list(path.parent.glob(".*")), "beside the place of the session"
    match then:
        case "again":
            bsd("archive", "bring-back", SESSION)
            assert path.read_bytes() == gone
        case "sweep":  # as the daemon does
            sweep_returning(Layout(root))
        case "forget":
            bsd("archive", "forget", SESSION, "--yes")
            assert not path.exists()
    assert left_over(root) == []


def test_another_file_that_looks_like_what_would_come_back_stays(tmp_path: Path) -> None:
    """By its time and mode, an earlier call may have placed the file; its bytes show that it did
    not.
    """
    home, clock = ClaudeHome.of(tmp_path, 1, small=True), Clock()
    keep(home.layout, clock)
    was = home.now()
    for file in was:
        file.unlink()
    keep(home.layout, clock)
    (beside,) = [file for file in was if file.suffix == ".txt"]
    content, mtime, mode = was[beside]
    beside.write_bytes(content.upper())
    beside.chmod(mode & 0o777)
    os.utime(beside, ns=(mtime, mtime))
    with pytest.raises(Conflict, match=r"differs from the file to bring back"):
        bring_back(home.layout, str(home.names[0]), clock)
    assert beside.read_bytes() == content.upper()
    beside.unlink()
    bring_back(home.layout, str(home.names[0]), clock)
    assert {file: found[0] for file, found in home.now().items()} == {
        file: found[0] for file, found in was.items()
    }


def test_what_came_back_does_not_count_as_gone_since_then(
    bsd: Commands, root: Path, path: Path, gone: bytes
) -> None:
    """Its time in the archive starts again if the session is deleted again."""
    (copy,) = copies(root)
    keep(Layout(root), Clock())
    assert json.loads(copy.read_bytes())["gone_at"] is not None
    bsd("archive", "bring-back", SESSION)
    assert json.loads(copy.read_bytes())["gone_at"] is None
    assert path.read_bytes() == gone


def test_of_a_copy_that_is_forgotten_first_goes_what_says_that_it_is_there(
    bsd: Commands, root: Path, gone: bytes
) -> None:
    assert gone
    with Disk(root) as disk:
        bsd("archive", "forget", SESSION, "--yes")
    order = [moment.path for moment in disk.removals("archive/*")]
    assert any(one.endswith(".zst") for one in order)
    assert not copies(root)
    assert not list(root.glob("archive/main_s1*"))


# --- extraction ---


@pytest.mark.crash
def test_what_a_killed_extraction_stored_is_used_again(
    bsd: Commands, root: Path, path: Path
) -> None:
    was = path.read_bytes()
    extract = partial(bsd.said, "extract", SESSION)
    assert dying("open", lambda name: "/inflight/" in name and name.endswith(".file"), extract)
    assert path.read_bytes() == was
    stored = {file.name: file.read_bytes() for file in root.glob("extracted/*/[0-9]*.json")}
    assert len(stored) == 4, "durable before the session lacks it"
    bsd("extract", SESSION)
    now = {file.name: file.read_bytes() for file in root.glob("extracted/*/[0-9]*.json")}
    assert now == stored
    grow_old(root)
    bsd("restore-all", SESSION, "--yes")
    assert messages(path.read_bytes()) == messages(was)


def failing_sync(
    patch: pytest.MonkeyPatch, wanted: Wanted, error: BaseException | None = None
) -> None:
    sync = os.fsync

    def fsync(descriptor: Any) -> None:
        if wanted(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise error or OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    patch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["*/inflight/*.file", "*/history/*.pending", "*/extracted/*.json"])
def test_what_ends_before_the_exchange_leaves_nothing_in_store_and_history(
    bsd: Commands,
    root: Path,
    path: Path,
    at: str,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was = path.read_bytes()
    with monkeypatch.context() as patch:
        failing_sync(patch, lambda name: fnmatch(name, at), error)
        assert bsd.said("extract", SESSION).code != 0
    assert path.read_bytes() == was
    assert not list(root.glob("extracted/*/[0-9]*"))
    assert not list(root.glob(".brainsurgeon/history/*/[0-9]*"))


def test_an_error_after_the_exchange_keeps_what_the_session_refers_to(
    bsd: Commands, root: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = path.read_bytes()
    with monkeypatch.context() as patch:
        failing_sync(patch, lambda name: name == str(path.parent))
        assert bsd.said("extract", SESSION).code != 0
    assert path.read_bytes().count(b"[[extracted-") == 4
    assert len(list(root.glob("extracted/*/[0-9]*.json"))) == 4
    grow_old(root)
    bsd("restore-all", SESSION, "--yes")
    assert messages(path.read_bytes()) == messages(was)


# --- restoring from the trash ---


def test_from_the_trash_first_comes_what_a_session_refers_to_and_last_goes_what_tells_of_it(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    """At no moment is a session in its place without its values being available."""
    bsd("retention")
    restored = bsd("restore", SESSION, "e2")
    assert restored["restored"]
    grow_old(root)
    bsd("extract", SESSION, "--keep-recent", "0")
    grow_old(root)
    bsd("delete", SESSION, "--yes")
    with Disk(root) as disk:
        bsd("trash", "restore", SESSION)
    order = [moment.path for moment in disk.removals("trash/*", ".brainsurgeon/moving/*.back.json")]
    kinds = ("_extracted_", "_archive_", "_history_", ".jsonl", ".meta.json", ".back.json")
    found = [kind for one in order for kind in kinds if kind in one]
    directories = {"_extracted_", "_archive_", "_history_"}
    assert set(found[:3]) == directories, "the kernel is asked if they can be renamed"
    assert set(found[3:6]) == directories
    assert found[6:] == [".jsonl", ".meta.json", ".back.json"]
    assert path.exists()
    assert original
