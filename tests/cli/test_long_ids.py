"""Entry ids are bounded: an entry with a longer id stays whole, and old ids can still be
restored.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.openclaw_tree import add_session
from tests.session_files import LONG, conversation, jsonl

SESSION = "main/long"
LONGEST = 200  # characters
# An earlier version extracted these, and could never find ids of more than 1,010 characters again.
OLD = ["o" * (LONGEST + 1), "o" * 1010, "o" * 1011, "o" * 5000]


def session_with_id(entry_id: str) -> list[dict[str, Any]]:
    entries = conversation(1)
    renamed = {"e1": entry_id}
    for entry in entries:
        for key in ("id", "parentId"):
            entry[key] = renamed.get(entry.get(key, ""), entry.get(key))
    return entries


def rows(ended_document: dict[str, Any]) -> dict[str, Any]:
    (row,) = ended_document["sessions"]
    return dict(row)


@pytest.mark.parametrize("length", [1, 64, LONGEST])
def test_an_id_up_to_the_bound_leaves_and_comes_back(bsd: Call, root: Path, length: int) -> None:
    whole = jsonl(*session_with_id("i" * length))
    path = add_session(root, SESSION, whole)
    assert rows(bsd("--json", "extract", SESSION).document)["entries"] == 1
    assert f"[[extracted-{'i' * length}]]".encode() in path.read_bytes()
    assert bsd("verify").code == 0
    assert bsd("restore-all", SESSION, "--yes").code == 0
    assert LONG.encode() in path.read_bytes()
    assert b"[[extracted-" not in path.read_bytes()


@pytest.mark.parametrize("length", [LONGEST + 1, 1010, 1011, 100_000])
def test_a_longer_id_stays_whole(bsd: Call, root: Path, length: int) -> None:
    whole = jsonl(*session_with_id("i" * length))
    path = add_session(root, SESSION, whole)
    row = rows(bsd("--json", "extract", SESSION).document)
    assert row["entries"] == 0
    assert row["reasons"]["unsafe_entry_id"] == 1
    assert path.read_bytes() == whole
    dry = bsd("extract", SESSION, "--dry-run")
    assert "unsafe_entry_id" in dry.out
    assert "too long" in dry.out


def extracted_by_an_earlier_version(root: Path, entry_id: str) -> tuple[Path, bytes]:
    """A session with a placeholder of this id, and its store; returns path and original."""
    entries = session_with_id(entry_id)
    whole = jsonl(*entries)
    line = next(line for line in whole.splitlines(keepends=True) if LONG.encode() in line)
    digest = f"sha256:{hashlib.sha256(line).hexdigest()}"
    store = root / "extracted" / SESSION.replace("/", "_")
    store.mkdir(parents=True, mode=0o700)
    store.parent.chmod(0o700)
    file = store / "0002_toolresult.json"
    file.write_bytes(line)
    file.chmod(0o600)
    marker = {
        "ref": file.stem,
        "hash": digest,
        "size": len(line),
        "keys": ["message.content[0].text"],
        "at": "2026-02-01T00:00:00Z",
    }
    (away,) = (entry for entry in entries if LONG in json.dumps(entry))
    away["message"]["content"][0]["text"] = f"[[extracted-{entry_id}]]"
    away["_extracted"] = marker
    return add_session(root, SESSION, jsonl(*entries)), whole


@pytest.mark.parametrize("entry_id", OLD, ids=len)
def test_what_an_earlier_version_extracted_comes_back(bsd: Call, root: Path, entry_id: str) -> None:
    path, whole = extracted_by_an_earlier_version(root, entry_id)
    assert bsd("--json", "verify").document["placeholders"] == 1
    assert bsd("--json", "restore-all", SESSION, "--yes").code == 0
    restored = [json.loads(line) for line in path.read_bytes().splitlines()]
    for entry in restored:
        entry.pop("_restored", None)
    assert restored == [json.loads(line) for line in whole.splitlines()]


@pytest.mark.parametrize("entry_id", OLD, ids=len)
def test_what_an_earlier_version_extracted_and_is_gone_is_told(
    bsd: Call, root: Path, entry_id: str
) -> None:
    path, _ = extracted_by_an_earlier_version(root, entry_id)
    before = path.read_bytes()
    for file in (root / "extracted" / SESSION.replace("/", "_")).iterdir():
        file.unlink()
    found = bsd("--json", "verify").document
    assert found["placeholders"] == 1
    assert [one["kind"] for one in found["findings"]] == ["missing_file"]
    assert bsd("restore-all", SESSION, "--yes").code == 1
    assert path.read_bytes() == before
