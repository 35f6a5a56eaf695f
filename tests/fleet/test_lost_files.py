"""Files of the archive that were lost or damaged here come back from the bucket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.other_hosts import verify_remote
from bsd.actions.restore import restore_all
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.maintenance import from_bucket
from bsd.maintenance.forget import Forget
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.maintenance.targets import lock_of
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.store.originals import SessionStore
from bsd.store.pack import PACK, PackDamaged
from bsd.store.uploads import Stored, journal_file, note_deleted
from tests.fleet.hosts import MadeHost
from tests.session_files import entry, jsonl

S1, S2 = SessionName("main", "s1"), SessionName("main", "s2")


@pytest.fixture(params=["whole", "thin"])
def host(tmp_path: Path, request: pytest.FixtureRequest) -> MadeHost:
    """A host with two sessions, whose values are only in the archive."""
    host = MadeHost.of(tmp_path)
    for name in (S1, S2):
        host.add(str(name), words="a quagga")
    host.push()
    for name in (S1, S2):
        shutil.rmtree(SessionStore(host.layout, name).directory)
    if request.param == "thin":
        host.settings = replace(host.settings, keep_local="1h")
        host.clock.ahead += 7200.0
        assert host.push().thinned
    assert verify(host.layout).clean
    return host


def _packs(host: MadeHost) -> list[Path]:
    return sorted(path for path in host.layout.archive.rglob("*") if path.name.endswith(PACK))


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def _flip(paths: Iterable[Path], at: int) -> None:
    for path in paths:
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)


def _cut(paths: Iterable[Path]) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-5])


_DAMAGES: dict[str, Callable[[MadeHost], None]] = {
    "archive": lambda host: shutil.rmtree(host.layout.archive),
    "packs": lambda host: _remove(_packs(host)),
    "copies": lambda host: _remove(host.layout.archive.rglob("copy.json")),
    "index": lambda host: _flip(_packs(host), -100),
    "records": lambda host: _flip(_packs(host), -200),
    "cut": lambda host: _cut(_packs(host)),
}


@pytest.mark.parametrize("damage", _DAMAGES)
@pytest.mark.parametrize("after_push", [False, True], ids=["at once", "after a push"])
def test_they_come_back_from_the_bucket(host: MadeHost, damage: str, *, after_push: bool) -> None:
    transcript = host.layout.session_file(S1)
    before, remote = transcript.read_bytes(), host.remote().files
    _DAMAGES[damage](host)
    if after_push:
        host.push()
        assert host.remote().files == remote
    told = verify(host.layout)
    assert not told.clean
    assert all(finding.hint for finding in told.findings if finding.is_open)
    repaired = verify(host.layout, repair=True)
    assert repaired.clean, repaired.findings
    assert [each.kind for each in repaired.findings if each.repaired]
    again = verify(host.layout)
    assert {each.kind for each in again.findings} <= {"in_bucket"}
    assert host.push().problems == []
    assert host.remote().files == remote
    restore_all(host.caller, S1)
    assert b"a quagga" not in before
    assert b"a quagga" in transcript.read_bytes()


def test_what_was_deleted_here_stays_deleted(host: MadeHost) -> None:
    trashed, forgotten = host.layout.session_file(S1), host.layout.session_file(S2)
    host.clock.ahead += 86_400.0
    Trash(host.layout, "14d", budget=host.caller.budget).delete(S1)
    forgotten.unlink()
    Forget(host.layout, budget=host.caller.budget).session(S2)
    assert not trashed.exists()
    found = verify(host.layout, repair=True).findings
    assert [each for each in found if each.kind == "lost_file"] == []
    assert _packs(host) == []


def _forget(host: MadeHost) -> None:
    host.layout.session_file(S2).unlink()
    Forget(host.layout, budget=host.caller.budget).session(S2)


def _trash(host: MadeHost) -> None:
    Trash(host.layout, "14d", budget=host.caller.budget).delete(S2)


def _merge(host: MadeHost) -> None:
    packs = [path for path in _packs(host) if "main_s2" in str(path)]
    note_deleted(host.layout.root, packs)
    _remove(packs)


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("act", [_forget, _trash, _merge])
def test_what_is_deleted_meanwhile_does_not_come_back(
    host: MadeHost,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[MadeHost], None],
    *,
    repair: bool,
) -> None:
    """It is deleted after verify has begun, and before it looks at the files."""
    host.clock.ahead += 86_400.0
    _remove(path for path in _packs(host) if "main_s1" in str(path))
    look, calls = from_bucket._what_is_wrong, list[Path]()

    def acts(root: Path, local: Path, stored: Stored, *, whole: bool) -> str | None:
        if not calls:
            act(host)
        calls.append(local)
        return look(root, local, stored, whole=whole)

    monkeypatch.setattr(from_bucket, "_what_is_wrong", acts)
    found = verify(host.layout, repair=repair).findings
    lost = [each for each in found if each.kind == "lost_file"]
    assert len(lost) == 1
    assert "main_s1" in lost[0].where
    assert not [path for path in _packs(host) if "main_s2" in str(path)]


def test_what_was_renewed_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = MadeHost.of(tmp_path)
    host.add()
    host.push()
    (copy,) = host.layout.archive.rglob("copy.json")
    copy.unlink()
    locked = lock_of

    def renews(*given: Any) -> AbstractContextManager[object]:
        copy.write_bytes(b"renewed")
        return locked(*given)

    monkeypatch.setattr(from_bucket, "lock_of", renews)
    verify(host.layout, repair=True)
    assert copy.read_bytes() == b"renewed"


def _renewed_copy(tmp_path: Path) -> tuple[MadeHost, Path]:
    """A host whose session has grown, was copied again, and was deleted; nothing was pushed since.

    Returns the host and the path of its `copy.json`.
    """
    host = MadeHost.of(tmp_path)
    path = host.add()
    host.push()
    with path.open("ab") as stream:
        stream.write(jsonl(entry(50, "user", "and on it goes")))
    host.clock.ahead += 2 * 86_400.0
    take_snapshots(host.layout, "never", host.caller.budget, scope=SnapshotScope(at_once=True))
    path.unlink()
    host.clock.ahead += 3600.0
    (copy,) = host.layout.archive.rglob("copy.json")
    return host, copy


def test_an_older_copy_does_not_take_the_place_of_a_lost_one(tmp_path: Path) -> None:
    host, copy = _renewed_copy(tmp_path)
    before = host.remote().files
    copy.unlink()
    done = verify(host.layout, repair=True)
    (lost,) = (each for each in done.findings if each.kind == "lost_file")
    assert "has an older copy" in lost.message
    assert lost.hint == "bsd archive bring-back here:main/s1"
    assert not copy.exists()
    # What the older copy needs stays in the bucket.
    host.push()
    assert before.keys() <= host.remote().files.keys()
    assert verify_remote(host.caller, full=True).clean


def test_a_damaged_copy_may_be_newer_and_stays(tmp_path: Path) -> None:
    host, copy = _renewed_copy(tmp_path)
    before = host.remote().files
    copy.write_bytes(copy.read_bytes()[:-20])
    damaged = copy.read_bytes()
    verify(host.layout, repair=True)
    assert copy.read_bytes() == damaged
    assert host.push().problems
    assert before.keys() <= host.remote().files.keys()


def test_a_pack_of_a_newer_bsd_is_left_alone(host: MadeHost, monkeypatch: Any) -> None:
    whole = [path.read_bytes() for path in _packs(host)]
    damage = PackDamaged(Path("pack"), "another version of bsd wrote it")
    monkeypatch.setattr(from_bucket, "why_damaged", lambda _: damage)
    found = verify(host.layout, repair=True).findings
    if host.settings.keep_local == "never":  # a thin pack is another file than the whole one
        assert [each for each in found if each.kind == "lost_file"] == []
        assert [path.read_bytes() for path in _packs(host)] == whole


def test_a_trash_that_cannot_be_read_is_no_empty_one(host: MadeHost, tmp_path: Path) -> None:
    host.clock.ahead += 86_400.0
    _trash(host)
    host.layout.trash.rename(tmp_path / "away")
    host.layout.trash.symlink_to(host.layout.root / "not there")
    with suppress(BsdError):
        verify(host.layout, repair=True)
    assert not [path for path in _packs(host) if "main_s2" in str(path)]


def test_without_its_journal_bsd_does_not_know_what_was_forgotten(host: MadeHost) -> None:
    host.clock.ahead += 86_400.0
    _forget(host)
    journal_file(host.layout.root).unlink()
    host.push()
    assert verify(host.layout, repair=True).clean
    assert not [path for path in _packs(host) if "main_s2" in str(path)]


def test_an_excluded_agent_is_left_out_however_long_the_name(tmp_path: Path) -> None:
    host = MadeHost.of(tmp_path)
    name = SessionName("main", "s" + "x" * 195)
    host.add(str(name))
    host.push()
    shutil.rmtree(host.layout.archive)
    layout = replace(host.layout, exclude=("main",))
    for repair in (False, True):
        assert [e for e in verify(layout, repair=repair).findings if e.kind == "lost_file"] == []
    assert not host.layout.archive.exists()


def test_a_disk_that_is_not_there_is_no_loss(host: MadeHost, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    host.layout.archive.rename(elsewhere)
    host.layout.archive.symlink_to(elsewhere)
    elsewhere.rename(tmp_path / "away")
    for repair in (False, True):
        (found,) = (
            each for each in verify(host.layout, repair=repair).findings if each.kind == "lost_file"
        )
        assert (found.where, found.hint) == (
            str(host.layout.archive),
            "mount the disk, or remove the link",
        )
    assert not elsewhere.exists()


def test_nothing_is_written_through_a_link(host: MadeHost, tmp_path: Path) -> None:
    store = host.layout.archive_dir(S1)
    shutil.rmtree(store)
    (tmp_path / "elsewhere").mkdir()
    store.symlink_to(tmp_path / "elsewhere")
    found = verify(host.layout, repair=True).findings
    lost = [each for each in found if each.kind == "lost_file"]
    assert lost
    assert all("symbolic link" in str(each.hint) for each in lost), lost
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_the_bucket_has_not_is_told(host: MadeHost, tmp_path: Path) -> None:
    files = host.remote().files
    shutil.rmtree(host.layout.archive)
    shutil.rmtree(tmp_path / "bucket")
    (tmp_path / "bucket").mkdir()
    done = verify(host.layout, repair=True)
    lost = [each for each in done.findings if each.kind == "lost_file"]
    assert len(lost) == len(files)
    assert all("it is not there" in each.message and each.is_open for each in lost)
    assert {each.hint for each in lost} == {"bsd archive verify --remote"}
    assert not list(host.layout.archive.rglob("*.*"))
