"""A daemon whose disk fills and empties again and again goes on, and loses no data."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.store.index import Index
from bsd.store.originals import SessionStore
from tests.daemon.running import configure, running
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample
from tests.small_disk import small_disk
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

PLACEHOLDER = b"[[extracted-"
_TIMES = int(os.environ.get("BSD_FULL_DISKS", "6"))  # `make soak` has 30


@pytest.mark.slow
def test_it_survives_a_disk_that_fills_and_empties(tmp_path: Path) -> None:
    chance = random.Random(6)
    with small_disk(tmp_path, 24) as disk:
        root = disk.path / "root"
        root.mkdir(mode=0o700)
        configure(root)
        sessions = [add_session(root, f"main/s{n}", sample(8, n)) for n in range(3)]
        lines = sample(2, 9).splitlines(keepends=True)[1:]
        with running(root, tmp_path) as daemon:
            wait_for(
                lambda: all(PLACEHOLDER in path.read_bytes() for path in sessions), "a first pass"
            )
            for number in range(_TIMES):
                path = sessions[number % len(sessions)]
                room = chance.choice([0, 9, 10, 16, 24, 32, 40, 64, 200]) << 10
                with path.open("ab") as file:
                    file.writelines(_renamed(lines, number))
                disk.fill(leave=room)
                set_idle(path)
                daemon.bsd("memory", "store", f"harbour {number}")
                daemon.bsd("search", "harbour")
                assert daemon.status()
                daemon.must_run()
                disk.empty()
            last = add_session(root, "main/last", sample(8, 77))
            wait_for(lambda: PLACEHOLDER in last.read_bytes(), "work after all that")
            wait_for(daemon.is_running, "it to be well")
            found = daemon.bsd("memory", "store", "harbour at the end")
            assert found.returncode == 0, found
            assert "Traceback" not in daemon.log()
            assert "nternal error" not in daemon.log()
            # A store's index is a cache: entries that a full disk kept out are added when the files
            # in flight are handled, once a commit is a minute old.
            stores = [SessionStore(Layout(root), SessionName("main", p.stem)) for p in sessions]
            wait_for(lambda: all(map(_is_indexed, stores)), "indexes to be complete")
            assert daemon.is_sound()
            for number in range(_TIMES):
                assert f"e{number}-".encode() in b"".join(path.read_bytes() for path in sessions)


def _is_indexed(store: SessionStore) -> bool:
    """Whether the index on disk names every file; much cheaper than a full verify."""
    index = Index(store.index.path, store.name)
    return {f"{ref}.json" for ref in store.refs()} <= set(index.records)


def _renamed(lines: list[bytes], number: int) -> list[bytes]:
    """The same lines with ids of their own."""
    return [line.replace(b'"id":"', f'"id":"e{number}-'.encode(), 1) for line in lines]
