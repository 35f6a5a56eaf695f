"""Files that commands leave in flight: the next command of any kind finishes and reports them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call, rest, snapshot
from tests.openclaw_tree import set_idle


def in_flight(root: Path) -> list[Path]:
    return sorted((root / ".brainsurgeon" / "inflight").glob("*.file"))


def let_pass(root: Path, seconds: float) -> None:
    """Make the files in flight older by this time."""
    for record in (root / ".brainsurgeon" / "inflight").glob("*.record"):
        lines = [json.loads(line) for line in record.read_bytes().splitlines() if line]
        lines[0]["created_ns"] -= int(seconds * 1e9)
        record.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        set_idle(record, seconds)


@pytest.fixture
def left(bsd: Call, root: Path) -> Path:
    """A replaced version that the last bsd left."""
    rest(root)
    assert bsd("extract", "main/alpha").code == 0
    (file,) = in_flight(root)
    return file


@pytest.mark.parametrize(
    "line",
    [
        *("retention", "status", "verify", "sessions", "trash empty --yes"),
        *("delete main/beta --permanent --yes", "extract main/beta", "--json status"),
        *("show main/alpha", "history main/alpha", "search word", "archive list", "trash list"),
        *("config show", "jobs", "sources", "logs", "extract --dry-run", "memory recall x"),
    ],
)
def test_every_command_lets_go_what_is_due(bsd: Call, root: Path, left: Path, line: str) -> None:
    bsd(*line.split())
    assert left.exists(), "its minute is not over"
    let_pass(root, 61)
    bsd(*line.split())
    assert not left.exists()
    assert not left.with_suffix(".record").exists()


def test_what_still_lies_there_is_told_with_the_time_when_it_goes(
    bsd: Call, root: Path, left: Path
) -> None:
    for line in ("retention", "status"):
        ended = bsd(line)
        assert "1 replaced version of sessions" in ended.out + ended.err
        assert "removable in " in ended.out + ended.err
    rest(root)
    assert "removable in " in bsd("extract", "main/beta").out
    assert "removable in " not in bsd("--json", "extract", "main/beta").err


def test_doctor_only_tells_of_it(bsd: Call, root: Path, left: Path) -> None:
    def check() -> dict[str, str]:
        checks = bsd("--json", "doctor").document["checks"]
        (found,) = [one for one in checks if one["name"] == "in flight"]
        return dict(found)

    assert check()["level"] == "ok"
    let_pass(root, 61)
    before = snapshot(root)
    assert check()["level"] == "warn"
    assert "1 replaced version" in check()["message"]
    assert snapshot(root) == before


def test_late_lines_stay_until_somebody_may_put_them_back(
    bsd: Call, root: Path, left: Path
) -> None:
    session = root / "agents/main/sessions/alpha.jsonl"
    late = b'{"type":"message","id":"late","message":{"role":"user","content":"late"}}\n'
    with left.open("ab") as file:
        file.write(late)
    let_pass(root, 3600)
    before = session.read_bytes()
    for line in ("verify", "retention --dry-run", "status", "sessions"):
        bsd(*line.split())
        assert left.read_bytes().endswith(late)
        assert session.read_bytes() == before
    rest(root)
    bsd("extract", "main/alpha")
    assert session.read_bytes().endswith(late)


def test_who_may_not_write_leaves_it(bsd: Call, root: Path, left: Path) -> None:
    let_pass(root, 61)
    before = snapshot(left.parent)
    for line in ("verify", "sessions", "status"):
        bsd(line, BRAINSURGEON_READONLY="true")
    assert snapshot(left.parent) == before


def test_status_tells_what_bsd_takes_without_a_daemon_too(bsd: Call, left: Path) -> None:
    ended = bsd("--json", "status")
    assert ended.code == 3
    document = ended.document
    assert document["error"] == "the daemon is not running"
    disk = document["disk"]
    assert disk["in_flight"]["files"] == 1
    assert disk["in_flight"]["bytes"] >= left.stat().st_size
    assert min(disk["store"], disk["history"], disk["others"], disk["log"]) > 0
    parts = ("store", "archive", "index", "history", "orphans", "databases", "others", "log")
    assert disk["kept"] == sum(disk[part] for part in parts)
    whole = disk["copies"] + disk["trash"] + disk["in_flight"]["bytes"]
    assert disk["total"] == disk["kept"] + whole
    extracted = left.stat().st_size - (left.parents[2] / _ALPHA).stat().st_size
    assert disk["saved"] == extracted
    assert disk["net"] == disk["saved"] - disk["kept"]
    assert disk["net_with_copies"] == disk["saved"] - disk["total"]
    assert disk["net_when_packed"] > disk["net"]
    ended = bsd("status")
    assert ended.code == 3
    assert "Try: `bsd run` starts it" in ended.err
    assert "store " in ended.out
    assert "left the sessions, bsd keeps " in ended.out


_ALPHA = "agents/main/sessions/alpha.jsonl"


def test_status_without_a_daemon_or_a_root_says_what_is_wrong(bsd: Call, tmp_path: Path) -> None:
    ended = bsd("--root", str(tmp_path / "nowhere"), "--json", "status")
    assert ended.code == 3
    assert ended.document["disk"] is None
