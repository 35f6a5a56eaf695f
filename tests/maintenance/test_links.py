"""Symbolic links planted in bsd's own directories: a link that leads out of the root is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.core.errors import Forbidden, NotFound
from bsd.core.layout import Layout
from bsd.core.locks import own_lock
from bsd.core.settings import MemorySettings
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import forget_stored, search, search_as_it_is
from bsd.maintenance.trash import Trash
from bsd.memory import actions
from bsd.memory.memory import open_memory
from bsd.sessions.commit.late import Orphan, keep_orphan
from bsd.sessions.idle import RetryBudget
from bsd.store.state import StateDb
from tests.actions.performed import Caller
from tests.session_files import NAME, conversation, write

OUT = "leads out of"


@pytest.fixture
def layout(layout: Layout) -> Layout:
    layout.own.mkdir(parents=True)
    write(layout, conversation(2))
    return layout


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    return directory


def test_locks(layout: Layout, caller: Caller, outside: Path) -> None:
    caller.extract(NAME)
    layout.locks.rename(layout.own / "former")
    layout.locks.symlink_to(outside)
    with pytest.raises(Forbidden, match=OUT), own_lock(layout, NAME):
        pass
    later = time.time() + 90_000
    done = RetentionRun(layout, actor="test", clock=lambda: later).clean_store("24h")
    assert (done.cleaned, done.errors) == (0, 1)
    assert not list(outside.iterdir())
    layout.locks.unlink()
    layout.locks.symlink_to("former")  # it stays inside
    with own_lock(layout, NAME):
        pass


def test_everything_of_ours_at_once(layout: Layout, caller: Caller, outside: Path) -> None:
    layout.own.rmdir()
    layout.own.symlink_to(outside)
    with pytest.raises(Forbidden, match=OUT):
        own_lock(layout, NAME)
    (outside / "search.db").touch()
    with pytest.raises(Forbidden, match=OUT):
        search(layout, "look")


def _search(layout: Layout) -> object:
    return search(layout, "look")


def _search_as_it_is(layout: Layout) -> object:
    return search_as_it_is(layout, "look")


@pytest.mark.parametrize("ask", [_search, _search_as_it_is])
def test_the_search_index(layout: Layout, outside: Path, ask: Callable[[Layout], object]) -> None:
    target = outside / "other.db"
    target.touch()
    layout.search_db.symlink_to(target)
    with pytest.raises(Forbidden, match=OUT):
        ask(layout)
    forget_stored(layout, ["main_s1"])  # logs why not
    assert target.read_bytes() == b""
    assert [path.name for path in outside.iterdir()] == ["other.db"]


def test_what_was_settled(layout: Layout, caller: Caller, outside: Path) -> None:
    target = outside / "other.db"
    layout.state_db.symlink_to(target)
    StateDb(layout.state_db).note_rests({NAME: None})
    target.touch()
    StateDb(layout.state_db).note_rests({NAME: None})
    assert caller.extract(NAME).values == 2
    assert target.read_bytes() == b""


def test_journals_of_the_trash(layout: Layout, outside: Path) -> None:
    layout.moving.symlink_to(outside)
    trash = Trash(layout, "14d", budget=RetryBudget(wait=0.0, quiet=0.0))
    with pytest.raises(Forbidden, match=OUT):
        trash.delete(NAME)
    with pytest.raises(Forbidden, match=OUT):
        trash.recover()
    assert layout.session_file(NAME).exists()
    assert not list(outside.iterdir())


def test_drafts_and_orphans(layout: Layout, outside: Path) -> None:
    draft = outside / "draft"
    draft.mkdir()
    (draft / "entry.json").touch()
    layout.edits.symlink_to(outside)
    layout.orphans.symlink_to(outside)
    later = time.time() + 90_000 * 365
    RetentionRun(layout, actor="test", clock=lambda: later).clean_history("14d")
    descriptor = os.open(layout.session_file(NAME), os.O_RDONLY)
    about = Orphan(layout.session_file(NAME), str(NAME), "s1", "late", 5, 0)
    try:
        with pytest.raises(OSError, match="leads out of the root"):
            keep_orphan(layout, "name", descriptor, 0, about)
    finally:
        os.close(descriptor)
    assert [path.name for path in outside.rglob("*")] == ["draft", "entry.json"]


@pytest.mark.parametrize("what", ["directory", "file"])
def test_facts(layout: Layout, outside: Path, what: str) -> None:
    database = outside / "facts.db"
    link = layout.facts_db if what == "file" else layout.facts_db.parent
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(database if what == "file" else outside)
    with pytest.raises(Forbidden, match=OUT) as caught:
        open_memory(layout)
    assert "[memory]" in str(caught.value.hint)
    named = MemorySettings(database=layout.facts_db)
    with open_memory(layout, named) as memory, pytest.raises(NotFound, match="no database"):
        actions.prune(memory)  # a caller that names the place wants it, wherever it lies
