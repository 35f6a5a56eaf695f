"""The place of files in flight: on the session's mount, proven by a rename, found again later."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, Forbidden, Unavailable
from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import Note, add_note, read_record
from tests.needs import as_ordinary_user, require_linux
from tests.refusing import raising
from tests.sessions.commit.scene import EDITED, NAME, SESSION, Scene


def test_the_root_s_own_directory_comes_first(scene: Scene) -> None:
    assert scene.inflight.directory_for(scene.path) == scene.layout.inflight
    assert list(scene.path.parent.iterdir()) == [scene.path]
    assert list(scene.layout.inflight.iterdir()) == []


def test_nothing_is_ever_made_in_the_session_directory(scene: Scene) -> None:
    before = scene.path.parent.stat().st_mtime_ns
    scene.inflight.directory_for(scene.path)
    assert scene.path.parent.stat().st_mtime_ns == before


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[list[Path]]:
    """Directories to unmount at the end."""
    require_linux()
    mounts: list[Path] = []
    yield mounts
    for mount in reversed(mounts):
        subprocess.run(["umount", "-l", str(mount)], check=True)


def bind(source: Path, target: Path, mounted: list[Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    command = ["mount", "--bind", str(source), str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs to mount: {done.stderr.strip()}")
    mounted.append(target)


@pytest.mark.parametrize("below", ["main", "main/sessions"])
def test_a_bind_mount_has_its_own_directory(
    scene: Scene, tmp_path: Path, mounted: list[Path], below: str
) -> None:
    """Its device number is the root's, but the kernel refuses to rename."""
    place = scene.layout.agents / below
    elsewhere = tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.mkdir()
    bind(elsewhere, place, mounted)
    assert place.stat().st_dev == scene.root.stat().st_dev
    assert scene.commit().committed
    own = place / ".brainsurgeon" / "inflight"
    assert scene.inflight.directory_for(scene.path) == own
    assert own.stat().st_mode & 0o777 == own.parent.stat().st_mode & 0o777 == 0o700
    assert list(InFlight(scene.layout).records())
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]
    assert scene.content == EDITED


def test_a_directory_is_tried_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scene.inflight.directory_for(scene.path) == scene.layout.inflight

    monkeypatch.setattr(os, "rename", raising(AssertionError("tried again")))
    assert scene.inflight.directory_for(scene.path) == scene.layout.inflight


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_what_a_crash_leaves_of_the_trial_goes(scene: Scene, call: str) -> None:
    end = raising(KeyboardInterrupt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", end)
        if call == "rename":
            patch.setattr(os, "rename", end)
        with pytest.raises(KeyboardInterrupt):
            scene.inflight.directory_for(scene.path)
    assert list(scene.root.rglob("*probe"))
    assert scene.recover(50) == []
    assert {one.state for one in scene.recover(61)} == {State.ABANDONED}
    assert list(scene.root.rglob("*probe")) == []
    assert scene.commit().committed


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EXDEV, Unavailable), (errno.EACCES, Forbidden), (errno.ENOSPC, Unavailable)],
)
def test_no_directory_can_be_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[BsdError]
) -> None:
    monkeypatch.setattr(os, "rename", raising(OSError(code, os.strerror(code))))
    with pytest.raises(kind, match="no directory for files in flight") as caught:
        scene.commit()
    assert caught.value.hint
    assert scene.content == SESSION
    assert list(scene.root.rglob("*probe*")) == []


def test_a_link_out_of_the_root_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    scene.layout.own.symlink_to(outside)
    (scene.layout.agents / "linked").symlink_to(outside)
    directory = scene.inflight.directory_for(scene.path)
    assert directory == scene.path.parent.parent / ".brainsurgeon" / "inflight"
    (outside / ".brainsurgeon" / "inflight").mkdir(parents=True)
    assert list(scene.inflight.directories()) == [directory]


def test_a_record_tells_what_recovery_needs(scene: Scene) -> None:
    planned = scene.change()
    outcome = scene.commit(change=scene.change())
    assert outcome.in_flight is not None
    record = read_record(outcome.in_flight)
    assert record is not None
    assert outcome.gave_up is None
    assert (record.session, record.target, record.strong) == (NAME, scene.path, True)
    assert record.old is not None
    assert record.new is not None
    assert record.old.identity == planned.planned_on
    assert record.new.identity.ino == scene.path.stat().st_ino
    assert record.old.header == record.new.header
    assert record.file.read_bytes() == SESSION


def test_a_line_torn_off_a_record_spoils_no_other(scene: Scene) -> None:
    outcome = scene.commit()
    assert outcome.in_flight is not None
    with outcome.in_flight.open("ab") as file:
        file.write(b'\n{"note": "carr')
    note = Note("carried", "old", len(SESSION), 3, 3, "")
    add_note(outcome.in_flight, note)
    record = read_record(outcome.in_flight)
    assert record is not None
    assert record.notes == (note,)


# As a user other than root.

_COMMIT = """
import sys
from pathlib import Path
from bsd.core.errors import BsdError
from tests.sessions.commit.scene import Scene
try:
    outcome = Scene(Path(sys.argv[1])).commit()
    print(outcome.gave_up or "committed")
except BsdError as error:
    print(type(error).__name__, bool(error.hint))
"""


def as_nobody(root: Path, program: str = _COMMIT) -> str:
    prefix = as_ordinary_user()
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program, str(root)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    return done.stdout.strip()


def give_to_nobody(scene: Scene, *names: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else as well")
    for path in [scene.root, *scene.root.rglob("*")]:
        if path.name not in names:
            os.chown(path, 65534, 65534)
    for parent in scene.root.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and parent != Path("/"):
            pytest.skip("needs a temporary directory that everybody may enter")


def test_an_ordinary_user_commits_what_is_theirs(readable: Scene) -> None:
    give_to_nobody(readable)
    assert as_nobody(readable.root) == "committed"
    assert readable.content == EDITED
    assert readable.path.stat().st_uid == 65534


def test_somebody_else_s_session_is_left_alone(readable: Scene) -> None:
    give_to_nobody(readable, "s1.jsonl")
    readable.path.chmod(0o666)
    assert as_nobody(readable.root) == GiveUp.CANNOT_KEEP_METADATA
    assert readable.content == SESSION


def test_a_directory_that_cannot_be_written_to(readable: Scene) -> None:
    give_to_nobody(readable, "sessions")
    assert as_nobody(readable.root) == "Forbidden True"
    assert readable.content == SESSION


def test_a_session_that_cannot_be_written_to(readable: Scene) -> None:
    readable.path.chmod(0o444)
    give_to_nobody(readable)
    assert as_nobody(readable.root) == "Forbidden True"
    assert readable.content == SESSION


@pytest.fixture
def readable(scene: Scene) -> Scene:
    """A scene that another user may reach, as others' may at this moment: it stays so."""
    for parent in scene.root.parents:
        mode = parent.stat().st_mode & 0o7777
        if os.geteuid() == 0 and mode & 0o005 != 0o005 and "pytest" in str(parent):
            parent.chmod(mode | 0o055)
    return scene


def test_a_record_that_cannot_be_looked_for_is_an_error_that_says_so(scene: Scene) -> None:
    scene.layout.inflight.mkdir(parents=True, exist_ok=True)
    gone = scene.layout.inflight / "gone.record"
    scene.inflight.own.remember(NAME, gone)
    assert scene.inflight.own.touched(NAME) == {}
    scene.inflight.own.remember(
        NAME, scene.layout.inflight / ("x" * 300)
    )  # as in a closed directory
    with pytest.raises(BsdError, match="looking for"):
        scene.inflight.own.touched(NAME)
