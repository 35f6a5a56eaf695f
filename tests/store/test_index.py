"""The index is a cache: it helps, and no result depends on it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import orjson
import pytest

from bsd.core.layout import Layout, SessionName
from bsd.store.contents import Contents, contents_of
from bsd.store.index import Index, Record
from bsd.store.originals import Missing, SessionStore, StoredOriginal, digest
from tests.refusing import raising

NAME = SessionName("main", "s1")


def record(file: str, entry_id: str = "a") -> Record:
    return Record(
        entry_id, 3, file, "sha256:00", 10, ("output",), {"output": 7}, "2026-01-01T00:00:00Z"
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.json"


def test_what_is_added_is_read_again(path: Path) -> None:
    Index(path, NAME).add([record("0003_user.json"), record("0004_user.json", "b")])
    index = Index(path, NAME)
    assert list(index.records.values()) == [record("0003_user.json"), record("0004_user.json", "b")]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"entries":3}', b'{"entries":[{"entry_id":"a"}]}', b"\xff"]
)
def test_a_broken_index_is_said_and_forgiven(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    index = Index(path, NAME)
    assert index.records == {}
    assert index.broken
    index.add([record("0003_user.json")])
    assert index.broken is None
    assert orjson.loads(path.read_bytes())["session"] == "main/s1"


def test_no_index_is_no_problem(path: Path) -> None:
    index = Index(path, NAME)
    assert index.records == {}
    assert index.broken is None


def test_adding_writes_behind_what_is_there(path: Path) -> None:
    Index(path, NAME).add([record(f"{n:04d}_user.json", f"e{n}") for n in range(3)])
    before = path.read_bytes()
    inode = path.stat().st_ino
    Index(path, NAME).add([record("0003_user.json", "e3"), record("0001_user.json", "e1")])
    assert path.stat().st_ino == inode
    assert path.read_bytes().startswith(before.removesuffix(b"\n]}\n"))
    orjson.loads(path.read_bytes())
    assert [found.file[:4] for found in Index(path, NAME).records.values()] == [
        "0000",
        "0002",
        "0003",
        "0001",
    ]


def test_what_comes_again_where_the_list_is_not_ours_is_there_once(path: Path) -> None:
    Index(path, NAME).add([record("0003_user.json"), record("0004_user.json")])
    path.write_bytes(path.read_bytes().replace(b"\n", b""))
    Index(path, NAME).add([record("0003_user.json", "again"), record("0005_user.json")])
    found = Index(path, NAME).records
    assert list(found) == ["0004_user.json", "0003_user.json", "0005_user.json"]
    assert found["0003_user.json"] == record("0003_user.json", "again")
    assert path.read_bytes().count(b"0003_user.json") == 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"entries":[]}', b'{"entries":[\n]}\n'])
def test_a_file_that_cannot_be_added_to_is_written_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    Index(path, NAME).add([record("0003_user.json")])
    assert list(Index(path, NAME).records) == ["0003_user.json"]


@pytest.mark.parametrize("room", [0, 1, 50])
def test_what_a_full_disk_cuts_short_costs_nothing_that_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    index = Index(path, NAME)
    index.add([record("0003_user.json"), record("0004_user.json", "b")])
    pwrite, cut = os.pwrite, [room]

    def short(descriptor: int, data: bytes, offset: int) -> int:
        return pwrite(descriptor, data[: cut.pop()] if cut else data, offset)

    monkeypatch.setattr(os, "pwrite", short)
    index.add([record("0005_user.json", "c")])  # and there is room again, for a file of its own
    again = Index(path, NAME)
    assert [one.ref for one in again.records.values()] == ["0003_user", "0004_user", "0005_user"]
    assert again.broken is None


# --- the index of all stores: stored lines are found at once, deleted lines are not ---


LINE, OTHER = b'{"id":"e1"}\n', b'{"id":"e2"}\n'
ONE, TWO = SessionName("main", "one"), SessionName("main", "two")


@pytest.fixture
def layout(layout: Layout) -> Layout:
    layout.own.mkdir()
    return layout


def keep(layout: Layout, name: SessionName, ref: str, line: bytes) -> None:
    kept = StoredOriginal(ref, "e1", 0, "user", digest(line), len(line), ("x",), (1,), line)
    SessionStore(layout, name).add([kept])


def places(index: Contents, line: bytes) -> list[tuple[str, str]]:
    return [(place.directory.name, place.ref) for place in index.with_hash(digest(line))]


def test_two_processes_that_look_at_the_same_time_both_find_what_is_there(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process reads the index; before it has looked at the stores, another has noted more."""
    keep(layout, ONE, "0000_user", LINE)
    index, other = Contents(layout), Contents(layout)
    assert places(index, LINE) == [("main_one", "0000_user")]
    keep(layout, TWO, "0000_user", OTHER)
    shutil.rmtree(layout.store_dir(ONE))
    look = index._directories

    def others_first() -> Iterator[tuple[str, bool]]:
        assert places(other, OTHER) == [("main_two", "0000_user")]
        keep(layout, ONE, "0000_user", LINE)  # and it is there again
        yield from look()

    monkeypatch.setattr(index, "_directories", others_first)
    monkeypatch.setattr("bsd.store.contents.remove_database", refuse)
    index.changed()
    assert places(index, LINE) == [("main_one", "0000_user")]
    assert places(other, OTHER) == [("main_two", "0000_user")]


def refuse(*_: object) -> None:
    raise AssertionError("the index is made anew")


def test_after_a_full_disk_the_index_has_its_file_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("bsd.store.contents.time.monotonic", lambda: now[0])
    index, connect = Contents(layout), Contents._connect
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(Contents, "_connect", raising(full))
    keep(layout, ONE, "0000_user", LINE)
    assert places(index, LINE) == [("main_one", "0000_user")]
    monkeypatch.setattr(Contents, "_connect", connect)
    now[0] += 3600.0
    assert places(index, LINE) == [("main_one", "0000_user")]
    assert (layout.own / "contents.db").exists()


def test_what_was_just_kept_is_found_though_somebody_has_just_looked(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stores are read seldom, and directories written a moment ago do not show their
    changes.
    """
    monkeypatch.setattr(
        "bsd.store.contents.time.monotonic", count().__next__
    )  # each look takes a second
    index = contents_of(layout)
    assert places(index, LINE) == []
    keep(layout, ONE, "0000_user", LINE)
    assert places(index, LINE) == [("main_one", "0000_user")]
    keep(layout, ONE, "0001_user", OTHER)
    assert places(index, OTHER) == [("main_one", "0001_user")]
    assert SessionStore(layout, TWO).load("0007_user", digest(OTHER)) == OTHER


def test_the_file_last_written_or_used_again_is_the_newest(layout: Layout) -> None:
    store = SessionStore(layout, ONE)
    assert store.find("e1") is None
    for ref, line, at in (("0000_user", LINE, "10"), ("0000_user-2", OTHER, "11")):
        keep(layout, ONE, ref, line)
        store.index.add([Record("e1", 0, f"{ref}.json", digest(line), 12, ("x",), {}, at)])
    keep(layout, TWO, "0000_user", LINE)
    assert store.find("e1") == ("0000_user-2", digest(OTHER))
    store.index.add([Record("e1", 0, "0000_user.json", digest(LINE), 12, ("x",), {}, "12")])
    contents_of(layout).changed()
    assert store.find("e1") == ("0000_user", digest(LINE))


def test_stores_that_are_gone_are_forgotten(layout: Layout) -> None:
    keep(layout, ONE, "0000_user", LINE)
    keep(layout, TWO, "0003_user", LINE)
    index = contents_of(layout)
    assert places(index, LINE) == [("main_one", "0000_user"), ("main_two", "0003_user")]
    shutil.rmtree(layout.store_dir(ONE))
    index.changed()
    assert places(index, LINE) == [("main_two", "0003_user")]
    assert [place.ref for place in index.of_entry("e1")] == ["0003_user"]
    shutil.rmtree(layout.store_dir(TWO))
    index.changed()
    assert index.of_entry("e1") == []
    assert SessionStore(layout, ONE).load("0000_user", digest(LINE)) is Missing.GONE


def test_an_index_that_was_kept_in_memory_is_closed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 warns of an unclosed database."""

    def full(_: Contents) -> sqlite3.Connection:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Contents, "_connect", full)
    index = Contents(layout)
    keep(layout, ONE, "0000_user", LINE)
    assert places(index, LINE) == [("main_one", "0000_user")]
    database = index._memory
    del index
    assert database is not None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")
