"""Where leases prove nothing: quiet, a look at open files, the exchange, and a watch after it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core import leases
from bsd.core.filesystem import judge, open_elsewhere, strength
from bsd.sessions.commit.displaced import State
from bsd.sessions.commit.exchange import GiveUp
from tests.needs import require_linux
from tests.refusing import raising
from tests.sessions.commit.scene import (
    EDITED,
    SESSION,
    WEAK,
    Scene,
    edit_of,
    hold_open,
    let_go,
    line,
    once_at,
)

LATE = line(90)


@pytest.fixture
def weak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A scene in which leases give no proof."""
    require_linux()

    for name in ("take_lease", "release_lease", "somebody_waits"):
        monkeypatch.setattr(
            f"bsd.sessions.commit.exchange.{name}", raising(AssertionError("no leases here"))
        )
    scene = Scene(tmp_path / "root", strength=lambda _: WEAK)
    scene.age(40)
    yield scene
    for child in scene.children:
        child.kill()
        child.communicate()


def test_a_quiet_session_is_exchanged(weak: Scene) -> None:
    outcome = weak.commit()
    assert outcome.committed
    assert weak.content == EDITED
    assert [file.read_bytes() for file in weak.in_flight()] == [SESSION]


def test_half_a_minute_of_quiet_is_needed(weak: Scene) -> None:
    weak.age(29)
    assert weak.commit().gave_up is GiveUp.TOO_YOUNG
    weak.age(31)
    assert weak.commit().committed


@pytest.mark.parametrize("step", [None, "locked"])
def test_a_session_that_a_process_has_open_is_left_alone(weak: Scene, step: str | None) -> None:
    holders = []
    if step is None:
        holders.append(hold_open(weak))
        outcome = weak.commit()
    else:
        outcome = weak.commit(after_step=once_at(step, lambda: holders.append(hold_open(weak))))
    assert outcome.gave_up is GiveUp.IS_OPEN
    assert str(holders[0].pid) in outcome.detail
    let_go(holders[0])
    assert weak.content == SESSION
    assert weak.in_flight() == weak.records() == []


def test_growth_during_the_exchange_undoes_it(weak: Scene) -> None:
    def append() -> None:
        with weak.path.open("ab") as file:
            file.write(LATE)

    def append_to_old() -> None:
        with weak.in_flight()[0].open("ab") as file:
            file.write(LATE)

    assert weak.commit(after_step=once_at("opened", append)).gave_up is GiveUp.CHANGED
    assert weak.content == SESSION + LATE
    weak.write(SESSION, 40)
    outcome = weak.commit(after_step=once_at("exchanged", append_to_old))
    assert outcome.gave_up is GiveUp.CHANGED
    assert weak.content == SESSION + LATE


def test_lines_for_the_new_file_survive_the_undo(weak: Scene) -> None:
    def both() -> None:
        for file in (weak.in_flight()[0], weak.path):
            with file.open("ab") as open_file:
                open_file.write(line(91) if file == weak.path else LATE)

    assert weak.commit(after_step=once_at("exchanged", both)).gave_up is GiveUp.CHANGED
    for seconds in (5, 100, 200):
        weak.recover(seconds)
    assert sorted(weak.content.splitlines()) == sorted((SESSION + LATE + line(91)).splitlines())
    assert weak.in_flight() == []


def test_late_lines_are_carried_without_a_lease(weak: Scene) -> None:
    weak.commit()
    with weak.in_flight()[0].open("ab", buffering=0) as file:
        file.write(LATE)
        assert [one.state for one in weak.recover()] == [State.CARRIED]
        assert weak.content == EDITED + LATE
    assert [one.state for one in weak.recover(50)] == [State.WATCHED]
    assert [one.state for one in weak.recover(61)] == [State.FINISHED]


def test_a_displaced_file_is_kept_while_a_process_has_it_open(weak: Scene) -> None:
    weak.commit()
    holder = subprocess.Popen(["tail", "-f", str(weak.in_flight()[0])], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    assert [one.state for one in weak.recover(61)] == [State.WATCHED]
    holder.kill()
    holder.communicate()
    assert [one.state for one in weak.recover(61)] == [State.FINISHED]


# Known file systems.


@pytest.mark.parametrize(
    ("magic", "level", "name"),
    [
        (0xEF53, "strong", "ext2/3/4"),
        (0x58465342, "strong", "xfs"),
        (0x9123683E, "strong", "btrfs"),
        (0xF2F52010, "strong", "f2fs"),
        (0x2FC12FC1, "strong", "zfs"),
        (0x01021994, "strong", "tmpfs"),
        (0x794C7630, "weak", "overlayfs"),
        (0x65735546, "weak", "FUSE"),
        (0x6969, "weak", "NFS"),
        (0xFF534D42, "weak", "CIFS"),
        (0x12345678, "weak", "unknown (0x12345678)"),
    ],
)
def test_only_known_file_systems_are_strong(magic: int, level: str, name: str) -> None:
    judged = judge(magic)
    assert (judged.level, judged.filesystem) == (level, name)
    assert judged.why


def test_the_file_system_is_asked() -> None:
    require_linux()
    assert strength(Path("/proc")).filesystem == "unknown (0x9fa0)"
    with pytest.raises(FileNotFoundError):
        strength(Path("/nowhere/at/all"))


def test_open_files_are_seen(tmp_path: Path) -> None:
    require_linux()
    path = tmp_path / "file"
    path.touch()
    assert open_elsewhere(path) == []
    with path.open("rb"):
        assert open_elsewhere(path) == [os.getpid()]
    with pytest.raises(FileNotFoundError):
        open_elsewhere(tmp_path / "none")


# A real file system without proof.


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(tmp_path / "merged")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs to mount an overlay: {done.stderr.strip()}")
    yield tmp_path / "merged"
    subprocess.run(["umount", "-l", str(tmp_path / "merged")], check=True)


def test_sessions_on_an_overlay(overlay: Path) -> None:
    scene = Scene(overlay / "root")
    assert strength(scene.path).level == "weak"
    assert strength(scene.path).filesystem == "overlayfs"
    assert scene.commit().gave_up is GiveUp.TOO_YOUNG
    scene.age(40)
    assert scene.commit().committed
    assert scene.content == EDITED
    scene.age(40)
    assert scene.commit(edit_of(line(4), b"", EDITED)).committed
    scene.recover(61)
    assert scene.in_flight() == []


def test_sessions_below_an_overlay(overlay: Path, tmp_path: Path) -> None:
    """In a container's image: the first commit may find a file that has just become another."""
    lower = Scene(tmp_path / "lower" / "root")
    lower.age(40)
    scene = Scene(overlay / "root")
    outcomes = [scene.commit() for _ in range(2)]
    assert any(outcome.committed for outcome in outcomes)
    assert scene.content == EDITED
    assert lower.path.read_bytes() == SESSION


def test_names_are_exchanged_or_an_error_says_why(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    leases.swap_names(str(one), str(two))
    assert (one.read_text(), two.read_text()) == ("2", "1")
    with pytest.raises(FileNotFoundError):
        leases.swap_names(str(one), str(tmp_path / "none"))
