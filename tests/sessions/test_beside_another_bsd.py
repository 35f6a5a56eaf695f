"""Changes beside another bsd, and while a program has a displaced file open."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bsd.core.layout import Layout
from bsd.planning.result import Status
from tests.commands import Commands
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, make_caller, write

BUSY = 4  # exit code


@contextmanager
def another_bsd(root: Path) -> Iterator[None]:
    """It works on the session."""
    file = root / ".brainsurgeon/locks/main_s1.lock"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def displaced(root: Path) -> list[Path]:
    return list(root.glob(".brainsurgeon/inflight/*.file"))


def test_a_session_that_bsd_has_changed_is_not_looked_at_beside_another(layout: Layout) -> None:
    """The other bsd may be in the middle of an undo, so "no value can leave" is not a final
    answer.
    """
    path = write(layout, conversation(4))
    assert make_caller(layout, Clock(), 0.0).extract(NAME).status is Status.EXTRACTED
    for file in layout.root.glob(".brainsurgeon/inflight/*"):
        file.unlink()
    set_idle(path)
    with another_bsd(layout.root):
        assert make_caller(layout, Clock(), 0.0).extract(NAME).status is Status.BUSY
    assert make_caller(layout, Clock(), 0.0).extract(NAME).status is Status.UNCHANGED


def test_no_session_is_deleted_while_a_program_may_write_to_what_was_displaced(
    layout: Layout,
) -> None:
    bsd = Commands(layout.root)
    path = write(layout, conversation(4))
    bsd("extract", str(NAME))
    set_idle(path)
    (old,) = displaced(layout.root)
    with old.open("ab") as file:
        said = bsd.said("delete", str(NAME), "--yes")
        assert (said.code, path.exists()) == (BUSY, True)
        file.write(b'{"type":"message","id":"late","message":{"role":"user","content":"late"}}\n')
    set_idle(old)
    bsd("restore", str(NAME), "e1")
    assert b'"late"' in path.read_bytes(), "what came into it is where it belongs"
    set_idle(path)
    bsd("delete", str(NAME), "--yes")
    assert not path.exists()
