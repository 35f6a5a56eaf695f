"""Earlier versions' trash comes back, and their interrupted moves are finished."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import LeftAlone
from bsd.core.files import make_private_dir, write_private
from bsd.core.layout import Layout
from bsd.maintenance.trashed import Trashed, TrashPlace
from tests.maintenance.trashing import NAME, SESSION, put, register, registry, trash_of
from tests.refusing import raising

ID = "main_s1_20260101T000000.000Z"
EXCERPT = '{"agent:main:a": {"sessionId": "s1"}}'


def meta(path: Path, **more: Any) -> str:
    """A meta file, member for member as 0.1.0 has written it."""
    return json.dumps(
        {
            "format": 1,
            "id": ID,
            "session": "main/s1",
            "original_agent": "main",
            "original_session_id": "s1",
            "original_path": str(path),
            "trashed_at": "2026-01-01T00:00:00.000Z",
            "expires_at": "2026-01-15T00:00:00.000Z",
            "parent": None,
            "entry_count": 2,
            "size": len(SESSION),
            "extracted_files": 2,
            "extracted_bytes": 200,
            "keys": ["agent:main:a"],
            "problem": None,
            "transcript": [1, len(SESSION), 1767225600000000000, 0o644],
            "sessions_json": EXCERPT,
            **more,
        }
    )


def in_the_trash(layout: Layout) -> TrashPlace:
    """A session and its store, at that version's places."""
    path = put(layout)
    place = TrashPlace(make_private_dir(layout.trash), ID)
    path.rename(place.transcript)
    layout.store_dir(NAME).rename(layout.trash / "main_s1_extracted_20260101T000000.000Z")
    layout.archive_dir(NAME).rename(layout.trash / "main_s1_archive_20260101T000000.000Z")
    write_private(layout.trash / f"{ID}.meta.json", meta(path).encode())
    return place


def journal(layout: Layout, aim: str, item: str, *, permanent: bool = False) -> Path:
    path = layout.moving / f"{ID}.{aim}.json"
    said = {"aim": aim, "actor": "cli", "at": 1767225600.0, "permanent": permanent}
    write_private(path, json.dumps({**said, "items": [json.loads(item)]}).encode())
    return path


def transcript(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns, 0o644]


def test_the_format_is_the_same() -> None:
    said = json.loads(meta(Path("/root/agents/main/sessions/s1.jsonl")))
    item = Trashed.of(said)
    assert json.loads(json.dumps(item.document())) == said


def test_it_is_listed_and_comes_back(layout: Layout) -> None:
    register(layout, "main", registry())
    in_the_trash(layout)
    (item,) = trash_of(layout).items()
    assert (item.id, item.session, item.entries, item.extracted_files) == (ID, "main/s1", 2, 2)
    assert item.problem is None
    trash_of(layout).restore("main/s1")
    assert layout.session_file(NAME).read_bytes() == SESSION
    assert len(list(layout.store_dir(NAME).iterdir())) == 2
    assert len(list(layout.archive_dir(NAME).iterdir())) == 1
    listed = layout.transcript(NAME).with_name("sessions.json")
    assert json.loads(listed.read_bytes()) == json.loads(EXCERPT)
    assert not list(layout.trash.iterdir())


def test_a_delete_is_finished(layout: Layout) -> None:
    path = put(layout)
    item = meta(path, transcript=transcript(path), sessions_json=None)
    path.rename(make_private_dir(layout.trash) / f"{ID}.jsonl")  # the state that it had reached
    ended = journal(layout, "trash", item)
    trash_of(layout).recover()
    assert not ended.exists()
    assert [each.id for each in trash_of(layout).items()] == [ID]
    trash_of(layout).restore(ID)
    assert path.read_bytes() == SESSION


def test_a_permanent_delete_is_finished(layout: Layout) -> None:
    """The session went through the trash."""
    place = in_the_trash(layout)
    place.meta.unlink()
    ended = journal(layout, "trash", meta(layout.transcript(NAME)), permanent=True)
    trash_of(layout).recover()
    assert not ended.exists()
    assert not list(layout.trash.iterdir())
    assert not layout.store_dir(NAME).exists()


def test_a_restore_is_finished(layout: Layout) -> None:
    """Its store had come back."""
    place = in_the_trash(layout)
    place.store.rename(layout.store_dir(NAME))
    journal(layout, "back", place.meta.read_text())
    trash_of(layout).recover()
    assert layout.session_file(NAME).read_bytes() == SESSION
    assert len(list(layout.store_dir(NAME).iterdir())) == 2
    assert not list(layout.trash.iterdir())


def test_a_store_on_another_mount_stays_in_the_trash_and_it_is_said_how_to_move_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = in_the_trash(layout)
    parted = OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    monkeypatch.setattr("bsd.maintenance.trash.refuse_unless_reached", raising(parted))
    with pytest.raises(LeftAlone, match="lies on another file system") as problem:
        trash_of(layout).restore("main/s1")
    assert (problem.value.hint or "").startswith(f"`mv {place.store} ")
    assert not layout.transcript(NAME).exists()
    for there, here in place.directories(layout, NAME):
        if here.exists():
            here.rename(there)
    trash_of(layout).restore("main/s1")
    assert layout.session_file(NAME).read_bytes() == SESSION
