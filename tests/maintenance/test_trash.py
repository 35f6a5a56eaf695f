"""Delete, restore from the trash, delete for good: moved, kept and refused files."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Busy, Conflict, Forbidden, Invalid, LeftAlone, NotFound
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.targets import TrashedSessions
from bsd.maintenance.trashed import Trashed, TrashPlace
from bsd.maintenance.verify import verify
from bsd.transcripts.agents.openclaw.lock import SessionLock
from tests.maintenance.trashing import (
    HEADER,
    HOUR,
    NAME,
    SESSION,
    audit,
    put,
    register,
    registry,
    trash_of,
    tree,
)
from tests.openclaw_tree import set_idle

# --- there and back ---


def test_everything_goes_and_everything_comes_back(layout: Layout) -> None:
    path = put(layout)
    text = registry(
        a={"sessionId": "other", "n": 1e5}, b={"sessionId": "s1", "x": "é"}, c={"sessionId": "z"}
    )
    listed = register(layout, "main", text)
    make_private_dir(layout.history_dir(NAME))
    (layout.history_dir(NAME) / "000001_extract.jsonl").write_bytes(b"{}\n")
    before = tree(layout)

    done = trash_of(layout).delete(NAME)
    assert not path.exists()
    assert not layout.store_dir(NAME).exists()
    assert not layout.history_dir(NAME).exists()
    assert list(json.loads(listed.read_bytes())) == ["agent:main:a", "agent:main:c"]
    (item,) = trash_of(layout).items()
    assert done.items == (item,)
    place = TrashPlace(layout.trash, item.id)
    assert place.transcript.read_bytes() == SESSION
    assert place.store.name.startswith("main_s1_extracted_")
    assert (item.entries, item.size, item.extracted_files, item.extracted_bytes) == (
        2,
        len(SESSION),
        2,
        200,
    )
    assert item.keys == ("agent:main:b",)
    assert not list(layout.moving.iterdir())

    back = trash_of(layout).restore(item.id)
    assert tree(layout) == before
    assert not list(layout.trash.iterdir())
    assert (back.keys_taken, back.not_restored) == ((), {})


def test_all_that_is_made_is_private(layout: Layout) -> None:
    put(layout)
    trash_of(layout).delete(NAME)
    for path in (layout.trash, *layout.trash.rglob("*"), *layout.own.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_audit_has_the_seeds_lines(layout: Layout) -> None:
    put(layout)
    trash_of(layout, actor="0a1b2c3d").delete(NAME)
    first, second = audit(layout)
    assert {
        "action": "delete",
        "agent": "main",
        "sessionId": "s1",
        "movedToTrash": True,
    }.items() <= (first.items())
    assert {
        "action": "delete_extracted",
        "agent": "main",
        "sessionId": "s1",
        "filesRemoved": 2,
        "bytesRemoved": 200,
    }.items() <= second.items()
    assert first["actor"] == "0a1b2c3d"


def test_missing_pieces_never_block(layout: Layout) -> None:
    put(layout, store=0)
    assert trash_of(layout).delete(NAME).items[0].extracted_files == 0
    only_store = SessionName("main", "s2")
    put(layout, only_store).unlink()
    only_listed = SessionName("main", "s3")
    listed = register(layout, "main", registry(a={"sessionId": "s3"}))
    for name in (only_store, only_listed):
        trash_of(layout).delete(name)
    assert json.loads(listed.read_bytes()) == {}
    for item in trash_of(layout).items():
        trash_of(layout).restore(item.id)
    assert listed.read_text() == registry(a={"sessionId": "s3"})
    assert (layout.store_dir(only_store) / "0000_thinking.json").exists()
    with pytest.raises(NotFound, match="no session"):
        trash_of(layout).delete(SessionName("main", "nobody"))


def test_time_in_the_trash_is_no_time_in_the_store(layout: Layout) -> None:
    put(layout)
    trash_of(layout).delete(NAME)
    later = time.time() + 100 * HOUR
    trash_of(layout, clock=lambda: later).restore("main/s1")
    age = later - (layout.store_dir(NAME) / "0000_thinking.json").stat().st_mtime
    assert HOUR - 60 < age < HOUR + 60


def test_permanent_leaves_nothing(layout: Layout) -> None:
    path = put(layout)
    listed = register(layout, "main", registry(a={"sessionId": "s1"}))
    done = trash_of(layout).delete(NAME, permanent=True)
    assert as_json(done)["moved_to_trash"] is False
    assert not layout.trash.exists(), "it is not even moved there"
    assert not list(path.parent.glob("*s1*"))
    assert not [each for each in os.listdir(path.parent) if ".bsd" in each]
    assert not list(layout.extracted.iterdir())
    assert json.loads(listed.read_bytes()) == {}
    assert [line["movedToTrash"] for line in audit(layout) if line["action"] == "delete"] == [False]
    assert [line["action"] for line in audit(layout)] == ["delete", "delete_extracted"]


def test_one_in_the_trash_is_deleted_for_good(layout: Layout) -> None:
    put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    put(layout, SessionName("main", "s2"))
    trash_of(layout).delete(SessionName("main", "s2"))
    trash_of(layout).remove(item.id)
    assert [each.name.session for each in trash_of(layout).items()] == ["s2"]
    assert len(list(layout.trash.iterdir())) == 4  # transcript, store, archive, meta
    with pytest.raises(NotFound):
        trash_of(layout).remove(item.id)


# --- names (V2, P4) ---


def test_names_with_underscores_do_not_collide(layout: Layout) -> None:
    one, other = SessionName("a_b", "c"), SessionName("a", "b_c")
    first, second = put(layout, one), put(layout, other)
    first.write_bytes(HEADER)
    set_idle(first)
    now = time.time()
    same_moment = {"clock": lambda: now}
    ids = [trash_of(layout, **same_moment).delete(name).items[0].id for name in (one, other)]
    assert len(set(ids)) == 2
    trash_of(layout).restore("a_b/c")
    assert first.read_bytes() == HEADER
    assert not second.exists()
    trash_of(layout).remove("a/b_c")
    assert first.read_bytes() == HEADER
    assert not list(layout.trash.iterdir())


def test_a_second_delete_of_the_same_session_keeps_both(layout: Layout) -> None:
    now = time.time()
    for content in (HEADER, SESSION):
        path = put(layout)
        path.write_bytes(content)
        set_idle(path)
        trash_of(layout, clock=lambda: now).delete(NAME)
    first, second = trash_of(layout).items()
    with pytest.raises(Invalid, match="2 times") as problem:
        trash_of(layout).restore("main/s1")
    assert first.id in (problem.value.hint or "")
    trash_of(layout).restore(first.id)
    assert path.read_bytes() == HEADER
    with pytest.raises(Conflict, match="there is a session main/s1 again"):
        trash_of(layout).restore(second.id)
    assert trash_of(layout).items() == [second]


def test_a_name_as_long_as_can_be(layout: Layout) -> None:
    name = SessionName("agent" * 8, "s" * 240)
    path = put(layout, name)
    trash_of(layout).restore(trash_of(layout).delete(name).items[0].id)
    assert path.read_bytes() == SESSION


@pytest.mark.parametrize(
    "bad", ["..", "../x_20260101T000000.000Z", "x", "", "a\0_20260101T000000.000Z", "é"]
)
def test_an_id_is_a_name_never_a_path(layout: Layout, bad: str) -> None:
    for act in (trash_of(layout).restore, trash_of(layout).remove):
        with pytest.raises((Invalid, NotFound)):
            act(bad)


def test_a_trash_outside_the_root_is_refused(layout: Layout, tmp_path: Path) -> None:
    path = put(layout)
    (tmp_path / "elsewhere").mkdir()
    layout.trash.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Forbidden):
        trash_of(layout).delete(NAME)
    assert path.exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_meta_file_that_names_another_session_is_not_followed(layout: Layout) -> None:
    put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    meta = TrashPlace(layout.trash, item.id).meta
    meta.write_text(meta.read_text().replace("main/s1", "main/s2"))
    with pytest.raises(Conflict, match="cannot be used"):
        trash_of(layout).restore(item.id)
    trash_of(layout).remove(item.id)
    assert not list(layout.trash.iterdir())


def _no_meta(meta: Path) -> None:
    meta.unlink()


def _half_a_meta(meta: Path) -> None:
    meta.write_bytes(meta.read_bytes()[:40])


def _empty_meta(meta: Path) -> None:
    meta.write_bytes(b"")


BREAK = [_no_meta, _half_a_meta, _empty_meta]


@pytest.mark.parametrize("damage", BREAK)
@pytest.mark.parametrize("name", [NAME, SessionName("agent" * 8, "s" * 240)], ids=["short", "long"])
def test_what_has_lost_its_meta_file_is_listed_by_its_names(
    layout: Layout, name: SessionName, damage: Callable[[Path], None]
) -> None:
    put(layout, name)
    put(layout, SessionName("main", "other"))
    (item,) = trash_of(layout).delete(name).items
    (other,) = trash_of(layout).delete(SessionName("main", "other")).items
    damage(TrashPlace(layout.trash, item.id).meta)
    found = {each.id: each for each in trash_of(layout).items()}
    assert found[other.id].problem is None, "one broken file does not stop the others"
    known = found[item.id]
    assert (known.size, known.entries, known.extracted_files) == (item.size, 2, 2)
    assert (known.trashed_at, known.extracted_bytes) == (item.trashed_at, item.extracted_bytes)
    assert known.name.agent == name.agent
    assert name.session.startswith(known.name.session.partition(".")[0])
    assert TrashPlace(layout.trash, item.id).meta.name in (known.problem or "")
    with pytest.raises(Conflict, match=item.id):
        trash_of(layout).restore(item.id)
    trash_of(layout).remove(item.id)
    assert [each.id for each in trash_of(layout).items()] == [other.id]
    assert not [path for path in layout.trash.iterdir() if path.name.startswith(item.id[:20])]


@pytest.mark.parametrize("damage", BREAK)
def test_verify_names_what_cannot_be_brought_back(
    layout: Layout, damage: Callable[[Path], None]
) -> None:
    put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    assert verify(layout).clean
    damage(TrashPlace(layout.trash, item.id).meta)
    (finding,) = [one for one in verify(layout).findings if one.kind == "broken_trash"]
    assert (finding.where, finding.is_open) == (item.id, True)
    assert "main/s1" in finding.message
    assert item.id in (finding.hint or "")
    trash_of(layout).remove(item.id)
    assert verify(layout).clean


@pytest.mark.parametrize("damage", BREAK)
def test_what_has_lost_its_meta_file_expires_all_the_same(
    layout: Layout, damage: Callable[[Path], None]
) -> None:
    put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    damage(TrashPlace(layout.trash, item.id).meta)
    trash = TrashedSessions(layout, "14d")
    (place,) = trash.places()
    assert [file.mtime for file in trash.look(place).files] == [item.trashed_at]
    assert trash.delete(place, lambda _: False).cleaned == 0
    assert trash.delete(place, lambda _: True).cleaned > 0
    assert not list(layout.trash.iterdir())


def test_what_is_on_its_way_is_not_taken_for_broken(layout: Layout) -> None:
    put(layout)
    seen: list[list[Trashed]] = []

    def look(step: str) -> None:
        if step in {"transcript", "entries", "store"}:
            seen.append(trash_of(layout).items())

    (item,) = trash_of(layout, after_step=look).delete(NAME).items
    trash_of(layout, after_step=look).restore(item.id)
    assert seen
    assert not [each for items in seen for each in items if each.problem]


# --- children ---


def test_children_of_all_generations_go_and_come_back_with_it(layout: Layout) -> None:
    for session in ("s1", "kid", "grandkid", "stranger"):
        put(layout, SessionName("main", session))
    put(layout, SessionName("other", "kid"))
    text = registry(
        a={"sessionId": "s1", "parentSessionId": "grandkid"},  # a cycle
        b={"sessionId": "kid", "parentSessionId": "s1"},
        c={"sessionId": "grandkid", "parentSessionId": "kid"},
        d={"sessionId": "self", "parentSessionId": "self"},
        e={"sessionId": "ghost", "parentSessionId": "s1"},  # without a transcript
        f={"sessionId": "stranger"},
        g={"sessionId": "../../evil", "parentSessionId": "s1"},
    )
    listed = register(layout, "main", text)
    before = tree(layout)
    done = trash_of(layout).delete(NAME)
    assert [item.name.session for item in done.items] == ["s1", "kid", "ghost", "grandkid"]
    assert as_json(done)["children_deleted"] == 3
    left = json.loads(listed.read_bytes())
    assert list(left) == ["agent:main:d", "agent:main:f", "agent:main:g"]
    assert sorted(p.stem for p in (layout.agents / "main/sessions").glob("*.jsonl")) == ["stranger"]
    assert (layout.agents / "other/sessions/kid.jsonl").exists()

    back = trash_of(layout).restore("main/s1")
    assert len(back.items) == 4
    assert tree(layout) == before


def test_a_child_alone_comes_back_alone(layout: Layout) -> None:
    put(layout)
    put(layout, SessionName("main", "kid"))
    register(layout, "main", registry(b={"sessionId": "kid", "parentSessionId": "s1"}))
    trash_of(layout).delete(NAME)
    assert len(trash_of(layout).restore("main/kid").items) == 1
    assert [item.name for item in trash_of(layout).items()] == [NAME]
    back = trash_of(layout).restore("main/s1")
    assert [item.name for item in back.items] == [NAME]


def test_a_child_whose_name_is_taken_stays_and_is_named(layout: Layout) -> None:
    put(layout)
    kid = put(layout, SessionName("main", "kid"))
    register(layout, "main", registry(b={"sessionId": "kid", "parentSessionId": "s1"}))
    trash_of(layout).delete(NAME)
    kid.write_bytes(HEADER)
    back = trash_of(layout).restore("main/s1")
    assert [item.name for item in back.items] == [NAME]
    assert list(back.not_restored.values()) == ["there is a session main/kid again"]
    assert kid.read_bytes() == HEADER


def test_a_running_child_keeps_all_of_them(layout: Layout) -> None:
    path = put(layout)
    put(layout, SessionName("main", "kid"))
    running = {"sessionId": "kid", "parentSessionId": "s1", "status": "running"}
    register(layout, "main", registry(b=running))
    before = tree(layout)
    with pytest.raises(Busy, match="main/kid is in use"):
        trash_of(layout).delete(NAME)
    assert tree(layout) == before
    assert path.exists()


# --- in use ---


def _gateway_locked(layout: Layout, path: Path) -> Any:
    return SessionLock(path, 0.0)


def _own_locked(layout: Layout, path: Path) -> Any:
    return own_lock(layout, NAME, 0.0)


def _open(layout: Layout, path: Path) -> Any:
    return path.open("ab")


@pytest.mark.parametrize("hold", [_gateway_locked, _own_locked, _open])
def test_a_session_in_use_is_refused(layout: Layout, hold: Callable[[Layout, Path], Any]) -> None:
    path = put(layout)
    with hold(layout, path), pytest.raises(Busy):
        trash_of(layout).delete(NAME)
    assert path.read_bytes() == SESSION
    assert not layout.moving.exists() or not list(layout.moving.iterdir())
    trash_of(layout).delete(NAME)


def test_a_session_just_written_to_is_waited_for(layout: Layout) -> None:
    path = put(layout)
    os.utime(path)
    with pytest.raises(Busy, match="was written to"):
        trash_of(layout).delete(NAME)
    ahead = [0.0]

    def sleep(seconds: float) -> None:
        ahead[0] += seconds

    trash_of(layout, wait=30.0, sleep=sleep, clock=lambda: time.time() + ahead[0]).delete(NAME)
    assert ahead[0] > 0


def test_a_broken_registry_counts_as_in_use(layout: Layout) -> None:
    put(layout)
    register(layout, "main", "{")
    with pytest.raises(Busy, match="not valid JSON"):
        trash_of(layout).delete(NAME)


def test_a_link_is_refused(layout: Layout, tmp_path: Path) -> None:
    path = put(layout)
    path.rename(tmp_path / "real.jsonl")
    path.symlink_to(tmp_path / "real.jsonl")
    with pytest.raises(Forbidden):
        trash_of(layout).delete(NAME)


def test_sessions_that_moved_to_sqlite_are_left_alone(layout: Layout) -> None:
    put(layout)
    database = layout.agents / "main" / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE transcript_events(session_id, seq, event_json)")
    with pytest.raises(LeftAlone):
        trash_of(layout).delete(NAME)


def test_meta_says_what_it_was(layout: Layout) -> None:
    path = put(layout)
    (item,) = trash_of(layout).delete(NAME).items
    document = json.loads(TrashPlace(layout.trash, item.id).meta.read_bytes())
    assert document["original_path"] == str(path)
    assert (document["original_agent"], document["original_session_id"]) == ("main", "s1")
    assert (document["entry_count"], document["extracted_files"]) == (2, 2)
    assert document["expires_at"] > document["trashed_at"]
    assert Trashed.of(document) == item
