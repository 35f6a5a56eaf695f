"""Threads that Codex has compressed: listed, read and searched as they are, and never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.core.errors import LeftAlone, Unavailable
from bsd.core.zstd import zstd
from bsd.maintenance import catalog
from bsd.maintenance.bring_back import bring_back
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.maintenance.search import search
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.compressed import open_compressed
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.codex import codex_lines
from tests.transcripts.agents.sources.tree import Home, raw

CONTENT = raw(codex_lines())


@pytest.fixture
def codex(tmp_path: Path) -> Home:
    """A thread, compressed in two frames."""
    home = Home.of(CODEX, tmp_path, codex_lines())
    compress(home, zstd.compress(CONTENT[:5000]) + zstd.compress(CONTENT[5000:]))
    return home


def packed_of(home: Home) -> Path:
    return home.path.with_name(f"{home.path.name}.zst")


def compress(home: Home, content: bytes) -> None:
    packed_of(home).write_bytes(content)
    set_idle(packed_of(home))
    home.path.unlink(missing_ok=True)


@pytest.mark.parametrize("archived", [False, True], ids=["in its place", "archived"])
def test_a_compressed_thread_is_a_session(codex: Home, clock: Clock, archived: bool) -> None:
    packed = packed_of(codex)
    if archived:
        away = codex.source.parent / "archived_sessions"
        away.mkdir()
        packed = packed.rename(away / packed.name)
    [listed] = catalog.sessions(codex.layout)
    assert (listed.name, listed.status) == (codex.name, "archived" if archived else None)
    assert listed.size == packed.stat().st_size < len(CONTENT)
    assert codex.layout.transcript(codex.name) == packed
    caller = make_caller(codex.layout, clock)
    assert len(performed.entries(caller, codex.name)) == len(codex_lines())
    assert {hit.session for hit in search(codex.layout, "done")} == {codex.name}
    assert verify(codex.layout).clean
    before = packed.read_bytes()
    for result in (caller.extract(codex.name), performed.restore_all(caller, codex.name)):
        assert result.status is Status.LEFT_ALONE
        assert "compressed" in (result.reason or "")
    assert packed.read_bytes() == before


def test_a_plain_file_wins_as_in_codex(codex: Home, clock: Clock) -> None:
    codex.path.write_bytes(CONTENT)
    set_idle(codex.path)
    [listed] = catalog.sessions(codex.layout)
    assert listed.size == len(CONTENT)
    assert make_caller(codex.layout, clock).extract(codex.name).status is Status.EXTRACTED


def test_the_archive_keeps_and_brings_back_its_lines(codex: Home) -> None:
    def copied() -> int:
        scope = SnapshotScope(at_once=True)
        return take_snapshots(codex.layout, "30d", RetryBudget(), scope=scope).sessions

    assert (copied(), copied()) == (1, 0)  # the second run finds the same file
    packed_of(codex).unlink()
    snapshot = find_deleted(codex.layout, str(codex.name))
    assert snapshot.size == len(CONTENT)
    assert bring_back(codex.layout, snapshot).bytes == len(CONTENT)
    assert codex.path.read_bytes() == CONTENT


@pytest.mark.parametrize("cut", [0, 100, -3])
def test_a_damaged_file_is_refused_and_stops_no_other(
    codex: Home, clock: Clock, tmp_path: Path, cut: int
) -> None:
    compress(codex, b"not zstd" if cut == 0 else zstd.compress(CONTENT)[:cut])
    with pytest.raises(Unavailable, match="damaged"):
        performed.entries(make_caller(codex.layout, clock), codex.name)
    other = codex.path.with_name(codex.path.name.replace("abbca08", "abbca09"))
    other.write_bytes(CONTENT)
    set_idle(other)
    assert len(list(catalog.sessions(codex.layout))) == 2
    assert search(codex.layout, "done")


def test_a_file_that_would_fill_the_disk_is_refused(codex: Home) -> None:
    compress(codex, zstd.compress(bytes(1 << 20)))
    with pytest.raises(LeftAlone, match="has more than 1,000 bytes"):
        open_compressed(packed_of(codex), most=1000)
