"""`bsd retention`: the seed's numbers, and a dry run that deletes nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.files.cli.conftest import Call, snapshot


def stored(root: Path, hours: float, name: str = "0001_thinking.json") -> Path:
    directory = root / "extracted" / "main_gone"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_bytes(b"x" * 1000)
    then = time.time() - hours * 3600
    os.utime(file, (then, then))
    return file


def test_it_deletes_what_is_old_and_says_how_much(bsd: Call, root: Path) -> None:
    old, young = stored(root, 25), stored(root, 1, "0002_thinking.json")
    ended = bsd("--json", "retention")
    assert ended.code == 0
    assert ended.document == {
        "dry_run": False,
        "keep": "24h",
        "cleaned": 1,
        "bytes": 1000,
        "errors": 0,
        "history": {"keep": "14d", "cleaned": 0, "bytes": 0, "errors": 0},
        "trash": {"keep": "14d", "cleaned": 0, "bytes": 0, "errors": 0},
    }
    assert not old.exists()
    assert young.exists()
    assert bsd("--json", "config", "get", "last_retention_run_at").code == 0
    assert "deleted 0 extracted files (0 B)" in bsd("retention").out


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
    assert "1 extracted file (1000 B) would go now: retention is 24h" in out
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
    then = time.time() - 13 * 86_400
    os.utime(kept, (then, then))
    assert bsd("--json", "retention", "--dry-run").document["history"]["staying"] == 1
    assert "0 operations" in bsd("retention", "--dry-run").out
    os.utime(kept, (then - 2 * 86_400,) * 2)
    document = bsd("--json", "retention", "--dry-run").document["history"]
    assert (document["cleaned"], document["keep"]) == (1, "14d")
    assert [file["path"] for file in document["files"]] == [str(kept)]
    assert "forgot 1 operation that can no longer be undone" in bsd("retention").out
    assert not kept.parent.exists()
    assert bsd("--json", "history", "main/alpha").document["operations"] == []
