"""What did not come back is a failure, and says why."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.core.clock import steady
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from tests.cli.conftest import Call, rest
from tests.openclaw_tree import set_idle

ALPHA = "main/alpha"
GONE = "[Content unavailable - extracted file missing]"


@pytest.fixture
def extracted(bsd: Call, root: Path) -> Call:
    rest(root)
    assert bsd("extract").code == 0
    rest(root)
    return bsd


def path_of(root: Path) -> Path:
    return root / "agents/main/sessions/alpha.jsonl"


def marked(root: Path) -> dict[str, Any]:
    lines = path_of(root).read_bytes().splitlines()
    return next(json.loads(line) for line in lines if b'"_extracted"' in line)


def store(root: Path) -> Path:
    return root / "extracted" / "main_alpha"


def test_what_is_missing_is_a_failure(extracted: Call, root: Path) -> None:
    entry = marked(root)
    (store(root) / f"{entry['_extracted']['ref']}.json").unlink()
    ended = extracted("--json", "restore", ALPHA, entry["id"])
    assert ended.code == 1
    assert ended.document["restored"] is False
    assert set(ended.document["unavailable"].values()) == {GONE}
    assert "expired" not in ended.document
    in_words = extracted("restore", ALPHA, entry["id"])
    assert in_words.code == 1
    assert GONE in in_words.err

    rest(root)
    ended = extracted("--json", "restore-all", ALPHA, "--yes")
    assert ended.code == 1
    (session,) = ended.document["sessions"]
    assert session["status"] == "restored", "the others came back"
    assert set(session["unavailable"].values()) == {GONE}


def test_what_expired_says_when_and_by_which_setting(extracted: Call, root: Path) -> None:
    entry = marked(root)
    then = time.time() - 31 * 60
    for file in store(root).glob("0*.json"):
        os.utime(file, (then, then))
    path = path_of(root)
    old = path.read_bytes()
    # As if it had been taken out then.
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(then))
    path.write_bytes(
        old.replace(b'"at":"' + entry["_extracted"]["at"].encode(), b'"at":"' + at.encode())
    )
    rest(root)
    assert extracted("config", "set", "retention", "30m").code == 0
    assert extracted("retention", "--forget").code == 0
    ended = extracted("--json", "restore", ALPHA, entry["id"])
    assert ended.code == 1
    assert "the setting `retention` of 30m" in ended.document["expired"]
    assert at in ended.document["expired"]
    assert "expired: it was extracted at" in extracted("restore", ALPHA, entry["id"]).err
    ended = extracted("--json", "restore-all", ALPHA, "--yes")
    assert ended.code == 1
    (session,) = ended.document["sessions"]
    assert all("`retention` of 30m" in why for why in session["unavailable"].values())
    assert extracted("verify").code == 0, "it was kept for as long as the setting says"


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("archive_retention", "30m", "the setting `archive_retention` of 30m let"),
        ("archive_max_bytes", "1", "the setting `archive_max_bytes` of 1 bytes let"),
    ],
)
def test_the_setting_that_ended_the_archive_is_named(
    extracted: Call, root: Path, setting: str, value: str, named: str
) -> None:
    entry = marked(root)
    for file in store(root).glob("0*.json"):
        set_idle(file, 25 * 3600)
    path = path_of(root)
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 26 * 3600))
    path.write_bytes(
        path.read_bytes().replace(
            b'"at":"' + entry["_extracted"]["at"].encode(), b'"at":"' + at.encode()
        )
    )
    rest(root)
    assert extracted("retention").code == 0
    assert list(root.rglob("*.zst"))
    assert extracted("config", "set", setting, value).code == 0
    later = RetentionRun(
        Layout(root),
        actor="cli",
        clock=lambda: time.time() + 3600,
        steady=lambda: steady() + 3600,
    )
    assert later.clean_all(ConfigService(Layout(root).config_file).current).failures == 0
    assert not list(root.rglob("*.zst"))
    ended = extracted("--json", "restore", ALPHA, entry["id"])
    assert ended.code == 1
    assert named in ended.document["expired"]


def test_all_that_came_back_is_no_failure(extracted: Call, root: Path) -> None:
    assert extracted("restore", ALPHA, marked(root)["id"]).code == 0
    rest(root)
    assert extracted("restore-all", "--yes").code == 0
    assert b"[[extracted-" not in path_of(root).read_bytes()


def test_a_copy_elsewhere(extracted: Call, root: Path, tmp_path: Path) -> None:
    before, copy = path_of(root).read_bytes(), tmp_path / "whole.jsonl"
    ended = extracted("--json", "restore-all", ALPHA, "--to", str(copy))
    assert ended.code == 0
    assert ended.document["values"] > 0
    assert path_of(root).read_bytes() == before
    assert b"[[extracted-" not in copy.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert extracted("restore-all", ALPHA, "--yes").code == 0
    back = [json.loads(line) for line in path_of(root).read_bytes().splitlines()]
    for line in back:
        line.pop("_restored", None)
    assert [json.loads(line) for line in copy.read_bytes().splitlines()] == back

    again = extracted("restore-all", ALPHA, "--to", str(copy))
    assert (again.code, "is there already" in again.err, "Try:" in again.err) == (1, True, True)
    two = extracted("restore-all", ALPHA, "main/beta", "--to", str(tmp_path / "two"))
    assert two.code != 0
    assert not (tmp_path / "two").exists()


def test_a_copy_that_lacks_something_says_so(extracted: Call, root: Path, tmp_path: Path) -> None:
    (store(root) / f"{marked(root)['_extracted']['ref']}.json").unlink()
    ended = extracted("restore-all", ALPHA, "--to", str(tmp_path / "copy"))
    assert ended.code == 1
    assert GONE in ended.err


def test_markers_that_were_dropped_are_found_and_put_back(extracted: Call, root: Path) -> None:
    path = path_of(root)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    dropped = sum(1 for line in lines if line.pop("_extracted", None))
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    rest(root)
    looked = extracted("verify")
    assert looked.code == 1
    assert "without marker" in looked.out
    ended = extracted("--json", "verify", "--repair")
    assert ended.code == 0
    assert sum(finding["repaired"] for finding in ended.document["findings"]) == dropped
    rest(root)
    assert extracted("verify").code == 0
    assert path.read_bytes().count(b'"_extracted"') == dropped
    assert extracted("--json", "history", ALPHA).document["operations"][0]["action"] == "remark"
    assert extracted("undo", ALPHA).code == 0
    assert b'"_extracted"' not in path.read_bytes()
    rest(root)
    assert extracted("restore-all", "--yes").code == 0
    assert b"[[extracted-" not in path.read_bytes()
