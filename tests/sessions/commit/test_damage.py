"""Displaced files that a power cut spoilt: no data is lost by zeros, or by lines that the session
also has.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bsd.maintenance.verify import verify
from bsd.sessions.commit import displaced as displaced_module
from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.late import list_orphans
from bsd.sessions.commit.record import read_record
from tests.sessions.commit.scene import EDITED, SESSION, Scene, edit_of, line

LATE, LATER = line(90), line(91)
EDIT_AT, EDIT_END = SESSION.index(line(3)), SESSION.index(line(4))


def displaced(scene: Scene) -> Path:
    (file,) = scene.in_flight()
    return file


def spoil(path: Path, content: bytes, *, newer: bool = False) -> None:
    """Spoil a file in its inode as a power cut does; the mtime may be that of a write."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    when = time.time_ns() + 10**9 if newer else before
    os.utime(path, ns=(when, when))


def settled(scene: Scene) -> set[State]:
    """Recover the files in flight after they are old enough; return the results."""
    found = {one.state for one in scene.recover(61)}
    return found | {one.state for one in scene.recover(62)}


def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displaced_module, "steady", lambda: 0.0)


# The late line.


@pytest.mark.parametrize("zeros", [1, 100, 5000])
@pytest.mark.parametrize("late", [b"", LATE, LATE + LATER])
def test_late_bytes_that_were_never_written_are_no_loss(
    scene: Scene, late: bytes, zeros: int
) -> None:
    scene.commit()
    with displaced(scene).open("ab") as file:
        file.write(late + bytes(zeros))
    assert settled(scene) == {State.FINISHED}
    assert scene.content == EDITED + late
    assert (list_orphans(scene.layout), scene.records()) == ([], [])
    assert verify(scene.layout).clean


@pytest.mark.parametrize("zeros", [0, 100])
def test_the_beginning_of_a_line_that_the_session_has_is_no_loss(scene: Scene, zeros: int) -> None:
    scene.commit()
    with scene.path.open("ab") as file:
        file.write(LATE)  # as its writer did again after the machine had restarted
    with displaced(scene).open("ab") as file:
        file.write(LATE[:70] + bytes(zeros))
    assert settled(scene) == {State.FINISHED}
    assert scene.content == EDITED + LATE
    assert list_orphans(scene.layout) == []


def test_the_beginning_of_a_line_that_nobody_has_is_kept(scene: Scene) -> None:
    scene.commit()
    with displaced(scene).open("ab") as file:
        file.write(LATE[:70] + bytes(10))
    settled(scene)
    (orphan,) = list_orphans(scene.layout)
    assert orphan.file.read_bytes() == LATE[:70] + bytes(10)


# The content at the moment of displacement.


@pytest.mark.parametrize(
    "spoilt",
    [
        SESSION[:-300] + bytes(300),
        SESSION[:EDIT_END] + bytes(len(SESSION) - EDIT_END),
        SESSION[: EDIT_AT + 50] + bytes(len(SESSION) - EDIT_AT - 50),
        SESSION[:1000] + bytes(500) + SESSION[1500:],
        SESSION[:-300],
        SESSION[: EDIT_AT + 50],
        bytes(len(SESSION)),
        b"",
    ],
    ids=["tail", "behind the edit", "in the edit", "hole", "cut", "cut in the edit", "all", "none"],
)
def test_a_spoilt_file_whose_successor_has_everything_is_no_loss(
    scene: Scene, spoilt: bytes
) -> None:
    scene.commit()
    spoil(displaced(scene), spoilt)
    assert settled(scene) == {State.FINISHED}
    assert scene.content == EDITED
    assert (list_orphans(scene.layout), scene.in_flight(), scene.records()) == ([], [], [])
    assert verify(scene.layout).clean


def test_a_hundred_and_eighty_spoilt_files_of_one_minute_are_no_loss(scene: Scene) -> None:
    """Each file but the first replaced another; the line that an agent had appended is lost."""
    expected = SESSION
    whole: dict[Path, bytes] = {}
    for number in range(180):
        added = line(1000 + number)
        with scene.path.open("ab") as session:
            session.write(added)
        expected += added
        scene.age()
        old = line(1000 + number - 1) if number else line(3)
        change = edit_of(old, line(5000 + number, "[[x]]"), expected)
        assert scene.commit(change).committed
        expected = expected.replace(old, line(5000 + number, "[[x]]"))
        for file in set(scene.in_flight()) - whole.keys():
            whole[file] = file.read_bytes()
    for number, (file, content) in enumerate(whole.items()):
        spoil(file, content[:-200] + (b"" if number % 3 else bytes(200)))
    assert settled(scene) == {State.FINISHED}
    assert scene.content == expected
    assert list_orphans(scene.layout) == []


@pytest.mark.parametrize("at", [1000, EDIT_END, len(SESSION) - 2])
def test_one_byte_that_nobody_has_is_kept(scene: Scene, at: int) -> None:
    scene.commit()
    other = SESSION[:at] + b"?" + SESSION[at + 1 : -1] + b"\0"
    spoil(displaced(scene), other)
    assert settled(scene) == {State.ORPHANED}
    (orphan,) = list_orphans(scene.layout)
    assert orphan.file.read_bytes() == other
    assert scene.content == EDITED


def test_a_spoilt_file_whose_successor_is_gone_is_kept(scene: Scene) -> None:
    scene.commit()
    spoil(displaced(scene), SESSION[:-300] + bytes(300))
    scene.write(SESSION[:400])
    assert settled(scene) == {State.ORPHANED}


def test_a_record_that_does_not_tell_of_edits_proves_nothing(scene: Scene) -> None:
    """A record as older versions wrote it."""
    scene.commit()
    (record,) = scene.records()
    rows = [json.loads(row) for row in record.read_bytes().splitlines() if row]
    del rows[1]["edits"], rows[1]["edited"]
    record.write_text("\n".join(map(json.dumps, rows)) + "\n")
    found = read_record(record)
    assert found is not None
    assert found.edits is None
    spoil(displaced(scene), SESSION[:-300] + bytes(300))
    assert settled(scene) == {State.ORPHANED}


# In addition, a program wrote to it.


@pytest.mark.parametrize("again", [False, True])
def test_a_spoilt_file_never_replaces_its_good_successor(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    scene.commit()
    if again:
        restarted(monkeypatch)
    spoil(displaced(scene), SESSION[:-300] + bytes(300), newer=True)
    assert settled(scene) <= {State.ORPHANED, State.FINISHED}
    assert scene.content == EDITED
    assert len(list_orphans(scene.layout)) == (0 if again else 1)


def test_late_lines_of_a_spoilt_file_are_carried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.commit()
    restarted(monkeypatch)
    spoil(displaced(scene), SESSION[:-300] + bytes(300) + LATE, newer=True)
    assert settled(scene) == {State.FINISHED}
    assert scene.content == EDITED + LATE
    assert list_orphans(scene.layout) == []


def test_what_somebody_wrote_where_values_had_left_is_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.commit()
    restarted(monkeypatch)
    other = SESSION.replace(line(3), line(3).replace(b"x", b"y"))
    spoil(displaced(scene), other, newer=True)
    assert settled(scene) == {State.ORPHANED}
    (orphan,) = list_orphans(scene.layout)
    assert orphan.file.read_bytes() == other


def test_who_made_a_session_shorter_has_his_way_while_the_machine_is_up(scene: Scene) -> None:
    scene.commit()
    spoil(displaced(scene), SESSION[: SESSION.index(line(9))], newer=True)
    assert State.PUT_BACK in {one.state for one in scene.recover(61)}
    assert scene.content == SESSION[: SESSION.index(line(9))]


def test_after_a_power_cut_what_is_shorter_replaces_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.commit()
    restarted(monkeypatch)
    spoil(displaced(scene), SESSION[: EDIT_AT + 50], newer=True)
    assert settled(scene) == {State.ORPHANED}
    assert scene.content == EDITED
