"""Planted records at the place of bsd's own do not change a session."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import Conflict, Forbidden
from bsd.core.layout import SessionName
from bsd.maintenance.doctor import examine
from bsd.maintenance.verify import verify
from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.late import list_orphans
from bsd.sessions.commit.recovery import retire
from bsd.transcripts.change import Identity
from tests.sessions.commit.scene import EDITED, HEADER, SESSION, Scene, line
from tests.untrusted import WAYS

THEIRS = HEADER + line(66)
_NAME = "0123456789abcdef"


def mark(path: Path, **other: int) -> dict[str, Any]:
    """The identity of a file, as a record notes it."""
    told = asdict(Identity.of(path.lstat()))
    return {"identity": {**told, **other}, "header": "", "tail": ""}


def told_of(scene: Scene, session: str = "main/s1") -> list[dict[str, Any]]:
    """A record that would put the file in flight at the session's path."""
    intent = {
        "record": 1,
        "session": session,
        "path": str(scene.path),
        "created_ns": time.time_ns() - 10**12,
    }
    old = mark(scene.path, ino=1)  # neither of them: as if the file had come out of the path
    return [intent, {"ready": True, "strong": True, "old": old, "new": mark(scene.path)}]


def write(directory: Path, told: list[dict[str, Any]]) -> Path:
    """Put a record and its file into a directory, as private as bsd's are."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in (directory.parent, directory):
        path.chmod(0o700)
    file, record = directory / f"{_NAME}.file", directory / f"{_NAME}.record"
    file.write_bytes(THEIRS)
    record.write_text("\n".join(map(json.dumps, told)) + "\n")
    for path in (file, record):
        path.chmod(0o600)
    return record


def evil(scene: Scene) -> Path:
    """A directory in which an agent may place files."""
    sessions = scene.layout.agents / "evil" / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    return sessions.parent / ".brainsurgeon" / "inflight"


def unharmed(scene: Scene, record: Path) -> None:
    """The record has no effect, bsd names it, and everything else goes on."""
    before = scene.content
    kept = record.with_suffix(".file").read_bytes()
    scene.recover(61)
    retire(scene.inflight, now_ns=lambda: time.time_ns() + 61 * 10**9)
    assert scene.content == before
    assert record.with_suffix(".file").read_bytes() == kept
    assert os.path.lexists(record)
    named = [one.where for one in verify(scene.layout).findings if one.kind == "in_flight"]
    assert any(str(record).startswith(where) for where in named), named
    assert list(InFlight(scene.layout).readable()) == []
    scene.write(SESSION)
    assert scene.commit().committed
    assert State.FINISHED in {one.state for one in scene.recover(61)}
    assert scene.content == EDITED


def test_a_record_of_bsd_s_own_like_this_would_be_followed(scene: Scene) -> None:
    """Without this the other tests would prove nothing."""
    write(scene.layout.inflight, told_of(scene))
    assert [one.state for one in scene.recover(61)] == [State.PUT_BACK]
    assert scene.content == THEIRS


def test_a_record_of_a_session_that_lies_elsewhere(scene: Scene) -> None:
    record = write(evil(scene), told_of(scene))
    (found,) = scene.recover(61)
    assert (found.state, found.session) == (State.FAILED, None)
    assert "lies elsewhere" in found.detail
    unharmed(scene, record)


@pytest.mark.parametrize("session", ["evil/s1", "main/s2"])
def test_a_record_whose_path_is_not_its_session_s(scene: Scene, session: str) -> None:
    for directory in (scene.layout.inflight, evil(scene)):
        unharmed(scene, record := write(directory, told_of(scene, session)))
        record.unlink()


def test_a_record_that_gets_at_its_session_by_a_link(scene: Scene) -> None:
    directory = evil(scene)
    (directory.parent.parent / "sessions").rmdir()
    (directory.parent.parent / "sessions").symlink_to(scene.path.parent)
    told = told_of(scene, "evil/s1")
    told[0]["path"] = str(directory.parent.parent / "sessions" / "s1.jsonl")
    record = write(directory, told)
    assert scene.recover(61) == []
    assert record.with_suffix(".file").read_bytes() == THEIRS
    assert scene.content == SESSION


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


KINDS = {**WAYS, "pipe": _pipe, "directory": _directory}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["root", "agent"])
def test_a_record_that_others_have_made_or_may_change(scene: Scene, kind: str, place: str) -> None:
    """In an agent's directory it may even speak of this agent's own session."""
    agents_own = scene.path.parent.parent / ".brainsurgeon" / "inflight"
    record = write(scene.layout.inflight if place == "root" else agents_own, told_of(scene))
    KINDS[kind](record)
    assert [path for path, _ in scene.inflight.planted()] == [record]
    assert scene.recover(61) == []
    warned = [check for check in examine(scene.layout) if check.name == "in flight"]
    assert any(str(record) in check.message and check.hint for check in warned)
    unharmed(scene, record)


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("kind", ["another's", "writable for a group", "writable for all"])
def test_a_directory_that_others_have_made_or_may_change(
    scene: Scene, kind: str, *, above: bool
) -> None:
    record = write(evil(scene), told_of(scene))
    stray = record.with_name("stray.file")
    stray.touch()
    os.utime(stray, (0, 0))
    directory = record.parent
    KINDS[kind](directory.parent if above else directory)
    assert [path for path, _ in scene.inflight.planted()] == [directory]
    unharmed(scene, record)
    assert stray.exists()


@pytest.mark.parametrize("place", ["agent", "sessions"])
def test_a_directory_by_a_link_is_nobody_s_to_sweep(scene: Scene, place: str) -> None:
    """It would lead to files of other programs that only have a similar name."""
    evil(scene)
    home = scene.layout.agents / "evil" / ("sessions" if place == "sessions" else "")
    theirs = scene.layout.agents / "other" / "inflight"
    theirs.mkdir(parents=True, mode=0o700)
    file = theirs / "old.file"
    file.touch()
    os.utime(file, (0, 0))
    (home / ".brainsurgeon").symlink_to(theirs.parent)
    scene.recover(61)
    assert file.exists()
    assert scene.commit().committed


def test_a_commit_uses_no_directory_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the root's own directory lies on another mount."""
    agent = scene.path.parent.parent / ".brainsurgeon"
    sessions = scene.path.parent / ".brainsurgeon"
    for place in (agent, sessions):
        (place / "inflight").mkdir(parents=True)
        place.chmod(0o777)
    candidates = [agent / "inflight", sessions / "inflight"]
    monkeypatch.setattr(InFlight, "_candidates", lambda *_: iter(candidates))
    with pytest.raises(Forbidden, match="bsd does not trust this file") as caught:
        scene.commit()
    assert str(agent) in str(caught.value.hint)
    assert (scene.content, list(agent.rglob("*.*"))) == (SESSION, [])
    sessions.chmod(0o700)
    assert scene.commit().committed
    sessions.chmod(0o777)
    scene.write(SESSION)
    with pytest.raises(Forbidden):  # it had been accepted before
        scene.commit()


# Each field of a record that looks like bsd's own.

_ODD: list[Any] = [
    *(None, True, [], {}, "", "x", "../../x", "a\0b", "/etc/passwd", "\ud800"),
    *(-1, 0, 1, 1.5, 10**12, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**400),
]


def _fields(told: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = told if isinstance(told, dict) else range(len(told)) if isinstance(told, list) else ()
    return [
        path for key in keys for path in ((*at, key), *_fields(told[key], (*at, key))) if path[1:]
    ]


def _note() -> dict[str, Any]:
    note = {"note": "carried", "of": "old", "offset": len(SESSION), "length": 0, "written": 0}
    return {**note, "sha256": ""}


_PLACES = _fields([{"record": 1, "session": "", "path": "", "created_ns": 0, "carries_late": 0}])
_MARK = {"identity": asdict(Identity(0, 0, 0, 0, 0)), "header": "", "tail": ""}
_PLACES += [(1, *path[1:]) for path in _fields([{"strong": 0, "old": _MARK, "new": _MARK}])]
_PLACES += [(2, *path[1:]) for path in _fields([_note()])]


@pytest.mark.parametrize("field", _PLACES, ids=lambda path: ".".join(map(str, path)))
def test_no_field_of_a_record_can_spoil_a_session(scene: Scene, field: tuple[Any, ...]) -> None:
    """With any record, the session stays whole, and recovery goes on to the next record."""
    for odd in _ODD:
        scene.write(SESSION)
        outcome = scene.commit()
        assert outcome.in_flight is not None
        rows = outcome.in_flight.read_bytes().splitlines()
        told = [*(json.loads(row) for row in rows if row), _note()]
        place = told
        for key in field[:-1]:
            place = place[key]
        place[field[-1]] = odd
        outcome.in_flight.write_text("\n".join(map(json.dumps, told)))
        (found,) = scene.recover(61)
        assert "cannot be dealt with" not in found.detail
        assert scene.content in (EDITED, SESSION), (odd, found)
        kept = [one.file.read_bytes() for one in list_orphans(scene.layout)]
        left = [file.read_bytes() for file in scene.in_flight()]
        if scene.content == SESSION:
            assert found.state is State.PUT_BACK
        elif found.state is not State.FINISHED and found.state is not State.ABANDONED:
            assert SESSION in (*kept, *left), (odd, found)
        for path in (*scene.records(), *scene.in_flight(), *scene.layout.orphans.glob("*")):
            path.unlink()


def test_a_session_whose_agent_is_gone_keeps_nobody_waiting(scene: Scene) -> None:
    scene.commit()
    scene.path.unlink()
    scene.path.parent.rmdir()
    scene.path.parent.parent.rmdir()
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]


def test_a_read_refuses_what_recovery_would(scene: Scene) -> None:
    record = write(evil(scene), told_of(scene))
    with pytest.raises(Conflict, match="is refused") as caught:
        scene.inflight.read(record)
    assert caught.value.hint
    assert scene.layout.places_of(SessionName("main", "s1")) == [scene.path]
