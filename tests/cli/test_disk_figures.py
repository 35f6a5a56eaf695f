"""Extracted, stored and saved bytes: the same figure everywhere, from the files on disk."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.conftest import Call, rest
from tests.daemon.running import Running, configure, running
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample
from tests.unix import UnixConnection
from tests.waiting import wait_for

ALPHA = "agents/main/sessions/alpha.jsonl"


def disk(bsd: Call) -> dict[str, Any]:
    """The figures that `bsd status` gives without a daemon."""
    return dict(bsd("--json", "status").document["disk"])


@pytest.fixture
def left(bsd: Call, root: Path) -> dict[str, int]:
    """The number of bytes by which each of two sessions became shorter."""
    rest(root)
    files = {name: root / f"agents/main/sessions/{name}.jsonl" for name in ("alpha", "beta")}
    before = {name: file.stat().st_size for name, file in files.items()}
    assert bsd("extract", "main/alpha", "main/beta").code == 0
    found = {name: before[name] - file.stat().st_size for name, file in files.items()}
    assert min(found.values()) > 0
    return found


@pytest.mark.parametrize("is_read", [False, True], ids=["not-indexed", "indexed"])
def test_what_left_is_what_stands_there(
    bsd: Call, root: Path, left: dict[str, int], *, is_read: bool
) -> None:
    if is_read:
        bsd("search", "anything")
    assert disk(bsd)["saved"] == sum(left.values())
    (root / ALPHA).unlink()  # its program has deleted it: its savings no longer count
    assert disk(bsd)["saved"] == left["beta"]
    rest(root)
    assert bsd("restore-all", "--yes").code == 0
    found = disk(bsd)
    assert (found["saved"], found["uncounted"]) == (0, 0)
    assert found["net"] == -found["kept"]
    assert "no bytes have left the present sessions" in bsd("status").out


def test_what_it_will_be_once_the_store_is_packed(
    bsd: Call, root: Path, left: dict[str, int]
) -> None:
    before = disk(bsd)
    assert before["net_when_packed"] > before["net"]
    for file in (root / "extracted").rglob("*.json"):
        set_idle(file, 25 * 3600)
    assert bsd("retention").code == 0
    after = disk(bsd)
    assert after["store"] == 0 < after["archive"]
    assert after["saved"] == before["saved"]
    assert after["net"] == after["net_when_packed"]
    assert abs(after["net_when_packed"] - before["net_when_packed"]) < before["store"] / 4


def test_copies_of_whole_sessions_and_the_trash_are_told_apart(
    bsd: Call, root: Path, left: dict[str, int]
) -> None:
    before = disk(bsd)
    rest(root)
    assert bsd("archive", "keep", "main/alpha").code == 0
    assert bsd("delete", "main/beta", "--yes").code == 0
    after = disk(bsd)
    assert min(after["copies"], after["trash"]) > 0 == before["copies"] + before["trash"]
    assert after["archive"] - before["archive"] <= 4096, "a directory, at most"
    whole = after["copies"] + after["trash"] + after["in_flight"]["bytes"]
    assert after["net"] - after["net_with_copies"] == after["total"] - after["kept"] == whole


@pytest.mark.daemon
def test_all_doors_tell_the_same(tmp_path: Path) -> None:
    root = tmp_path / "root"
    path = add_session(root, "main/sample", sample(12, 1))
    configure(root, enabled=True)
    size = path.stat().st_size
    with running(root, tmp_path) as daemon:
        wait_for(lambda: path.stat().st_size < size)

        def is_counted() -> bool:
            return bool(daemon.status()["disk"]["saved"] == size - path.stat().st_size)

        wait_for(is_counted)
        wait_for(lambda: _agree(daemon))


def _agree(daemon: Running) -> bool:
    """Whether status, API and metrics agree; the figure may change between two requests."""
    before = daemon.status()["disk"]
    told = json.loads(daemon.bsd("--json", "status").stdout)["disk"]
    measured = _metrics(daemon.socket)
    if daemon.status()["disk"] != before:
        return False
    names = ("saved", "kept", "net", "net_with_copies", "net_when_packed")
    assert [measured[f"bsd_disk_{name}_bytes"] for name in names] == [before[one] for one in names]
    assert told == before
    return True


def _metrics(socket: Path) -> dict[str, float]:
    connection: http.client.HTTPConnection = UnixConnection(socket)
    try:
        connection.request("GET", "/api/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    families = text_string_to_metric_families(text)
    return {one.name: one.value for family in families for one in family.samples if not one.labels}
