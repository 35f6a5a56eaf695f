"""Undo and edit on real files: what is kept, what a crash leaves, who else is at the session."""

from __future__ import annotations

import json
import stat
from typing import Any

import pytest

from bsd.core.audit import AuditLog
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict, NotFound
from bsd.core.layout import Layout
from bsd.maintenance.verify import verify
from bsd.planning.edit import becoming, read_assignment, setting
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.store.history import History
from bsd.store.state import StateDb
from tests.actions import performed
from tests.actions.performed import Caller, history_of
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, make_caller, write


def history_files(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.history_dir(NAME).iterdir())


def states(caller: Caller) -> list[tuple[int, str, str]]:
    return [(one.operation, one.action, one.state) for one in history_of(caller.layout, NAME)]


def test_all_that_was_done_is_kept_and_all_of_it_can_be_undone(
    layout: Layout, caller: Caller
) -> None:
    path = write(layout, conversation())
    original = path.read_bytes()
    caller.extract(NAME)
    performed.restore(caller, NAME, "e2")
    performed.set_extractable(caller, NAME, "e0", False)
    performed.edit(caller, NAME, "e0", setting([read_assignment('message.content[0].text="see"')]))
    performed.restore_all(caller, NAME)
    assert states(caller) == [
        (5, "restore", "done"),
        (4, "edit", "done"),
        (3, "set_extractable", "done"),
        (2, "restore", "done"),
        (1, "extract", "done"),
    ]
    newest = history_of(caller.layout, NAME)[0]
    assert newest.entry_ids == ("e1", "e3")
    assert newest.bytes_after == path.stat().st_size
    with path.open("a") as stream:
        stream.write('{"type":"label","id":"x"}\n')
    set_idle(path)
    answers = [performed.undo(caller, NAME) for _ in range(5)]
    assert [answer["undone"] for answer in answers] == [5, 4, 3, 2, 1]
    assert answers[0]["operations"] == [6]
    assert path.read_bytes() == original + b'{"type":"label","id":"x"}\n'
    assert verify(layout).clean
    with pytest.raises(Conflict, match="no operation left to undo"):
        performed.undo(caller, NAME)
    assert performed.undo(caller, NAME, 10)["action"] == "undo"
    assert b"[[extracted-e1]]" in path.read_bytes()
    assert verify(layout).clean


def test_history_is_private_and_holds_no_content_that_the_store_has(
    layout: Layout, caller: Caller
) -> None:
    write(layout, conversation())
    caller.extract(NAME)
    performed.restore(caller, NAME, "e1")
    performed.undo(caller, NAME)
    for path in [layout.history, *layout.history.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
        if path.is_file():
            assert b"xxxx" not in path.read_bytes()
    assert history_files(layout) == [
        *("000001_extract.jsonl", "000002_restore.jsonl", "000003_undo.jsonl", "restored.json"),
    ]


def test_a_dry_run_and_what_changed_nothing_leave_no_history(
    layout: Layout, caller: Caller
) -> None:
    write(layout, conversation())
    performed.extraction(caller, NAME)
    performed.set_extractable(caller, NAME, "e0", None)
    answer = performed.edit(caller, NAME, "e0", setting([read_assignment('message.role="user"')]))
    assert answer == {
        "edited": False,
        "entry_id": "e0",
        "index": 1,
        "changed": [],
        "operation": None,
    }
    assert history_of(caller.layout, NAME) == []
    assert not layout.history.exists()


def test_what_was_given_up_leaves_no_history(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    caller = make_caller(layout, clock, wait=0.0)
    with path.open("rb"), pytest.raises(Busy):
        performed.set_extractable(caller, NAME, "e0", False)
    with path.open("rb"):
        assert caller.extract(NAME).status is Status.BUSY
    assert history_of(caller.layout, NAME) == []
    assert not list(layout.history.rglob("*.*"))


def test_the_history_is_durable_before_the_session_changes(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the exchange: what was done is in the history all the same."""
    path = write(layout, conversation())
    caller = make_caller(layout, clock)
    original = path.read_bytes()
    seen: list[tuple[list[str], bytes]] = []

    def killed(_: History) -> None:
        seen.append((history_files(layout), path.read_bytes()))

    monkeypatch.setattr(History, "done", killed)
    performed.set_extractable(caller, NAME, "e0", False)
    monkeypatch.undo()
    assert seen == [(["000001_set_extractable.pending"], path.read_bytes())]
    assert path.read_bytes() != original

    assert states(caller) == [(1, "set_extractable", "done")]
    clock.ahead += 100
    caller.recover()
    assert performed.undo(caller, NAME)["undone"] == 1
    assert path.read_bytes() == original
    assert history_files(layout) == ["000001_set_extractable.jsonl", "000002_undo.jsonl"]


def test_what_never_took_effect_is_not_history(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the exchange: the session tells that nothing happened."""
    path = write(layout, conversation())
    original = path.read_bytes()
    caller = make_caller(layout, clock, wait=0.0)
    monkeypatch.setattr(History, "discard", lambda _: None)
    with path.open("rb"), pytest.raises(Busy):
        performed.set_extractable(caller, NAME, "e0", False)
    monkeypatch.undo()
    assert history_files(layout) == ["000001_set_extractable.pending"]
    assert history_of(caller.layout, NAME) == []
    with pytest.raises(Conflict, match="no operation left to undo"):
        performed.undo(caller, NAME)
    assert not layout.history_dir(NAME).exists()

    (layout.history_dir(NAME)).mkdir(mode=0o700)
    torn = layout.history_dir(NAME) / "000007_edit.pending"
    torn.write_bytes(b'{"operation":7,"entries":1,"action":"edit"')
    performed.set_extractable(caller, NAME, "e0", True)
    assert states(caller) == [(8, "set_extractable", "done")]
    set_idle(path)
    performed.undo(caller, NAME)
    assert path.read_bytes() == original


def test_an_undo_reads_the_session_anew_not_from_its_checkpoint(
    layout: Layout, clock: Clock
) -> None:
    write(layout, conversation())
    state = StateDb(layout.state_db)
    config = ConfigService(layout.config_file)
    budget = RetryBudget(clock=clock.now, sleep=clock.sleep)
    daemon = Caller(layout=layout, config=config, actor="daemon", budget=budget, state=state)
    assert daemon.extract(NAME).entries == 3
    assert daemon.extract(NAME).entries == 0
    performed.undo(make_caller(layout, clock), NAME)
    assert daemon.extract(NAME).reasons["undone"] == 3
    assert daemon.extract(NAME, by_hand=True).entries == 3
    operations = history_of(daemon.layout, NAME)
    assert [(one.action, one.actor) for one in operations] == [
        *(("extract", "daemon"), ("undo", "cli"), ("extract", "daemon")),
    ]


def test_content_that_retention_deleted(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    caller.extract(NAME)
    performed.restore(caller, NAME, "e1")
    before = path.read_bytes()
    for stored in layout.store_dir(NAME).glob("0*.json"):
        stored.unlink()
    with pytest.raises(Conflict, match="0003_tool_result of e2 is gone; nothing was changed"):
        performed.undo(caller, NAME, 1)  # e1, which was restored, would stay
    assert path.read_bytes() == before
    assert states(caller) == [(2, "restore", "done"), (1, "extract", "done")]

    performed.undo(caller, NAME)  # what is inline can be stored anew
    set_idle(path)
    assert performed.restore(caller, NAME, "e1")["restored"] is True
    set_idle(path)
    performed.undo(caller, NAME)
    set_idle(path)
    before = path.read_bytes()
    with pytest.raises(Conflict, match="0003_tool_result of e2 is gone; nothing was changed"):
        performed.undo(caller, NAME)
    assert path.read_bytes() == before


def test_a_damaged_history_is_said(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    performed.set_extractable(caller, NAME, "e0", False)
    performed.edit(caller, NAME, "e5", setting([read_assignment('message.content[0].text="y"')]))
    before = path.read_bytes()
    kept = layout.history_dir(NAME) / "000002_edit.jsonl"
    content = kept.read_bytes()
    assert b"seen" in content
    kept.write_bytes(content.replace(b"seen", b"SEEN"))
    with pytest.raises(Conflict, match="the history of e5 is damaged; nothing was changed"):
        performed.undo(caller, NAME)
    kept.write_bytes(content[:-5])
    assert states(caller)[0] == (2, "edit", "damaged")
    assert path.read_bytes() == before


def test_an_undo_is_audited(layout: Layout, caller: Caller) -> None:
    write(layout, conversation())
    performed.set_extractable(caller, NAME, "e0", False)
    performed.undo(caller, NAME)
    *_, line = AuditLog(layout.audit_file).search(b"")
    assert (line["action"], line["undone"], line["operation"]) == ("undo", "set_extractable", 1)


def test_names_that_mean_nothing(layout: Layout, caller: Caller) -> None:
    with pytest.raises(NotFound):
        performed.undo(caller, NAME)
    write(layout, conversation())
    with pytest.raises(NotFound):
        performed.undo(caller, NAME, 3)
    with pytest.raises(NotFound):
        performed.edit(caller, NAME, "nobody", becoming("{}"))


def test_an_edit_on_a_line_that_changed_is_refused(layout: Layout, caller: Caller) -> None:
    path = write(layout, conversation())
    shown = performed.show_entry(caller, NAME, "e0")
    performed.set_extractable(caller, NAME, "e0", False)
    before = path.read_bytes()
    with pytest.raises(Conflict, match="changed meanwhile"):
        performed.edit(caller, NAME, "e0", becoming(shown.text), shown.seen)
    assert path.read_bytes() == before


def test_operations_of_every_size_are_kept_line_by_line(layout: Layout, caller: Caller) -> None:
    """A line that is long, and differs in a few bytes only, is not kept whole."""
    entries: list[dict[str, Any]] = conversation(1)
    entries[1]["message"]["content"][0]["text"] = "q" * 1_000_000
    path = write(layout, entries)
    original = path.read_bytes()
    performed.set_extractable(caller, NAME, "e0", False)
    kept = layout.history_dir(NAME) / "000001_set_extractable.jsonl"
    assert kept.stat().st_size < 2000
    head = json.loads(kept.read_bytes().split(b"\n")[0])
    assert (head["action"], head["entries"], head["session"]) == ("set_extractable", 1, "main/s1")
    performed.undo(caller, NAME)
    assert path.read_bytes() == original
