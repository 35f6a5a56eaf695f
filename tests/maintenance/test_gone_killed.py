"""Keeping, bringing back and forgetting, killed at each call that changes the disk; and a full
disk.

After each kill the file in place is whole, and the copy is in one of its two valid states.
Repeating the call ends as an undisturbed call does. By default the work is killed at every third
call; `BSD_CRASH_ALL=1` kills it at each.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import BsdError, Conflict, NotFound
from bsd.core.layout import Layout
from bsd.core.settings import SourceSettings
from bsd.maintenance.bring_back import sweep_returning
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.transcripts.agents.programs import layout_of
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, extract, keep
from tests.maintenance.test_forgetting import WORDS, everywhere, forgetting, said, secret_session
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock
from tests.sessions.commit.disk_calls import DiskCalls, was_killed

pytestmark = pytest.mark.crash

Act = Callable[[Layout, Clock], object]
# A write half done, any other call not at all: after each is before the next.
WHEN = "torn"
_EVERY = 1 if os.environ.get("BSD_CRASH_ALL") == "1" else 3


def _do(calls: DiskCalls, act: Act, layout: Layout, clock: Clock) -> None:
    calls.install()
    act(layout, clock)


def killed_everywhere(
    layout: Layout, clock: Clock, act: Act, check: Callable[[Layout], None]
) -> int:
    """Kill the work at every `_EVERY`th call, each time in a copy of all checked files; return the
    number of calls up to the last kill.
    """
    top, killed = layout.root.parent, 0
    for number in count(1, _EVERY):
        place = top.with_name(f"{top.name}-{number}")
        shutil.copytree(top, place, copy_function=shutil.copy2)
        copy = _at(layout, top, place)
        calls = DiskCalls(die_at=number, when=WHEN)
        if not was_killed(partial(_do, calls, act, copy, clock)):
            break
        killed = number
        check(copy)
        shutil.rmtree(place)
    return killed


def full_everywhere(
    layout: Layout,
    clock: Clock,
    act: Act,
    check: Callable[[Layout], None],
    patching: pytest.MonkeyPatch,
) -> int:
    """Leave no room from every `_EVERY`th call on; return the number of calls."""
    top, number, calls = layout.root.parent, 1 - _EVERY, [1]
    while calls[0] >= number:
        number, calls = number + _EVERY, [0]
        place = top.with_name(f"{top.name}-full-{number}")
        shutil.copytree(top, place, copy_function=shutil.copy2)
        copy = _at(layout, top, place)
        with patching.context() as patch:
            for name in ("open", "write", "fsync", "rename", "replace", "link", "mkdir"):
                patch.setattr(os, name, _failing(calls, number, getattr(os, name)))
            with suppress(BsdError):
                act(copy, clock)
        check(copy)
        shutil.rmtree(place)
    return number


_open = os.open


def _failing(calls: list[int], number: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if original is not _open or arguments[1] & os.O_CREAT:
            calls[0] += 1
            if calls[0] >= number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **named)

    return call


def _at(layout: Layout, top: Path, place: Path) -> Layout:
    sources = [
        SourceSettings(kind=each.kind, path=place / each.path.relative_to(top))
        for each in layout.sources
    ]
    return layout_of(place / layout.root.relative_to(top), sources)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nested(tmp_path: Path) -> Layout:
    """A root in a directory of its own, which is copied as a whole."""
    root = tmp_path / "top" / "root"
    root.mkdir(parents=True, mode=0o700)
    (root / "agents" / "main" / "sessions").mkdir(parents=True)
    return Layout(root)


# --- keeping ---


def _renewed(nested: Layout, clock: Clock) -> tuple[bytes, bytes]:
    """A session that was copied and then appended to: its state then and now."""
    path = secret_session(nested)
    keep(nested, clock)
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"n1","message":{"role":"user","content":"more"}}\n')
    set_idle(path, 2 * DAY)
    return before, path.read_bytes()


def _check_copy(layout: Layout, clock: Clock, before: bytes, after: bytes) -> None:
    path = layout.transcript(NAME)
    assert path.read_bytes() == after
    path.unlink()
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() in (before, after)
    path.write_bytes(after)
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == after
    names = [file.name for file in layout.archive.rglob("*") if file.is_file()]
    assert len(names) == 2, names
    assert not any(name.endswith(".tmp") for name in names)


def test_killed_while_a_copy_is_renewed(nested: Layout, clock: Clock) -> None:
    before, after = _renewed(nested, clock)
    killed = killed_everywhere(
        nested, clock, keep, lambda copy: _check_copy(copy, clock, before, after)
    )
    assert killed > 20


def test_without_room_while_a_copy_is_renewed(
    nested: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = _renewed(nested, clock)
    calls = full_everywhere(
        nested, clock, keep, lambda copy: _check_copy(copy, clock, before, after), monkeypatch
    )
    assert calls > 10


# --- bringing back ---


@pytest.fixture
def claude(tmp_path: Path, clock: Clock) -> ClaudeHome:
    """A session with all its files, extracted, copied and deleted."""
    home = ClaudeHome.of(tmp_path / "top", 1, small=True)
    [name] = home.names
    for each in (name, *home.subagents(name)[:1]):
        extract(home.layout, each, clock)
    keep(home.layout, clock)
    home.delete_older_than(1)
    keep(home.layout, clock)
    return home


def _check_back(home: ClaudeHome, clock: Clock, copy: Layout) -> None:
    [name] = home.names
    top, place = home.layout.root.parent, copy.root.parent
    original = {place / path.relative_to(top): was for path, was in home.files.items()}
    _compare(copy, original, all_of_it=False)
    if deleted_sessions(copy):
        with suppress(Conflict):  # its transcript is there, only the rest was not reported yet
            bring_back(copy, str(name), clock)
    sweep_returning(copy)
    _compare(copy, original, all_of_it=True)
    assert not list((copy.own / "returning").iterdir())


def _compare(
    copy: Layout, original: dict[Path, tuple[bytes, int, int]], *, all_of_it: bool
) -> None:
    """Every file in place is whole, the transcript came last, and no file of bsd stays."""
    there = {path for path in copy.sources[0].path.rglob("*") if path.is_file()}
    for path in there & original.keys():
        stat = path.stat()
        assert (path.read_bytes(), stat.st_mtime_ns, stat.st_mode) == original[path]
    [transcript] = [path for path in original if path.parent.parent == copy.sources[0].path]
    if all_of_it or transcript in there:
        assert there & original.keys() == original.keys()
    if all_of_it:
        assert there == original.keys()


def _bring_back(home: ClaudeHome) -> Act:
    return lambda copy, clock: bring_back(copy, str(home.names[0]), clock)


def test_killed_while_a_session_comes_back(claude: ClaudeHome, clock: Clock) -> None:
    killed = killed_everywhere(
        claude.layout,
        clock,
        _bring_back(claude),
        lambda copy: _check_back(claude, clock, copy),
    )
    assert killed > 50


@pytest.mark.soak
def test_without_room_while_a_session_comes_back(
    claude: ClaudeHome, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = full_everywhere(
        claude.layout,
        clock,
        _bring_back(claude),
        lambda copy: _check_back(claude, clock, copy),
        monkeypatch,
    )
    assert calls > 25


# --- forgetting ---


def _forget(layout: Layout, clock: Clock) -> object:
    return forgetting(layout, clock).session(NAME)


def _forget_entry(layout: Layout, clock: Clock) -> object:
    return forgetting(layout, clock).entry(NAME, "e1")


def _check_forgotten(layout: Layout, clock: Clock) -> None:
    with suppress(NotFound):
        _forget(layout, clock)
    for word in WORDS:
        assert said(layout, word) == []
    assert deleted_sessions(layout) == []


def _check_entry(layout: Layout, clock: Clock) -> None:
    path = layout.transcript(NAME)
    assert said(layout, WORDS[1]) != []
    with suppress(NotFound):
        _forget_entry(layout, clock)
    assert said(layout, WORDS[0]) == []
    bring_back(layout, str(NAME), clock)
    assert WORDS[1].encode() in path.read_bytes()


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("entry", [False, True], ids=["session", "entry"])
def test_killed_while_it_is_forgotten(
    nested: Layout, clock: Clock, *, packed: bool, entry: bool
) -> None:
    everywhere(nested, clock, packed=packed).unlink()
    keep(nested, clock)
    act, check = (_forget_entry, _check_entry) if entry else (_forget, _check_forgotten)
    killed = killed_everywhere(nested, clock, act, lambda copy: check(copy, clock))
    assert killed > 10


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("entry", [False, True], ids=["session", "entry"])
def test_without_room_it_is_forgotten_later(
    nested: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, packed: bool, entry: bool
) -> None:
    everywhere(nested, clock, packed=packed).unlink()
    keep(nested, clock)
    act, check = (_forget_entry, _check_entry) if entry else (_forget, _check_forgotten)
    calls = full_everywhere(nested, clock, act, lambda copy: check(copy, clock), monkeypatch)
    assert calls > 3
