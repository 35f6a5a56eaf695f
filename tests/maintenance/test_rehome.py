"""Lines that a branch needs are copied from its origin before the origin is deleted for good."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import show_extracted
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.http.entries import StoredDocument
from bsd.maintenance.references import References
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.originals import SessionStore
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.refusing import raising
from tests.session_files import HEADER, LONG, NAME, conversation, write
from tests.sessions.test_branched import BRANCH, TWIG, branch_off, texts

DAY = 86_400.0


@pytest.fixture
def original(layout: Layout, caller: Caller) -> dict[str, Any]:
    """The texts of a session, some of which are extracted by now."""
    found = texts(write(layout, conversation(2)))
    caller.extract(NAME)
    return found


def later() -> float:
    """A while after the sessions were written."""
    return time.time() + 5


def trash_of(layout: Layout, **more: Any) -> Trash:
    how = {name: more.pop(name) for name in ("actor", "after_step") if name in more}
    return Trash(layout, "14d", budget=RetryBudget(**{"wait": 0.0, "clock": later, **more}), **how)


def extracted(layout: Layout) -> str:
    """The page's view of an entry of the branch."""
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file))
    content = StoredDocument.open(show_extracted(context, BRANCH, "e1"))
    (text,) = json.loads(b"".join(content.pieces()))["content"].values()
    return str(text)


def test_a_branch_of_a_session_that_the_gateway_put_aside_gets_it_too(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    middle = branch_off(layout, NAME, BRANCH)
    twig = branch_off(layout, BRANCH, TWIG)
    aside = middle.rename(f"{middle}.deleted.2026-11-22T08-09-38.219Z")
    trash_of(layout).delete(NAME, permanent=True)
    assert performed.restore_all(caller, TWIG).unavailable == {}
    assert texts(twig) == original

    set_idle(aside.rename(middle))  # it may come back as well
    assert performed.restore_all(caller, BRANCH).unavailable == {}
    assert texts(middle) == original


def test_a_branch_gets_what_its_parent_takes_along(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    path = branch_off(layout, NAME, BRANCH)
    twig = branch_off(layout, BRANCH, TWIG)
    stored = {file.name: file.stat().st_mtime_ns for file in layout.store_dir(NAME).glob("0*")}
    done = trash_of(layout).delete(NAME, permanent=True)
    assert [item.name for item in done.items] == [NAME]
    assert not layout.store_dir(NAME).exists()

    (heir,) = (name for name in (BRANCH, TWIG) if layout.store_dir(name).exists())
    own = {file.name: file.stat().st_mtime_ns for file in layout.store_dir(heir).glob("0*")}
    assert own == stored, "and it is as old as it was"
    assert verify(layout).clean
    assert LONG in extracted(layout)
    trash_of(layout).delete(BRANCH, permanent=True)
    assert performed.restore_all(caller, TWIG).unavailable == {}
    assert texts(twig) == original
    assert not path.exists()


def test_a_link_of_the_chain_that_has_no_store_of_its_own(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    branch_off(layout, NAME, BRANCH)
    twig = branch_off(layout, BRANCH, TWIG)
    trash_of(layout).delete(BRANCH, permanent=True)
    assert not layout.store_dir(BRANCH).exists()
    trash_of(layout).delete(NAME, permanent=True)
    assert performed.restore_all(caller, TWIG).unavailable == {}
    assert texts(twig) == original


def test_in_the_trash_nothing_is_missing_either(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    branch = branch_off(layout, NAME, BRANCH)
    branch_off(layout, BRANCH, TWIG)
    trash = trash_of(layout)
    for name in (BRANCH, TWIG, NAME):
        trash.delete(name)
    trash.remove(str(NAME))
    trash.restore(str(BRANCH))
    set_idle(branch)
    assert performed.restore_all(caller, BRANCH).unavailable == {}
    assert texts(branch) == original
    trash.remove(str(TWIG))
    assert not list(layout.trash.iterdir())


def test_the_daemon_hands_down_when_the_time_of_the_trash_is_up(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    path = branch_off(layout, NAME, BRANCH)
    trash_of(layout).delete(NAME)
    assert not layout.store_dir(BRANCH).exists(), "as long as it lies in the trash, it is there"
    assert verify(layout).clean
    later = time.time() + 15 * DAY
    with own_lock(layout, BRANCH):
        done = RetentionRun(layout, actor="daemon", clock=lambda: later, wait=0.0).clean_trash(
            "14d"
        )
    assert (done.cleaned, done.errors) == (0, 1), "not while somebody is at the branch"
    done = RetentionRun(layout, actor="daemon", clock=lambda: later, wait=0.0).clean_trash("14d")
    assert done.errors == 0
    assert not list(layout.trash.iterdir())
    set_idle(path)
    assert performed.restore_all(caller, BRANCH).unavailable == {}
    assert texts(path) == original


def test_a_name_that_is_taken_in_the_branch(layout: Layout, caller: Caller) -> None:
    original = texts(write(layout, conversation(2)))
    caller.extract(NAME)
    path = branch_off(layout, NAME, BRANCH)
    own = layout.store_dir(BRANCH)
    own.mkdir(parents=True, mode=0o700)
    for stored in layout.store_dir(NAME).glob("0*"):
        (own / stored.name).write_bytes(b'{"id":"e9"}\n')
        (own / stored.name.replace(".", "-2.")).write_bytes(b'{"id":"e8"}\n')
    trash_of(layout).delete(NAME, permanent=True)
    assert len(list(own.glob("*-3.json"))) == 2
    assert LONG in extracted(layout)
    set_idle(path)
    assert performed.restore_all(caller, BRANCH).unavailable == {}
    assert texts(path) == original


def test_retention_takes_it_from_the_branch_in_its_time(
    layout: Layout, original: dict[str, Any]
) -> None:
    branch_off(layout, NAME, BRANCH)
    for file in layout.store_dir(NAME).glob("0*"):
        set_idle(file, 23 * 3600)
    trash_of(layout).delete(NAME, permanent=True)
    soon = time.time() + 2 * 3600
    assert RetentionRun(layout, actor="daemon", clock=lambda: soon).clean_store("24h").cleaned == 2
    assert not layout.store_dir(BRANCH).exists()


def test_only_what_it_names_is_handed_down(layout: Layout, caller: Caller) -> None:
    before = write(layout, conversation(2))
    original, whole = texts(before), before.read_bytes().splitlines(keepends=True)
    caller.extract(NAME)
    path = branch_off(layout, NAME, BRANCH)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(whole) if json.loads(line)["id"] == "e1")
    path.write_bytes(b"".join([*lines[:at], whole[at], *lines[at + 1 :]]))
    set_idle(path)
    trash_of(layout).delete(NAME, permanent=True)
    assert len(SessionStore(layout, BRANCH).refs()) == 1
    set_idle(path)
    performed.restore_all(caller, BRANCH)
    assert texts(path) == original


def test_what_was_done_to_an_entry_that_was_away_can_still_be_taken_back(
    layout: Layout, caller: Caller, original: dict[str, Any]
) -> None:
    path = branch_off(layout, NAME, BRANCH)
    listed = performed.context(caller, BRANCH)["entries"]
    (hash_,) = [one["hash"] for one in listed if one["id"] == "e1"]
    performed.change_context(caller, BRANCH, "distill", [[hash_, "long ago"]])
    set_idle(path)
    assert texts(path)["e1"] == "long ago"
    trash_of(layout).delete(NAME, permanent=True)
    performed.undo(caller, BRANCH)
    set_idle(path)
    assert performed.restore_all(caller, BRANCH).unavailable == {}
    assert texts(path) == original
    assert verify(layout).clean


def test_nothing_goes_if_it_cannot_be_handed_down(
    layout: Layout, original: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    branch_off(layout, NAME, BRANCH)
    kept = sorted(layout.store_dir(NAME).iterdir())
    with own_lock(layout, BRANCH), pytest.raises(Busy, match="main/branch"):
        trash_of(layout).delete(NAME, permanent=True)

    with monkeypatch.context() as disk:
        disk.setattr("bsd.store.originals.write_all", raising(OSError(28, os.strerror(28))))
        with pytest.raises(Unavailable):
            trash_of(layout).delete(NAME, permanent=True)
    assert layout.session_file(NAME).exists()
    assert sorted(layout.store_dir(NAME).iterdir()) == kept
    assert not layout.store_dir(BRANCH).exists()
    assert not list(layout.moving.glob("*"))


def test_a_session_that_took_nothing_out_asks_nobody(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, conversation(1))
    write(layout, conversation(1), TWIG)

    monkeypatch.setattr(References, "of", raising(AssertionError("a transcript is read")))
    trash = trash_of(layout)
    trash.delete(NAME)
    trash.remove(str(NAME))


def test_what_nobody_names_goes(layout: Layout, caller: Caller) -> None:
    write(layout, conversation(2))
    caller.extract(NAME)
    write(layout, conversation(1), TWIG)
    trash_of(layout).delete(NAME, permanent=True)
    left = [path for path in layout.root.rglob("*") if path.is_file() and "_tool_" in path.name]
    assert left == []


def test_any_copy_gets_it_once(
    layout: Layout, caller: Caller, original: dict[str, Any], tmp_path: Path
) -> None:
    """Under any name, agent and header: only the references in its lines count."""
    lines = layout.session_file(NAME).read_bytes().splitlines(keepends=True)
    copies = [SessionName("main", "copy"), SessionName("other", "copy")]
    for name in copies:
        directory = layout.agents / name.agent / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        header = {**HEADER, "id": f"{name.agent}-{name.session}"}
        (directory / "copy.jsonl").write_bytes(
            json.dumps(header).encode() + b"\n" + b"".join(lines[1:])
        )
        set_idle(directory / "copy.jsonl")
    trash_of(layout).delete(NAME, permanent=True)
    assert verify(layout).clean
    stores = [layout.store_dir(name) for name in copies if layout.store_dir(name).exists()]
    assert [len(list(store.glob("0*"))) for store in stores] == [2]
    first = next(name for name in copies if layout.store_dir(name).exists())
    (second,) = set(copies) - {first}
    trash_of(layout).delete(first, permanent=True)
    assert performed.restore_all(caller, second).unavailable == {}
    assert texts(layout.session_file(second)) == original
