"""Files of the archive that were lost or damaged here come back from the bucket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.restore import restore_all
from bsd.core.errors import NotFound
from bsd.core.layout import SessionName
from bsd.maintenance import from_bucket
from bsd.maintenance.forget import Forget
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.store.originals import SessionStore
from bsd.store.pack import PACK
from bsd.store.uploads import journal_file
from tests.fleet.hosts import MadeHost

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


def test_without_a_journal_a_push_reads_the_manifests_first(host: MadeHost) -> None:
    shutil.rmtree(host.layout.archive)
    journal_file(host.layout.root).unlink()
    assert host.push().problems == []
    assert verify(host.layout, repair=True).clean
    restore_all(host.caller, S1)
    assert b"a quagga" in host.layout.session_file(S1).read_bytes()


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


def test_what_is_forgotten_meanwhile_does_not_come_back(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.clock.ahead += 86_400.0
    for name in (S1, S2):
        host.layout.session_file(name).unlink()
    looked_at = from_bucket._why_lost

    def forgets(local: Path, *, whole: bool) -> str | None:
        for name in (S1, S2):
            with suppress(NotFound):
                Forget(host.layout, budget=host.caller.budget).session(name)
        return looked_at(local, whole=whole)

    monkeypatch.setattr(from_bucket, "_why_lost", forgets)
    found = verify(host.layout, repair=True).findings
    assert [each for each in found if each.kind == "lost_file"] == []
    assert _packs(host) == []


def test_a_disk_that_is_not_there_is_no_loss(host: MadeHost, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    host.layout.archive.rename(elsewhere)
    host.layout.archive.symlink_to(elsewhere)
    elsewhere.rename(tmp_path / "away")
    for repair in (False, True):
        (found,) = (
            each for each in verify(host.layout, repair=repair).findings if each.kind == "lost_file"
        )
        assert (found.where, found.hint) == (str(host.layout.archive), "mount its disk")
    assert not elsewhere.exists()


def test_what_the_bucket_has_not_is_told(host: MadeHost, tmp_path: Path) -> None:
    files = host.remote().files
    shutil.rmtree(host.layout.archive)
    shutil.rmtree(tmp_path / "bucket")
    (tmp_path / "bucket").mkdir()
    done = verify(host.layout, repair=True)
    lost = [each for each in done.findings if each.kind == "lost_file"]
    assert len(lost) == len(files)
    assert all("it is not there" in each.message and each.is_open for each in lost)
    assert not list(host.layout.archive.rglob("*.*"))
