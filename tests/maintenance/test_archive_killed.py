"""Packing and merging, killed at every call that changes the disk, and with a full disk at each."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config import PruningConfig
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from bsd.store import archive
from bsd.store.archive import SessionArchive
from bsd.store.contents import Contents
from bsd.store.originals import SessionStore, digest
from bsd.store.pack import Pack
from tests.actions.performed import Caller
from tests.session_files import LONG, NAME, conversation, write
from tests.sessions.commit.disk_calls import DiskCalls, was_killed

pytestmark = pytest.mark.crash


@pytest.fixture
def lines(layout: Layout, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The content of a session's store, from long enough ago.

    All of it goes into three packs. Three are enough for the same run to merge them.
    """
    path = write(layout, conversation(6))
    found = [line for line in path.read_bytes().splitlines(keepends=True) if LONG.encode() in line]
    caller.extract(NAME)
    for file in layout.store_dir(NAME).glob("[0-9]*.json"):
        os.utime(file, (time.time() - 90_000,) * 2)
    monkeypatch.setattr(archive, "_PORTION", 2 * len(found[0]) - 10)
    monkeypatch.setattr(archive, "_MANY", 3)
    return found


def clean(layout: Layout) -> int:
    """At the end of a second: packs tell milliseconds, their names do not."""
    run = RetentionRun(layout, actor="cli", wait=0.0, clock=lambda: int(time.time()) + 0.9997)
    return run.clean_all(PruningConfig()).cleaned


def there(layout: Layout, lines: list[bytes]) -> bool:
    """Whether every line is found by its hash, from a root that no process has read yet."""
    store = SessionStore(layout, NAME)
    store._contents = Contents(layout)
    return [store.load("9999_no_such_file", digest(line)) for line in lines] == lines


def finish(layout: Layout, lines: list[bytes]) -> None:
    """Another run reaches the same state as an undisturbed run."""
    clean(layout)
    clean(layout)
    found = []
    for path in SessionArchive(layout.archive_dir(NAME)).packs():
        with Pack(path) as pack:
            found += [one.line for one in pack]
    assert sorted(found) == sorted(lines)
    assert not layout.store_dir(NAME).exists()
    assert all(path.suffix == ".zst" for path in layout.archive_dir(NAME).iterdir())


def cleaned(root: Path, calls: DiskCalls, report: Path) -> None:
    """Clean up, and note the calls at which a kill has no effect."""
    calls.install()
    clean(Layout(root))
    report.write_text("\n".join(calls.unseen))


@pytest.mark.parametrize("when", ["before", "torn", "after"])
def test_killed_anywhere_nothing_is_lost_and_nothing_doubled(
    layout: Layout, lines: list[bytes], tmp_path: Path, when: str
) -> None:
    killed = 0
    while True:
        root, report = tmp_path / f"killed-{killed}", tmp_path / "unseen"
        shutil.copytree(layout.root, root, copy_function=shutil.copy2)
        calls = DiskCalls(die_at=killed + 1, when=when)
        if not was_killed(partial(cleaned, root, calls, report)):
            break
        killed += 1
        copy = Layout(root)
        assert there(copy, lines), killed
        finish(copy, lines)
        assert there(copy, lines), killed
        shutil.rmtree(root)
    assert killed > 50  # three packs, the merged one, and six files
    assert not [call for call in report.read_text().splitlines() if ".zst" in call]


def _failing(calls: list[int], number: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if original is not os_open or arguments[1] & os.O_CREAT:
            calls[0] += 1
            if calls[0] >= number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **named)

    return call


os_open = os.open


def test_without_room_at_any_call_nothing_is_lost_and_room_is_all_it_takes(
    layout: Layout, lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, calls = 0, [1]
    while calls[0] >= number:
        number, calls = number + 1, [0]
        copy = Layout(tmp_path / f"full-{number}")
        shutil.copytree(layout.root, copy.root, copy_function=shutil.copy2)
        with monkeypatch.context() as patch:
            for name in ("open", "write", "fsync", "rename", "mkdir"):
                patch.setattr(os, name, _failing(calls, number, getattr(os, name)))
            clean(copy)
        assert there(copy, lines), number
        assert not list(copy.archive.rglob("*.tmp")), number
        finish(copy, lines)
        shutil.rmtree(copy.root)
    assert number > 30
