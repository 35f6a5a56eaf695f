"""Late lines without an id, a recovery that is killed, and a program that then rewrites the file.

A record names the lines to carry before the bytes are carried, so that they are not carried twice.
The content of such a line does not distinguish it from another; the record of its carrying does.
"""

from __future__ import annotations

import pytest

from bsd.sessions.commit.late import list_orphans
from tests.sessions.commit.crashing import NEXT, Crash, append, crash_at, displaced
from tests.sessions.commit.scene import EDITED, HEADER, Scene

PING = b'{"type":"ping"}\n'
PONG = b'{"type":"pong"}\n'


def cut_short(scene: Scene, step: str, late: bytes = PING) -> None:
    scene.commit()
    append(displaced(scene), late)
    with pytest.raises(Crash):
        scene.recover(5, after_step=crash_at(step))


def settled(scene: Scene) -> bytes:
    for seconds in (5, 5, 70):
        scene.recover(seconds)
    assert list_orphans(scene.layout) == []
    return scene.content


def test_what_the_program_has_read_of_it_is_not_put_there_again(scene: Scene) -> None:
    cut_short(scene, "carried")
    assert scene.content == EDITED + PING
    scene.write(HEADER + PING + NEXT, 0)
    assert settled(scene) == HEADER + PING + NEXT


def test_what_the_program_had_not_read_yet_is_put_there(scene: Scene) -> None:
    cut_short(scene, "carried")
    scene.write(HEADER + NEXT, 0)
    assert settled(scene) == HEADER + NEXT + PING


def test_what_was_noted_and_never_carried_is_put_there(scene: Scene) -> None:
    cut_short(scene, "noted")
    assert scene.content == EDITED
    scene.write(HEADER + NEXT, 0)
    assert settled(scene) == HEADER + NEXT + PING


def test_only_what_is_missing_of_several_is_put_there(scene: Scene) -> None:
    cut_short(scene, "carried", PING + PONG + PING)
    assert scene.content == EDITED + PING + PONG + PING
    scene.write(HEADER + PING + NEXT, 0)
    assert settled(scene) == HEADER + PING + NEXT + PONG + PING


def test_one_that_was_never_carried_is_not_another_like_it(scene: Scene) -> None:
    scene.commit()
    append(displaced(scene), PING)
    scene.write(HEADER + PING + NEXT, 0)
    assert settled(scene) == HEADER + PING + NEXT + PING
