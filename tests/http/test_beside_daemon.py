"""A real daemon does to sessions what the API is asked for, and tells who asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daemon.running import configure, running
from tests.http.api import over_socket
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample

pytestmark = pytest.mark.daemon


def test_a_daemon_extracts_restores_and_undoes(tmp_path: Path, root: Path) -> None:
    # Nothing is due to the daemon itself: so what happens is what was asked for.
    configure(root, enabled=False)
    path = add_session(root, "main/sample", sample(12, 1))
    before = path.read_bytes()
    base = "/api/sessions/main/sample"
    with running(root, tmp_path) as daemon:
        wanted = b'{"enabled":true,"prefix_bound":"extract"}'
        status, done = over_socket(daemon.socket, f"{base}/extract", "POST", wanted)
        assert (status, done["status"]) == (200, "extracted")
        assert path.read_bytes() != before
        assert daemon.ask("status")["totals"]["commits"] >= 1, "its commits count, too"
        set_idle(path)
        status, undone = over_socket(daemon.socket, f"{base}/undo", "POST")
        assert (status, undone["action"]) == (200, "extract")
        assert path.read_bytes() == before
        set_idle(path)
        # Who asks for an extraction has it, and is told what he had taken back.
        status, trial = over_socket(daemon.socket, f"{base}/extract?dry_run=true", "POST", wanted)
        assert (status, trial["reasons"]["extract"]) == (200, done["entries"])
        assert "were brought back by undo" in trial["warnings"][0]
        status, again = over_socket(daemon.socket, f"{base}/extract", "POST", wanted)
        assert (status, again["entries"]) == (200, done["entries"])
        set_idle(path)
        status, gone = over_socket(daemon.socket, base, "DELETE")
        assert (status, gone["moved_to_trash"]) == (200, True)
    audit = (root / ".brainsurgeon/audit.jsonl").read_text().splitlines()
    told = [(line["action"], line["actor"]) for line in map(json.loads, audit)]
    assert [one for one in told if one[1] == "api"] == [
        ("extract", "api"),
        ("undo", "api"),
        ("extract", "api"),
        ("delete", "api"),
        ("delete_extracted", "api"),
    ]
