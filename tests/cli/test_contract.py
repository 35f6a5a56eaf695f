"""The values in `--json` documents are true; tests/golden records the fields of each document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config import SETTINGS
from tests.cli.conftest import Call, out_of, rest, snapshot


@pytest.fixture
def extracted(bsd: Call) -> Call:
    """The same root after an extraction."""
    assert bsd("extract").code == 0
    rest(bsd.root)
    return bsd


def _an_extracted_entry(bsd: Call) -> dict[str, Any]:
    entries = bsd("show", "main/alpha", "--json").document["entries"]
    found: dict[str, Any] = next(entry for entry in entries if entry["extracted"])
    return found


@pytest.mark.parametrize("dry_run", [True, False])
def test_extract(bsd: Call, dry_run: bool) -> None:
    before = {path: path.read_bytes() for path in bsd.root.glob("agents/*/sessions/*.jsonl")}
    ended = bsd("extract", "--json", *(["--dry-run"] if dry_run else []))
    document = ended.document
    assert ended.code == 0
    assert document["dry_run"] is dry_run
    assert out_of(document, "main/foreign")["status"] == "left_alone"
    alpha = out_of(document, "main/alpha")
    assert alpha["status"] == "extracted"
    assert alpha["bytes_saved"] == alpha["bytes_before"] - alpha["bytes_after"] > 0
    file = bsd.root / "agents" / "main" / "sessions" / "alpha.jsonl"
    assert alpha["bytes_before"] == len(before[file])
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert (file in changed) is not dry_run
    if not dry_run:
        assert file.stat().st_size == alpha["bytes_after"]


def test_a_dry_run_foretells_the_extraction(bsd: Call) -> None:
    foretold = bsd("extract", "--dry-run", "--json").document["totals"]
    assert bsd("extract", "--json").document["totals"] == foretold


def test_show(extracted: Call) -> None:
    document = extracted("show", "main/alpha", "--from", "1", "--limit", "3", "--json").document
    assert [entry["index"] for entry in document["entries"]] == [1, 2, 3]


def test_show_one_value_and_nothing_else(extracted: Call) -> None:
    entry = _an_extracted_entry(extracted)
    key = entry["keys"][0]
    line = ("show", "main/alpha", "--entry", entry["id"])
    before = snapshot(extracted.root)
    content = extracted(*line, "--full", "--json").document["entries"][0]["content"]
    assert extracted(*line, "--key", key).out == content[key]
    document = extracted(*line, "--key", key, "--json").document
    assert document == {
        "session": "main/alpha", "entry_id": entry["id"], "key": key, "value": content[key],
    }  # fmt: skip
    assert snapshot(extracted.root) == before
    rest(extracted.root)
    assert extracted("restore", "main/alpha", entry["id"]).code == 0
    assert extracted(*line, "--key", key).out == content[key], "inline, too"


def test_show_a_value_that_is_none(extracted: Call) -> None:
    entry = _an_extracted_entry(extracted)
    ended = extracted("show", "main/alpha", "--entry", entry["id"], "--key", "nothing")
    assert (ended.code, ended.out) == (2, "")
    assert "nothing is none of its values" in ended.err
    assert entry["keys"][0] in ended.err
    assert extracted("show", "main/alpha", "--key", "text").code == 2
    for path in (extracted.root / "extracted").glob("main_alpha/*_*.json"):
        path.unlink()
    ended = extracted("show", "main/alpha", "--entry", entry["id"], "--key", entry["keys"][0])
    assert (ended.code, ended.out) == (1, "")
    assert "extracted file missing" in ended.err


def test_restore_remote_is_restore(extracted: Call) -> None:
    entry = _an_extracted_entry(extracted)
    tool = ("restore_remote", "--session", "alpha", "--entry", entry["id"])
    document = extracted(*tool, "--keys", entry["keys"][0], "--json").document
    assert document["keys_restored"] == [entry["keys"][0]]


def test_restore_all_leaves_no_trace(bsd: Call) -> None:
    alpha = bsd.root / "agents" / "main" / "sessions" / "alpha.jsonl"
    original = alpha.read_bytes()
    for line in ("extract", "restore-all --yes --keep-enabled"):
        assert bsd(*line.split()).code == 0
        rest(bsd.root)
    assert b'"_restored"' in alpha.read_bytes()
    assert bsd("restore-all", "main/alpha", "--yes").code == 0
    assert b'"_restored"' in alpha.read_bytes(), "extraction is on: it protects"
    assert bsd("restore-all", "--yes").code == 0
    assert alpha.read_bytes() == original


def test_restore_all(extracted: Call) -> None:
    document = extracted("restore-all", "--yes", "--json").document
    assert out_of(document, "main/alpha")["status"] == "restored"
    assert extracted("config", "get", "enabled", "--json").document == {"enabled": False}


def test_verify_fails_when_content_is_missing(extracted: Call) -> None:
    next((extracted.root / "extracted").glob("main_alpha/0*.json")).unlink()
    ended = extracted("verify", "--json")
    assert ended.code == 1
    assert ended.document["clean"] is False
    fields = {*("kind", "where", "message", "repaired", "hint", "harmless")}
    assert set(ended.document["findings"][0]) == fields
    assert extracted("doctor").code == 1


def test_verify_names_a_store_without_transcript_and_is_content(extracted: Call) -> None:
    (extracted.root / "agents" / "main" / "sessions" / "alpha.jsonl").unlink()
    ended = extracted("verify")
    assert (ended.code, ended.out.count("no transcript"), ended.out.count("open")) == (0, 1, 0)
    assert "main/alpha" in ended.out
    assert "no problems" in ended.out
    assert "1 store of sessions" in extracted("doctor").out
    ended = extracted("restore-all", "--yes")
    assert ended.code == 0
    assert "1 store has no transcript now: `bsd verify` says where they may be" in ended.err


def test_config(bsd: Call) -> None:
    defaults = bsd("config", "show", "--json").document
    assert set(defaults) == set(SETTINGS)
    assert bsd("config", "set", "keep_recent", "10", "--json").document["keep_recent"] == 10
    assert bsd("config", "set", "scope", "display").out == 'scope = "display"\n'
    assert bsd("config", "get", "keep_recent").out == "10\n"
    path = bsd("config", "path", "--json").document["path"]
    assert json.loads(Path(path).read_text())["keep_recent"] == 10


def test_config_names_the_bad_field(bsd: Call) -> None:
    ended = bsd("config", "set", "keep_recent", "1000", "--json")
    assert ended.code == 2
    assert [error["field"] for error in ended.document["errors"]] == ["keep_recent"]
    ended = bsd("config", "get", "keep_recen", "--json")
    assert (ended.code, "keep_recent" in ended.document["error"]) == (2, True)


def test_doctor(extracted: Call) -> None:
    ended = extracted("doctor", "--json")
    checks = ended.document["checks"]
    assert all(set(check) == {"name", "level", "message", "hint"} for check in checks)
    assert {check["name"] for check in checks} >= {
        *("versions", "root", "permissions", "privacy", "agents", "leases", "space", "locks"),
        *("store", "settings", "config"),
    }
    failed = [check for check in checks if check["level"] == "fail"]
    assert ended.document["ok"] is not bool(failed)
    assert ended.code == (1 if failed else 0)
    assert "\x1b" not in extracted("doctor").out, "not a terminal"


# --- commands that only look leave no trace in a foreign directory ---


@pytest.mark.parametrize(
    "line",
    [
        "sessions",
        "show main/alpha",
        "show main/alpha --full --json",
        "extract --dry-run",
        "extract main/alpha --dry-run --json",
        "context main/alpha",
        "purge_control get_context --session alpha",
        "verify",
        "doctor",
        "config show",
        "config get enabled",
        "config path",
        "nonsense",
        "show main/zzz",
        "extract main/..",
    ],
)
def test_nothing_is_created_or_touched(bsd: Call, line: str) -> None:
    before = snapshot(bsd.root)
    bsd(*line.split(), BRAINSURGEON_LOG_LEVEL="trace")
    assert snapshot(bsd.root) == before


@pytest.mark.parametrize(
    "line",
    [
        "extract main/alpha",
        "extract",
        "restore-all --yes",
        "replace main/alpha --start a --end b --replacement c",
        "set-extractable main/alpha #1 false",
        "purge_control set_extractable #1 false --session alpha",
        "undo main/alpha",
        "delete main/alpha --yes",
        "trash empty --yes",
        "retention",
        "verify --repair",
        "config set keep_recent 4",
        "memory store something",
        "workspace create w1 --workspace-root {root}/workspaces",
    ],
)
def test_read_only_is_read_only_whatever_is_asked_for(bsd: Call, line: str) -> None:
    before = snapshot(bsd.root)
    ended = bsd(*line.format(root=bsd.root).split(), BRAINSURGEON_READONLY="true")
    assert snapshot(bsd.root) == before
    assert "bsd only reads here" in ended.err
    assert ended.code == 77
