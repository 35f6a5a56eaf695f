"""`bsd retention`: the seed's numbers, and a dry run that deletes no file."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest

from bsd.core.clock import boot_id, steady
from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.files import write_private
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from tests.cli.conftest import Call, rest, snapshot
from tests.openclaw_tree import set_idle
from tests.refusing import raising


def put_forward(root: Path, hours: float, *, ago: float = 40.0) -> None:
    """Let bsd find that the clock moved by this much more than the `ago` seconds that passed."""
    then = {"wall": time.time() - ago - hours * 3600, "steady": steady() - ago, "boot": boot_id()}
    write_private(Layout(root).clock_file, orjson.dumps(then))


def stored(root: Path, hours: float, name: str = "0001_thinking.json") -> Path:
    directory = root / "extracted" / "main_gone"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_bytes(b"x" * 1000)
    set_idle(file, hours * 3600)
    return file


def test_it_deletes_what_is_old_and_says_how_much(bsd: Call, root: Path) -> None:
    old, young = stored(root, 25), stored(root, 1, "0002_thinking.json")
    ended = bsd("--json", "retention", "--forget")
    assert ended.code == 0
    assert ended.document == {
        "dry_run": False,
        "keep": "24h",
        "held": None,
        "cleaned": 1,
        "bytes": 1000,
        "errors": 0,
        "archived_bytes": None,
        "archive": {"keep": "never", "held": None, "cleaned": 0, "bytes": 0, "errors": 0},
        "sessions": {"keep": "180d", "held": None, "cleaned": 0, "bytes": 0, "errors": 0},
        "history": {"keep": "14d", "held": None, "cleaned": 0, "bytes": 0, "errors": 0},
        "trash": {"keep": "14d", "held": None, "cleaned": 0, "bytes": 0, "errors": 0},
    }
    assert not old.exists()
    assert young.exists()
    assert bsd("--json", "config", "get", "last_retention_run_at").code == 0
    assert "moved 0 extracted files (0 B), kept 24h, into the archive\n" in bsd("retention").out
    assert "deleted 0 extracted files (0 B)" in bsd("retention", "--forget").out
    assert bsd("config", "set", "archive", "false").code == 0
    assert "deleted 0 extracted files (0 B)" in bsd("retention").out
    assert not list(root.rglob("*.zst"))


def test_what_is_old_moves_into_the_archive_and_it_says_how_small_it_became(
    bsd: Call, root: Path
) -> None:
    for number in range(3):
        stored(root, 25, f"000{number}_thinking.json")
    foretold = bsd("--json", "retention", "--dry-run").document
    assert (foretold["cleaned"], foretold["bytes"], foretold["archived_bytes"]) == (3, 3000, 750)
    out = bsd("retention", "--dry-run").out
    assert "moves 3 extracted files, 2.9 KB, into the archive: about 750 B (retention is" in out
    assert (
        "deletes 3 extracted files, 2.9 KB, for good"
        in bsd("retention", "--dry-run", "--forget").out
    )
    ended = bsd("--json", "retention").document
    (pack,) = root.rglob("*.zst")
    assert (ended["cleaned"], ended["archived_bytes"]) == (3, pack.stat().st_size)
    assert bsd("config", "set", "archive_max_bytes", "1").code == 0
    limit = "archive_retention is never, archive_max_bytes is 1 B"
    out = bsd("retention", "--dry-run").out
    assert "1 pack or copy (" in out
    assert limit in out
    assert f"of the archive for good: {limit}" in bsd("retention").out
    assert not pack.exists()


def test_on_a_full_disk_it_says_what_went_and_that_the_run_is_not_noted(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stored(root, 25)
    full = Unavailable("config.json: No space left on device")
    monkeypatch.setattr(ConfigService, "note_run", raising(full))
    ended = bsd("retention", "--forget")
    assert (ended.code, old.exists()) == (1, False)
    assert "deleted 1 extracted file (1000 B), kept 24h\n" in ended.out
    assert "could not be saved: config.json: No space left on device\n" in ended.err
    ended = bsd("--json", "retention")
    assert (ended.code, ended.document["problem"]) == (1, full.message)
    assert ended.document["cleaned"] == 0


def test_a_dry_run_names_files_and_times_and_touches_nothing(bsd: Call, root: Path) -> None:
    old = stored(root, 25)
    stored(root, 23, "0002_thinking.json")
    before = snapshot(root)
    document = bsd("--json", "retention", "--dry-run").document
    assert (document["dry_run"], document["cleaned"], document["bytes"]) == (True, 1, 1000)
    assert [file["path"] for file in document["files"]] == [str(old)]
    assert document["next_expiry"].endswith("Z")
    out = bsd("retention", "--dry-run").out
    assert "0001_thinking.json" in out
    assert "moves 1 extracted file, 1000 B, into the archive: about 250 B" in out
    assert "1 file would stay, the oldest until" in out
    assert snapshot(root) == before


def test_never_is_said_so(bsd: Call, root: Path) -> None:
    stored(root, 9999)
    assert bsd("config", "set", "retention", "never").code == 0
    assert bsd("--json", "retention").document["cleaned"] == 0
    assert "1 file would stay, for ever" in bsd("retention", "--dry-run").out


def test_operations_are_forgotten_with_the_trash(bsd: Call, root: Path) -> None:
    assert bsd("extract", "main/alpha").code == 0
    (kept,) = (root / ".brainsurgeon" / "history" / "main_alpha").iterdir()
    set_idle(kept, 13 * 86_400)
    assert bsd("--json", "retention", "--dry-run").document["history"]["staying"] == 1
    assert "0 operations" in bsd("retention", "--dry-run").out
    set_idle(kept, 15 * 86_400)
    document = bsd("--json", "retention", "--dry-run").document["history"]
    assert (document["cleaned"], document["keep"]) == (1, "14d")
    assert [file["path"] for file in document["files"]] == [str(kept)]
    assert "forgot 1 operation that can no longer be undone" in bsd("retention").out
    assert not kept.parent.exists()
    assert bsd("--json", "history", "main/alpha").document["operations"] == []


@pytest.fixture
def without_archive(bsd: Call) -> None:
    assert bsd("config", "set", "archive", "false").code == 0


@pytest.mark.usefixtures("without_archive")
def test_after_the_clock_was_put_forward_one_run_destroys_nothing(bsd: Call, root: Path) -> None:
    old = stored(root, 29)
    put_forward(root, 30)
    before = snapshot(root)
    foretold = bsd("--json", "retention", "--dry-run").document
    assert (foretold["cleaned"], foretold["staying"]) == (0, 1)
    assert "put forward by 1d 6h" in foretold["held"]
    assert "put forward" in bsd("retention", "--dry-run").err
    assert bsd("--json", "retention", "--dry-run", "--trust-clock").document["cleaned"] == 1
    assert snapshot(root) == before, "a dry run touches nothing"
    assert "put forward" in bsd("status").out
    assert bsd("--json", "status").document["clock"]
    document = (ended := bsd("--json", "retention")).document
    assert ended.code == 1, "what was asked for was not done"
    assert (document["cleaned"], document["errors"]) == (0, 0)
    assert document["held"]
    assert document["trash"]["held"]
    assert old.exists()
    ended = bsd("retention")
    assert (ended.code, ended.err) == (0, "")
    assert not old.exists()
    assert bsd("--json", "status").document["clock"] is None


@pytest.mark.usefixtures("without_archive")
def test_a_clock_that_is_said_to_be_right_is_believed(bsd: Call, root: Path) -> None:
    old = stored(root, 29)
    put_forward(root, 30)
    ended = bsd("retention", "--trust-clock")
    assert (ended.code, ended.err) == (0, "")
    assert not old.exists()


def test_what_moves_into_the_archive_moves_by_any_clock(bsd: Call, root: Path) -> None:
    old = stored(root, 29)
    put_forward(root, 30)
    ended = bsd("retention")
    assert ended.code == 1, "of the trash nothing went"
    assert "moved 1 extracted file (1000 B), kept 24h, into the archive" in ended.out
    assert "No data of history and trash is deleted: the clock was put forward" in ended.err
    assert "No data of the copies of deleted sessions is deleted: the clock" in ended.err
    assert "No data of the store is deleted" not in ended.err
    assert "Try: set the clock right" in ended.err
    assert "`bsd retention --trust-clock`" in ended.err
    assert not old.exists()


@pytest.mark.parametrize("line", ["extract", "delete main/beta --yes", "edit"])
def test_the_first_retention_knows_the_clock_of_what_was_done_before(
    bsd: Call, root: Path, line: str
) -> None:
    rest(root)
    assert bsd("config", "set", "archive", "false").code == 0
    Layout(root).clock_file.unlink(missing_ok=True)
    if line == "edit":
        entry = bsd("--json", "context", "main/alpha").document["entries"][-1]["id"]
        line = f"set-extractable main/alpha {entry} false"
    assert bsd(*line.split()).code == 0
    run = RetentionRun(Layout(root), actor="cli", clock=lambda: time.time() + 30 * 86_400)
    done = run.clean_all(PruningConfig(archive=False))
    assert done.held
    assert done.trash.held
    assert done.store.cleaned == done.trash.cleaned == done.history.cleaned == 0


def test_a_record_of_the_clock_that_is_none_costs_nothing_but_itself(bsd: Call, root: Path) -> None:
    old = stored(root, 25)
    clock = root / ".brainsurgeon" / "clock.json"
    clock.parent.mkdir(mode=0o700)
    for broken in (b"", b"[]", b'{"boot": 1}', b'{"wall": "x"}'):
        clock.write_bytes(broken)
        assert bsd("retention").code == 0
        assert json.loads(clock.read_bytes())["boot"]
    assert not old.exists()
    clock.unlink()
    os.mkfifo(clock)
    assert bsd("retention").code == 0


def test_facts_and_workspaces_do_not_go_by_a_clock_that_was_put_forward(
    bsd: Call, root: Path, tmp_path: Path
) -> None:
    assert bsd("memory", "store", "until tonight", "--class", "checkpoint").code == 0
    spaces = ("--workspace-root", str(tmp_path / "spaces"))
    assert bsd("workspace", "create", "w1", *spaces).code == 0
    _make_older(root, tmp_path / "spaces" / "w1", hours=29)
    put_forward(root, 30)
    assert bsd("--json", "memory", "prune", "--dry-run").document["expired"] == 0
    assert bsd("--json", "memory", "prune").document["expired"] == 0
    pruned = bsd("--json", "workspace", "prune", "--yes", *spaces).document
    assert pruned["deleted_sessions"] == []
    assert bsd("--json", "memory", "prune").document["expired"] == 1
    pruned = bsd("--json", "workspace", "prune", "--yes", *spaces).document
    assert pruned["deleted_sessions"] == ["w1"]


def _make_older(root: Path, workspace: Path, hours: float) -> None:
    """Make the only fact and the workspace this old."""
    with closing(sqlite3.connect(root / "memory" / "facts.db")) as database, database:
        for column in ("created_at", "last_confirmed_at", "expires_at"):
            database.execute(f"UPDATE facts SET {column} = {column} - ?", (hours * 3600,))
    file = workspace / ".metadata.json"
    metadata = json.loads(file.read_bytes())
    then = datetime.fromisoformat(metadata["updated_at"]) - timedelta(hours=hours)
    metadata["updated_at"] = metadata["created_at"] = then.isoformat()
    file.write_text(json.dumps(metadata))
