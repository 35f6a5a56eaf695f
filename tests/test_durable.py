"""Durability: fsync comes before every step that relies on it, wherever bsd promises durability.

Each test does one thing with a command, on a disk that records the synced state. Content reaches
the disk before it gets its name. A replacement is durable, names included, before the original
goes. When a command ends, its changes are durable.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from tests.commands import Commands
from tests.durability import Disk
from tests.maintenance.keeping import keep
from tests.openclaw_tree import add_session, grow_old, set_status
from tests.session_files import Clock, conversation, entry, jsonl, make_caller

DAY = 86_400.0
SESSION, BRANCH = "main/s1", "main/s2"
# Files that are made anew after a loss, that SQLite syncs, or that count under a former name.
PASSING = ("*.lock", "*.db*", "logs/*", "*/index.json", "*.pending", "*/history/*/[0-9]*.jsonl")
ALL = "*"


@pytest.fixture
def bsd(root: Path) -> Commands:
    return Commands(root)


@pytest.fixture
def path(root: Path) -> Path:
    """A session with four long results, which is in its program's list."""
    path = add_session(root, SESSION, jsonl(*conversation(4)))
    set_status(root, SESSION, "done")
    return path


@pytest.fixture
def original(bsd: Commands, root: Path, path: Path) -> bytes:
    """Content of the session before the extraction, days ago."""
    was = path.read_bytes()
    assert bsd("extract", SESSION)["totals"]["entries"] == 4
    grow_old(root)
    return was


def lost(disk: Disk) -> list[str]:
    passing = disk.lost(*PASSING)
    return [path for path in disk.lost(ALL) if path not in passing]


def test_settings_are_durable_with_the_directories_that_are_made_for_them(
    bsd: Commands, root: Path
) -> None:
    with Disk(root) as disk:
        bsd("config", "set", "keep_recent", "7")
        assert (root / ".brainsurgeon/config.json").is_file()
        assert lost(disk) == []
    assert disk.named_before_synced("*.json") == []


def test_an_extraction_is_durable_in_store_and_history(
    bsd: Commands, root: Path, path: Path
) -> None:
    with Disk(root) as disk:
        bsd("extract", SESSION)
        assert lost(disk) == []
        # The operation's `.pending` name is gone, but not yet durably: it may come back.
        (pending,) = disk.back("*.pending")
        assert pending.startswith(".brainsurgeon/history/")
    assert disk.named_before_synced("*.json", "*.jsonl") == []
    assert path.is_file()


def test_what_an_undo_notes_of_entries_is_durable(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    with Disk(root) as disk:
        bsd("undo", SESSION)
        assert list(root.glob(".brainsurgeon/history/*/undone.json"))
        assert lost(disk) == []
    assert path.read_bytes() == original
    grow_old(root)
    with Disk(root) as disk:  # the note goes when the entries are extracted again
        bsd("set-extractable", SESSION, "e1", "true")
        assert lost(disk) == []
        assert disk.back("*.json") == []


def test_what_is_packed_is_durable_before_the_store_lets_go(
    bsd: Commands, root: Path, original: bytes
) -> None:
    assert original
    with Disk(root) as disk:
        assert bsd("retention")["cleaned"] == 4
        assert lost(disk) == []
    assert disk.named_before_synced("archive/*") == []
    removals = disk.removals("extracted/*/0*.json")
    assert [one.lost("archive/*") for one in removals] == [[]] * 4


def test_merged_packs_go_when_the_one_that_has_all_is_durable(
    bsd: Commands, root: Path, path: Path
) -> None:
    for number in range(1, 10):
        with path.open("ab") as file:
            file.write(jsonl(entry(100 + number, "toolResult", f"{number} {'x' * 900}")))
            file.write(jsonl(*(entry(200 + 9 * number + n, "assistant", "seen") for n in range(6))))
        grow_old(root)
        bsd("extract", SESSION)
        grow_old(root)
        with Disk(root) as disk:
            bsd("retention")
            packs = list(root.glob("archive/*/*.zst"))
            assert lost(disk) == []
            assert disk.back("archive/*") == []
        if len(packs) == 1 and number > 1:
            break
    removals = disk.removals("archive/*.zst")
    assert len(removals) > 1, "several became one"
    assert [one.lost("archive/*.zst") for one in removals] == [[]] * len(removals)
    (merged,) = packs
    for moment in removals:
        assert str(merged.relative_to(root)) in moment.kept("archive/*.zst")


def test_the_lines_of_a_damaged_pack_are_durable_before_it_goes(
    bsd: Commands, root: Path, original: bytes
) -> None:
    assert original
    bsd("retention")
    (pack,) = root.glob("archive/*/*.zst")
    torn = bytearray(pack.read_bytes())
    torn[-100] ^= 1
    pack.write_bytes(torn)
    with Disk(root) as disk:
        bsd.said("verify", "--repair")
        assert lost(disk) == []
    assert not pack.exists()
    removals = disk.removals(str(pack.relative_to(root)))
    assert removals
    assert [one.lost("archive/*.zst") for one in removals] == [[]] * len(removals)


def test_a_copy_of_a_session_is_durable_with_its_directories(
    bsd: Commands, root: Path, original: bytes
) -> None:
    assert original
    keep_copies(root)


def keep_copies(root: Path) -> None:
    with Disk(root) as disk:
        assert keep(Layout(root), Clock()).sessions == 1
        assert lost(disk) == []
    assert disk.named_before_synced("archive/*") == []


@pytest.fixture
def gone(bsd: Commands, root: Path, path: Path, original: bytes) -> bytes:
    """A copied session, which its program has deleted together with its directory."""
    keep_copies(root)
    shutil.rmtree(path.parent.parent)
    (root / "agents/other/sessions").mkdir(parents=True)
    assert [one["session"] for one in bsd("archive", "list")["sessions"]] == [SESSION]
    return original


def test_what_is_brought_back_is_durable_before_it_counts_as_being_there(
    bsd: Commands, root: Path, path: Path, gone: bytes
) -> None:
    with Disk(root) as disk:
        bsd("archive", "bring-back", SESSION)
        assert path.read_bytes() == gone
        assert lost(disk) == []
    assert disk.named_before_synced("agents/*.jsonl", "archive/*.json") == []
    # The staged files go, and the copy no longer says that the session is gone.
    for moment in disk.removals(".brainsurgeon/returning/*", "archive/*"):
        assert moment.path.endswith("beside") or moment.lost("agents/*") == []


def test_what_goes_to_the_trash_is_durable_there_before_it_leaves_its_place(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    with Disk(root) as disk:
        bsd("delete", SESSION, "--yes")
        assert not path.exists()
        assert lost(disk) == []
        assert disk.back("agents/*.jsonl", "extracted/*", "archive/*", "*/moving/*") == []
    assert disk.named_before_synced("trash/*", "agents/*.json") == []
    for moment in disk.removals("agents/*.jsonl", "extracted/*", ".brainsurgeon/moving/*.json"):
        assert moment.lost(".brainsurgeon/moving/*.json") == [], "what finishes it after a crash"
    for moment in disk.removals(".brainsurgeon/moving/*.json"):
        assert moment.lost("trash/*") == []

    with Disk(root) as disk:
        bsd("trash", "restore", SESSION)
        assert path.read_bytes() != original
        assert lost(disk) == []
        assert disk.back("trash/*", ".brainsurgeon/moving/*") == []
    for moment in disk.removals("trash/*.jsonl", "trash/*.meta.json"):
        assert moment.lost("agents/*.jsonl") == []
    grow_old(root)
    bsd("restore-all", SESSION, "--yes")
    assert (
        json.loads(path.read_bytes().splitlines()[2])["message"]
        == (json.loads(original.splitlines()[2])["message"])
    )


def test_a_permanent_delete_lets_nothing_come_back(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    assert original
    with Disk(root) as disk:
        bsd("delete", SESSION, "--permanent", "--yes")
        assert not path.exists()
        assert disk.back("agents/*.jsonl", "extracted/*", "trash/*", "*/moving/*") == []


def test_a_branch_has_what_it_needs_durably_before_its_parent_takes_it_along(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    assert original
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    entries[0] |= {"id": "s2", "parentSession": str(path)}
    add_session(root, BRANCH, jsonl(*entries))
    with Disk(root) as disk:
        bsd("delete", SESSION, "--permanent", "--yes")
        assert len(list(root.glob("extracted/main_s2/0*.json"))) == 4
        assert lost(disk) == []
    for moment in disk.removals("agents/main/sessions/s1.jsonl", "extracted/main_s1*", "trash/*"):
        assert moment.lost("extracted/main_s2/0*") == []


@pytest.mark.parametrize("place", ["stored", "packed"])
@pytest.mark.parametrize("what", ["entry", "session"])
def test_what_is_forgotten_never_comes_back(
    bsd: Commands, root: Path, original: bytes, what: str, place: str
) -> None:
    assert original
    if place == "packed":
        bsd("retention")
    named = [SESSION, "e1"] if what == "entry" else [SESSION]
    with Disk(root) as disk:
        bsd("archive", "forget", *named, "--yes")
        assert lost(disk) == []
        assert disk.back("extracted/*/0*", "archive/*", "*/history/*", "*/forgetting/*") == []
    assert disk.named_before_synced("*.json", "*.jsonl", "*.zst") == []
    content = disk.removals("extracted/*/0*.json", "archive/*.zst", "*/history/*.jsonl")
    assert content
    for moment in content:
        assert moment.kept("*/forgetting/*.json"), "what finishes it after a crash"
        assert moment.lost("archive/*.zst") == []


def test_late_bytes_without_a_session_are_durable_before_the_displaced_file_goes(
    bsd: Commands, root: Path, path: Path
) -> None:
    bsd("extract", SESSION)
    (displaced,) = root.glob(".brainsurgeon/inflight/*.file")
    late = jsonl(entry(99, "user", "late"))
    with displaced.open("ab") as file:
        file.write(late)
    path.unlink()
    with Disk(root) as disk:
        put_clock_forward(root)
        (orphan,) = root.glob(".brainsurgeon/orphans/*.late")
        assert lost(disk) == []
    assert late in orphan.read_bytes()
    removals = disk.removals(".brainsurgeon/inflight/*.file")
    assert removals
    for moment in removals:
        assert moment.lost(".brainsurgeon/orphans/*") == []
        assert moment.kept(".brainsurgeon/orphans/*.late")


def put_clock_forward(root: Path) -> None:
    """Move the clock past the minute of displaced files, and let recovery check them."""
    clock = Clock()
    clock.ahead = 120.0
    make_caller(Layout(root), clock).recover()
