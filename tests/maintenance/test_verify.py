"""Findings of `verify` about a store, and the files after a repair, checked directly."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.session_check import Finding
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.index import Record
from bsd.store.originals import SessionStore
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import NAME as OTHER
from tests.session_files import Clock, conversation, sample, write

NAME = SessionName("main", "s")


@pytest.fixture
def store(tmp_path: Path, layout: Layout) -> SessionStore:
    """The store of a session with extracted values."""
    add_session(tmp_path / "root", str(NAME), sample(6))
    Caller(
        layout=layout, config=ConfigService(layout.config_file), budget=RetryBudget(wait=0)
    ).extract(NAME)
    store = SessionStore(layout, NAME)
    assert len(store.refs()) > 1
    return store


def found(store: SessionStore, *, repair: bool = False) -> list[Finding]:
    layout = Layout(store.directory.parents[1])
    return verify(layout, repair=repair, wait=0.0).findings


def is_told(store: SessionStore, record: Record) -> bool:
    """Whether the current index has the same facts about a file, apart from the time of storing."""
    index = SessionStore(Layout(store.directory.parents[1]), NAME).index
    now = index.records[record.file]
    return replace(now, extracted_at="") == replace(record, extracted_at="")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_who_is_asked_to_stop_looks_at_no_further_session(
    layout: Layout, store: SessionStore
) -> None:
    add_session(layout.root, "main/t", sample(1))
    looked: list[int] = []

    def progress(done: int, of: int) -> None:
        assert done <= of
        looked.append(done)
        if done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        verify(layout, progress=progress)
    assert (len(looked), looked[0]) == (2, 0)


def test_modes_that_others_may_read_by_are_mended(store: SessionStore) -> None:
    file = store.file(store.refs()[0])
    file.chmod(0o644)
    store.directory.chmod(0o755)
    assert [(one.kind, one.repaired) for one in found(store)] == [("mode", False)] * 2
    assert (mode(store.directory), mode(file)) == (0o755, 0o644), "who looks changes nothing"
    assert [(one.kind, one.repaired) for one in found(store, repair=True)] == [("mode", True)] * 2
    assert (mode(store.directory), mode(file)) == (0o700, 0o600)
    assert found(store) == []


def test_what_an_interrupted_extraction_left_is_removed(store: SessionStore) -> None:
    left = store.directory / "0099_thinking.tmp"
    left.write_bytes(b"{")
    left.chmod(0o600)
    assert [one.kind for one in found(store)] == ["leftover"]
    assert left.exists()
    assert [one.repaired for one in found(store, repair=True)] == [True]
    assert not left.exists()


def _lacks_one(store: SessionStore) -> None:
    store.index.replace(list(store.index.records.values())[1:])


def _names_one_that_is_gone(store: SessionStore) -> None:
    store.file(store.refs()[0]).unlink()


def _is_torn(store: SessionStore) -> None:
    store.index.path.write_bytes(b"{torn")


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        (_lacks_one, {"not_indexed"}),
        (_names_one_that_is_gone, {"index_stale", "missing_file"}),
        (_is_torn, {"index_broken", "not_indexed"}),
    ],
)
def test_an_index_is_made_anew_of_what_is_there(
    store: SessionStore, spoil: Callable[[SessionStore], None], kinds: set[str]
) -> None:
    before = dict(store.index.records)
    spoil(store)
    assert {one.kind for one in found(store)} == kinds
    found(store, repair=True)
    there = {f"{ref}.json" for ref in store.refs()}
    assert all(is_told(store, record) for name, record in before.items() if name in there)
    assert {one.kind for one in found(store)} == kinds & {"missing_file"}


def test_content_whose_time_was_up_is_expired_not_missing(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation(3))
    caller.extract(OTHER)
    before = verify(layout).placeholders
    clock.sleep(25 * 3600)
    with path.open("ab") as stream:  # values that leave now have time left
        later = [{**one, "id": f"f{one['id']}"} for one in conversation(2)[1:]]
        stream.write(b"".join(json.dumps(one).encode() + b"\n" for one in later))
    set_idle(path)
    caller.extract(OTHER)
    store = layout.store_dir(OTHER)
    for file in store.glob("*.json"):  # the clock's time, not the disk's
        is_new = file.stat().st_size and b'"fe' in file.read_bytes()
        os.utime(file, (clock.now(), clock.now()) if is_new else None)
    RetentionRun(layout, actor="test", clock=clock.now).clean_store("24h")

    found = verify(layout)
    assert (found.clean, found.expired) == (True, before)
    assert found.placeholders > before
    next(store.glob("0*.json")).unlink()
    assert "missing_file" in {one.kind for one in verify(layout).findings}


def test_a_store_that_is_lost_is_missing_whatever_its_age(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    write(layout, conversation(3))
    caller.extract(OTHER)
    shutil.rmtree(layout.store_dir(OTHER))
    clock.sleep(25 * 3600)
    RetentionRun(layout, actor="test", clock=clock.now).clean_store("24h")
    found = verify(layout)
    assert (found.clean, found.expired) == (False, 0)


def test_a_commit_that_has_just_begun_is_nothing_amiss(layout: Layout, store: SessionStore) -> None:
    layout.inflight.mkdir(parents=True, exist_ok=True)
    record = layout.inflight / "0123456789abcdef.record"
    # made, and not written yet; or its process was killed there a moment ago
    record.touch(mode=0o600)
    assert not found(store)
    long_ago = record.stat().st_mtime - 25 * 3600
    os.utime(record, (long_ago, long_ago))
    [finding] = found(store)
    assert (finding.kind, finding.where) == ("in_flight", str(record))
