"""`bsd delete` and `bsd trash`: their questions, output, and exit codes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, Program, rest, snapshot
from tests.openclaw_tree import set_idle, set_status
from tests.waiting import DEADLINE_SECONDS

_ITEM = {
    *("id", "session", "original_agent", "original_session_id", "original_path", "trashed_at"),
    *("expires_at", "parent", "entry_count", "size", "extracted_files", "extracted_bytes", "keys"),
    "problem",
}


def make_child(root: Path, parent: str = "alpha", child: str = "beta") -> None:
    path = root / "agents/main/sessions/sessions.json"
    known = json.loads(path.read_bytes())
    known[f"agent:main:{child}"]["parentSessionId"] = parent
    path.write_text(json.dumps(known, indent=2))
    set_idle(path)


def test_there_and_back(bsd: Call, root: Path) -> None:
    make_child(root)
    assert bsd("extract", "main/alpha").code == 0
    rest(root)
    path = root / "agents/main/sessions/alpha.jsonl"
    content = path.read_bytes()
    registry = (path.parent / "sessions.json").read_bytes()
    document = bsd("--json", "delete", "main/alpha", "--yes").document
    assert (document["deleted"], document["moved_to_trash"]) == (True, True)
    assert [one["session"] for one in document["sessions"]] == ["main/alpha", "main/beta"]
    assert document["children_deleted"] == 1
    assert document["extracted_files"] > 0
    assert not path.exists()

    listed = bsd("--json", "trash", "list").document
    assert listed["keep"] == "14d"
    assert [one["session"] for one in listed["sessions"]] == ["main/alpha", "main/beta"]
    assert all(one.keys() == _ITEM for one in listed["sessions"])
    assert listed["sessions"][1]["parent"] == document["trash_id"]
    out = bsd("trash").out
    assert document["trash_id"] in out

    back = bsd("--json", "trash", "restore", document["trash_id"]).document
    assert back["sessions"] == ["main/alpha", "main/beta"]
    assert back["keys_taken"] == []
    assert path.read_bytes() == content
    assert (path.parent / "sessions.json").read_bytes() == registry
    assert bsd("verify").code == 0
    assert bsd("trash").out == "the trash is empty\n"


def test_it_asks_and_names_the_children(bsd: Call, root: Path) -> None:
    make_child(root)
    before = snapshot(root / "agents")
    ended = bsd("delete", "main/alpha")  # no user is there to answer
    assert ended.code == 2
    assert "main/alpha" in ended.out
    assert "main/beta" in ended.out
    assert "Try: `bsd delete main/alpha --yes`" in ended.err
    assert snapshot(root / "agents") == before


@pytest.mark.parametrize(("answer", "goes"), [(True, True), (False, False)])
def test_the_answer_counts(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, goes: bool
) -> None:
    asked = []

    def confirm(question: str, refusal: str) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr("bsd.cli.call.confirm", confirm)
    ended = bsd("delete", "main/alpha", "--permanent")
    assert (root / "agents/main/sessions/alpha.jsonl").exists() is not goes
    assert ended.code == (0 if goes else 1)
    assert asked == [f"Delete for good, not into the trash: main/alpha under {root}?"]


def test_permanent_leaves_nothing_in_the_trash(bsd: Call, root: Path) -> None:
    document = bsd("--json", "delete", "main/alpha", "--permanent", "--yes").document
    assert (document["moved_to_trash"], document["trash_id"]) == (False, None)
    assert bsd("--json", "trash", "list").document["sessions"] == []
    assert not (root / "agents/main/sessions/alpha.jsonl").exists()


@pytest.mark.soak
@pytest.mark.slow  # a command waits for 30 s
def test_a_running_session_is_busy(bsd: Call, root: Path) -> None:
    set_status(root, "main/alpha", "running")
    ended = bsd("--json", "delete", "main/alpha", "--yes")
    assert ended.code == 4
    assert "is running" in ended.document["error"]
    assert (root / "agents/main/sessions/alpha.jsonl").exists()


def test_wrong_names_and_ids(bsd: Call) -> None:
    assert bsd("delete", "main/nobody", "--yes").code == 1
    assert bsd("delete", "../x", "--yes").code == 2
    for verb in ("restore", "delete"):
        yes = ("--yes",) if verb == "delete" else ()
        assert bsd("trash", verb, "nonsense", *yes).code == 2
        assert bsd("trash", verb, "main/alpha", *yes).code == 1
        assert bsd("trash", verb, "a_20260101T000000.000Z", *yes).code == 1


def test_restore_is_refused_while_the_name_is_taken(bsd: Call, root: Path) -> None:
    bsd("delete", "main/alpha", "--yes")
    (root / "agents/main/sessions/alpha.jsonl").write_bytes(b"{}\n")
    ended = bsd("trash", "restore", "main/alpha")
    assert ended.code == 1
    assert "there is a session main/alpha again" in ended.err


def test_deleting_from_the_trash_and_emptying_it(bsd: Call, root: Path) -> None:
    for name in ("main/alpha", "main/beta", "other_agent/gamma"):
        assert bsd("delete", name, "--yes").code == 0
    assert bsd("trash", "delete", "main/alpha").code == 2  # no user is there to answer
    document = bsd("--json", "trash", "delete", "main/alpha", "--yes").document
    assert (document["deleted"], document["session"]) == (True, "main/alpha")
    assert bsd("trash", "empty").code == 2
    document = bsd("--json", "trash", "empty", "--yes").document
    assert len(document["ids"]) == document["cleaned"] == 2
    assert document["failed"] == {}
    assert not list((root / "trash").iterdir())
    assert "deleted 0 sessions" in bsd("trash", "empty", "--yes").out


def test_listing_creates_nothing(bsd: Call, root: Path) -> None:
    before = snapshot(root)
    assert bsd("trash", "list").code == 0
    assert snapshot(root) == before


def test_what_was_cut_off_is_finished_by_the_next_call(program: Program, root: Path) -> None:
    crash = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from bsd.core.layout import Layout, SessionName\n"
        "from bsd.maintenance.trash import Trash\n"
        "def step(name):\n"
        "    if name == 'transcript': os.kill(os.getpid(), signal.SIGKILL)\n"
        "trash = Trash(Layout(Path(sys.argv[1])), '14d', after_step=step)\n"
        "trash.delete(SessionName('main', 'alpha'))\n"
    )
    import subprocess
    import sys

    died = subprocess.run(
        [sys.executable, "-c", crash, str(root)], check=False, timeout=DEADLINE_SECONDS
    )
    assert died.returncode < 0
    [journal] = (root / ".brainsurgeon" / "moving").glob("*.json")
    assert program("--json", "verify").document["clean"], "it may just be under way"
    long_ago = json.loads(journal.read_bytes()) | {"at": 0.0}
    journal.write_text(json.dumps(long_ago))
    [finding] = program("--json", "verify").document["findings"]
    assert (finding["kind"], "a delete of main/alpha" in finding["message"]) == ("half_moved", True)
    assert program("--json", "trash", "list").document["sessions"] == []
    ended = program("--json", "trash", "restore", "main/alpha")
    assert ended.code == 0, ended.err
    assert (root / "agents/main/sessions/alpha.jsonl").exists()


def test_old_ones_go_with_retention(bsd: Call, root: Path) -> None:
    from bsd.core.clock import RunTime, steady
    from bsd.core.layout import Layout
    from bsd.maintenance.expiry import forecast
    from bsd.maintenance.retention import RetentionRun
    from bsd.maintenance.targets import TrashedSessions

    bsd("delete", "main/alpha", "--yes")
    layout = Layout(root)
    now = time.time()
    assert RetentionRun(layout, actor="daemon").clean_trash("14d").cleaned == 0
    found = forecast(TrashedSessions(layout, "14d"), RunTime(now))
    assert (len(found.going), found.staying) == (0, 1)
    assert found.next_expiry == pytest.approx(now + 14 * 86400, abs=60)
    later, run_on = now + 15 * 86400, steady() + 15 * 86400
    clocks: dict[str, Any] = {"clock": lambda: later, "steady": lambda: run_on}
    assert len(forecast(TrashedSessions(layout, "14d"), RunTime(later)).going) == 1
    assert RetentionRun(layout, actor="daemon", **clocks).clean_trash("never").cleaned == 0
    done = RetentionRun(layout, actor="daemon", **clocks).clean_trash("14d")
    assert (done.cleaned, done.errors) == (2, 0)  # transcript and meta file
    assert not os.listdir(layout.trash)


def test_the_retention_command_and_the_trash(bsd: Call, root: Path) -> None:
    trash_id = bsd("--json", "delete", "main/alpha", "--yes").document["trash_id"]
    before = snapshot(root)
    document = bsd("--json", "retention", "--dry-run").document["trash"]
    assert (document["keep"], document["cleaned"], document["staying"]) == ("14d", 0, 1)
    assert "0 sessions (0 B) in the trash would be deleted now" in bsd("retention", "--dry-run").out
    assert snapshot(root) == before
    old = trash_id.rpartition("_")[0] + "_20200101T000000.000Z"
    for path in (root / "trash").iterdir():
        path.write_bytes(path.read_bytes().replace(trash_id.encode(), old.encode()))
        path.rename(path.with_name(path.name.replace(trash_id, old)))
    assert bsd("--json", "retention", "--dry-run").document["trash"]["cleaned"] == 1
    assert bsd("--json", "retention").document["trash"]["cleaned"] == 2
    assert not list((root / "trash").iterdir())
