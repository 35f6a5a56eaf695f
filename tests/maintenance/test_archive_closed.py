"""An unreadable archive or pack: bsd reports it, and other sessions are not affected."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from bsd.core.config import PruningConfig
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.verify import verify
from bsd.store.archive import SessionArchive
from bsd.store.contents import Contents
from bsd.store.originals import digest
from tests.actions import performed
from tests.actions.performed import Caller
from tests.searching import everything
from tests.session_files import LONG, NAME, conversation, write

DAY = 24 * 3600.0


@pytest.fixture
def lines(layout: Layout, caller: Caller) -> list[str]:
    """The hashes of the lines that have moved from a session's store to the archive."""
    path = write(layout, conversation(4))
    found = [line for line in path.read_bytes().splitlines(keepends=True) if LONG.encode() in line]
    caller.extract(NAME)
    for file in layout.store_dir(NAME).glob("[0-9]*.json"):
        os.utime(file, (time.time() - 2 * DAY,) * 2)
    RetentionRun(layout, actor="cli").clean_all(PruningConfig())
    return [digest(line) for line in found]


def _closed(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of another session, unreadable for its owner."""
    closed = layout.archive / "main_closed"
    closed.mkdir()
    listdir = os.listdir

    def guarded(path: str | Path = ".") -> list[str]:
        if str(path) == str(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)
    return closed


def test_an_archive_that_cannot_be_looked_into_stops_no_other_session(
    layout: Layout, caller: Caller, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = _closed(layout, monkeypatch)
    other = SessionName("main", "closed")
    write(layout, conversation(2), other)
    assert [len(Contents(layout).with_hash(line)) for line in lines] == [1] * 4
    assert {one.name for one in catalog.sessions(layout)} == {NAME, other}
    assert deleted_sessions(layout) == []
    assert len(everything(layout, LONG, only=NAME)) == 4
    [finding] = verify(layout).findings
    assert (finding.kind, finding.where) == ("unreadable", str(closed))
    done = RetentionRun(layout, actor="cli").clean_all(PruningConfig())
    assert (done.failures, done.archive.errors) == (1, 1)
    assert performed.restore_all(caller, NAME).unavailable == {}


def test_a_pack_that_could_not_be_read_is_told_and_looked_at_again(
    layout: Layout, lines: list[str]
) -> None:
    [pack] = SessionArchive(layout.archive_dir(NAME)).packs()
    away, then = layout.root / "away", time.time() - DAY
    pack.rename(away)
    pack.symlink_to(away)
    os.utime(pack.parent, (then, then))  # unchanged: a repair may not show here
    contents = Contents(layout)
    assert contents.with_hash(lines[0]) == []
    unreadable = [one for one in verify(layout).findings if one.kind == "unreadable"]
    assert [one.where for one in unreadable] == [str(pack)]
    pack.unlink()
    away.rename(pack)
    os.utime(pack.parent, (then, then))
    contents.changed()
    assert len(contents.with_hash(lines[0])) == 1
