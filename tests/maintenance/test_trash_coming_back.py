"""Sessions that come back from the trash, and events on their way there and back."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout
from bsd.maintenance.trashed import TrashPlace
from bsd.sessions.commit.late import list_orphans
from bsd.sessions.idle import RetryBudget
from bsd.store.entry_notes import EntryNotes, Noting, forgotten_in, note_forgotten
from bsd.transcripts.agents.openclaw.lock import SessionLock
from tests.actions.performed import Caller
from tests.maintenance.trashing import (
    HEADER,
    HOUR,
    NAME,
    SESSION,
    put,
    register,
    registry,
    trash_of,
)
from tests.openclaw_tree import set_idle


def extracted(layout: Layout) -> Path:
    """A session right after an extraction: its former file is still watched."""
    lines = [HEADER]
    for number in range(8):
        role = "user" if number in (0, 6) else "assistant"
        text = "x" * 600 if number == 1 else "short"
        block = {"type": "thinking", "thinking": text} if number == 1 else text
        content = [block] if number == 1 else text
        message = {"role": role, "content": content, "api": "openai-completions"}
        entry = {
            "type": "message",
            "id": f"e{number}",
            "message": {**message, "stopReason": "stop"},
        }
        lines.append(json.dumps(entry).encode() + b"\n")
    path = put(layout, store=0)
    path.write_bytes(b"".join(lines))
    set_idle(path)
    caller = Caller(
        layout=layout, config=ConfigService(layout.config_file), budget=RetryBudget(0.0)
    )
    assert caller.extract(NAME).values == 1
    set_idle(path)
    return path


def displaced(layout: Layout) -> Path:
    (file,) = layout.inflight.glob("*.file")
    return file


def test_late_lines_are_carried_before_it_goes(layout: Layout) -> None:
    extracted(layout)
    late = b'{"type":"message","id":"late","message":{"role":"user","content":"late"}}\n'
    with displaced(layout).open("ab") as writer:
        writer.write(late)
    later = time.time() + HOUR
    (item,) = trash_of(layout, clock=lambda: later).delete(NAME).items
    assert TrashPlace(layout.trash, item.id).transcript.read_bytes().endswith(late)
    assert list_orphans(layout) == []


def test_a_former_file_that_somebody_has_open_refuses(layout: Layout) -> None:
    path = extracted(layout)
    with displaced(layout).open("ab"), pytest.raises(Busy, match="a moment ago"):
        trash_of(layout).delete(NAME)
    assert path.exists()


def test_a_session_whose_lock_is_held_does_not_come_back(layout: Layout) -> None:
    path = put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    path.write_bytes(SESSION)
    with SessionLock(path, 0.0):
        path.unlink()
        with pytest.raises(Busy, match="in use"):
            trash_of(layout).restore(item.id)
        assert not path.exists()
        assert not layout.moving.exists() or not list(layout.moving.iterdir())
    trash_of(layout).restore(item.id)
    assert path.read_bytes() == SESSION


def test_what_comes_later_still_is_kept(layout: Layout) -> None:
    extracted(layout)
    file = displaced(layout)
    trash_of(layout).delete(NAME)
    with file.open("ab") as writer:
        writer.write(b'{"type":"message","id":"later"}\n')
    later = time.time() + HOUR
    budget = RetryBudget(0.0, clock=lambda: later)
    Caller(layout=layout, config=ConfigService(layout.config_file), budget=budget).recover_all()
    (orphan,) = list_orphans(layout)
    assert orphan.file.read_bytes() == b'{"type":"message","id":"later"}\n'


def test_a_key_that_is_taken_is_said(layout: Layout) -> None:
    put(layout)
    listed = register(layout, "main", registry(a={"sessionId": "s1"}, b={"sessionId": "x"}))
    trash_of(layout).delete(NAME)
    register(layout, "main", registry(a={"sessionId": "new"}, b={"sessionId": "x"}))
    back = trash_of(layout).restore("main/s1")
    assert back.keys_taken == ("agent:main:a",)
    assert listed.read_text() == registry(a={"sessionId": "new"}, b={"sessionId": "x"})


def test_an_agent_that_is_gone_is_made_again(layout: Layout) -> None:
    path = put(layout)
    register(layout, "main", registry(a={"sessionId": "s1"}))
    trash_of(layout).delete(NAME)
    (layout.agents / "main/sessions/sessions.json").unlink()
    path.parent.rmdir()
    path.parent.parent.rmdir()
    trash_of(layout).restore("main/s1")
    assert path.read_bytes() == SESSION
    listed = json.loads((path.parent / "sessions.json").read_bytes())
    assert listed == {"agent:main:a": {"sessionId": "s1"}}


def test_a_store_that_is_there_again_is_in_the_way(layout: Layout) -> None:
    path = put(layout)
    trash_of(layout).delete(NAME)
    store = layout.store_dir(NAME)
    make_private_dir(store)
    (store / "0007_thinking.json").write_bytes(b"new")
    with pytest.raises(Conflict, match=r"_extracted_.* would have to replace") as problem:
        trash_of(layout).restore("main/s1")
    (item,) = trash_of(layout).items()
    moved, restored = re.findall("`(.*?)`", str(problem.value.hint))
    assert (moved, restored) == (f"mv {store} {store}.aside", f"bsd trash restore {item.id}")
    assert not path.exists()
    assert (store / "0007_thinking.json").read_bytes() == b"new"
    store.rename(f"{store}.aside")
    make_private_dir(store)
    (store / "index.json").write_bytes(b"new")  # which can be made again
    trash_of(layout).restore(item.id)
    assert Path(f"{store}.aside", "0007_thinking.json").read_bytes() == b"new"
    assert sorted(each.name for each in store.iterdir()) == [
        "0000_thinking.json",
        "0001_thinking.json",
    ]


def test_what_was_noted_meanwhile_is_joined(layout: Layout) -> None:
    put(layout)
    history = layout.history_dir(NAME)
    forgotten = ["sha256:" + letter * 64 for letter in "ab"]
    note_forgotten(history, NAME, forgotten[:1])
    (history / "000001_extract.jsonl").write_bytes(b"{}\n")
    trash_of(layout).delete(NAME)
    note_forgotten(history, NAME, forgotten[1:])
    trash_of(layout).restore("main/s1")
    assert forgotten_in(history) == set(forgotten)
    assert (history / "000001_extract.jsonl").exists()


def test_of_what_was_noted_twice_the_later_note_counts(layout: Layout) -> None:
    put(layout)
    history = layout.history_dir(NAME)
    history.mkdir(parents=True)
    EntryNotes(history, NAME).note(1, Noting(undone=("e1",)))
    EntryNotes(history, NAME).note(2, Noting(freed=("e1",)))
    trash_of(layout).delete(NAME)
    history.mkdir()
    EntryNotes(history, NAME).note(3, Noting(undone=("e1",)))
    trash_of(layout).restore("main/s1")
    assert EntryNotes(history, NAME).undone() == {"e1"}


def test_a_session_that_appears_while_it_comes_back_is_not_replaced(layout: Layout) -> None:
    path = put(layout)
    trash_of(layout).delete(NAME)

    def appear(step: str) -> None:
        if step == "store":
            path.write_bytes(HEADER)

    with pytest.raises(Conflict, match="again"):
        trash_of(layout, after_step=appear).restore("main/s1")
    assert path.read_bytes() == HEADER
    path.unlink()
    trash_of(layout).restore("main/s1")
    assert path.read_bytes() == SESSION
    assert (layout.store_dir(NAME) / "0000_thinking.json").exists()


def test_what_cannot_come_back_keeps_its_store_in_the_trash(layout: Layout) -> None:
    """A session that came back may be deleted for good, and its store with it."""
    path = put(layout)
    trash_of(layout).delete(NAME)

    def appear(step: str) -> None:
        if step == "store":
            path.write_bytes(HEADER)
            set_idle(path)

    with pytest.raises(Conflict, match="again"):
        trash_of(layout, after_step=appear).restore("main/s1")
    trash_of(layout).delete(NAME, permanent=True)
    assert not layout.store_dir(NAME).exists()
    trash_of(layout).restore("main/s1")
    assert path.read_bytes() == SESSION
    assert sorted(file.name for file in layout.store_dir(NAME).iterdir()) == [
        "0000_thinking.json",
        "0001_thinking.json",
    ]


def test_a_file_written_anew_while_it_goes_stays(layout: Layout) -> None:
    path = put(layout)

    def rewrite(step: str) -> None:
        if step == "journal":
            path.with_suffix(".new").write_bytes(HEADER)
            path.with_suffix(".new").rename(path)

    with pytest.raises(Busy, match="was replaced"):
        trash_of(layout, after_step=rewrite).delete(NAME)
    assert path.read_bytes() == HEADER
    assert trash_of(layout).items() == []
    assert not list(layout.moving.iterdir())
    assert layout.store_dir(NAME).is_dir()


def test_what_was_used_since_a_delete_was_cut_off_stays(layout: Layout) -> None:
    path = put(layout)

    def cut_off(step: str) -> None:
        if step == "journal":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trash_of(layout, after_step=cut_off).delete(NAME)
    assert list(layout.moving.iterdir())
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"e2"}\n')
    set_idle(path)
    trash_of(layout).recover()
    assert path.read_bytes().endswith(b'"e2"}\n')
    assert trash_of(layout).items() == []
    assert not list(layout.moving.iterdir())


def test_lines_written_into_it_as_it_goes_are_in_the_trash(layout: Layout) -> None:
    path = put(layout)
    late = b'{"id":"late"}\n'

    def append(step: str) -> None:
        if step == "journal":
            with path.open("ab") as writer:
                writer.write(late)

    (item,) = trash_of(layout, after_step=append).delete(NAME).items
    assert TrashPlace(layout.trash, item.id).transcript.read_bytes() == SESSION + late
    trash_of(layout).restore(item.id)
    assert path.read_bytes() == SESSION + late


def test_the_registry_is_changed_under_the_gateways_lock(layout: Layout) -> None:
    put(layout)
    listed = register(layout, "main", registry(a={"sessionId": "s1"}))
    seen = []

    def look(step: str) -> None:
        if step == "excerpt":
            lock = json.loads(listed.with_name("sessions.json.lock").read_bytes())
            seen.append(lock["pid"])

    trash_of(layout, after_step=look).delete(NAME)
    assert seen == [os.getpid()]
    assert not listed.with_name("sessions.json.lock").exists()


def test_what_a_session_made_meanwhile_has_stays_its_own(layout: Layout) -> None:
    """A restore is interrupted, and a session of that name begins before the next call of bsd."""
    path = put(layout)
    (layout.history_dir(NAME)).mkdir(parents=True)
    (layout.history_dir(NAME) / "000001_extract.jsonl").write_bytes(b"{}\n")
    (item,) = trash_of(layout).delete(NAME).items

    def cut_off(step: str) -> None:
        if step == "store":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trash_of(layout, after_step=cut_off).restore("main/s1")
    path.write_bytes(HEADER)
    operation = layout.history_dir(NAME) / "000002_replace.jsonl"
    stored = layout.store_dir(NAME) / "0009_thinking.json"
    for file in (operation, stored):
        file.write_bytes(b"its own")
        set_idle(file, -1)
    trash_of(layout).recover()
    assert operation.read_bytes() == stored.read_bytes() == b"its own"
    assert [each.id for each in trash_of(layout).items()] == [item.id]
    assert not list(layout.moving.iterdir())
