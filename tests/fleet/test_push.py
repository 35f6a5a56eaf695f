"""What a push sends, what it leaves, and what it deletes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.other_hosts import verify_remote
from bsd.bucket.directory import DirectoryBucket
from bsd.bucket.errors import BucketUnreachable
from bsd.bucket.sealing import sealing_of
from bsd.bucket.transfers import download
from bsd.core.errors import Busy, Invalid
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet import push as push_module
from bsd.fleet.host import why_new_id
from bsd.fleet.manifest import FileKind, host_directories, make_manifest, manifest_key
from bsd.maintenance.forget import Forget
from bsd.maintenance.targets import ExtractedFiles
from bsd.maintenance.trash import Trash
from bsd.store.archive import SessionArchive
from bsd.store.originals import SessionStore
from bsd.store.pack import PACK, Pack
from bsd.store.snapshots import snapshots_of
from bsd.store.thin_packs import make_thin
from bsd.store.uploads import JournalDamaged, UploadJournal, journal_file, note_deleted
from tests.fleet.hosts import MadeHost

S1 = SessionName("main", "s1")


@pytest.fixture
def host(tmp_path: Path) -> MadeHost:
    return MadeHost.of(tmp_path)


def check(host: MadeHost) -> None:
    """Check that the bucket has the archive as it is here, and no object that nothing uses."""
    remote = host.remote()
    assert remote.broken == ()
    local = host.archived()
    assert remote.files.keys() == local.keys()
    keys = set()
    for path, each in remote.files.items():
        keys |= {part.key for part in each.file.parts}
        with open(os.devnull, "wb") as nowhere:
            download(host.bucket, each.file, sealing_of(host.settings), nowhere)
        assert each.file.size == len(local[path])
    there = {key for key in host.objects() if key.startswith(f"{host.directory.objects}/")}
    assert there == keys


def test_a_first_push_has_all_that_a_session_needs(host: MadeHost) -> None:
    host.add(words="secret")
    store = SessionStore(host.layout, S1)
    done = host.push()
    assert (done.copied, done.files, done.waiting, done.generation) == (1, 3, 0, 1)
    check(host)
    kinds = sorted(each.kind for each in host.remote().files.values())
    assert kinds == [FileKind.COPY, FileKind.PARTS, FileKind.VALUES]
    assert len(store.refs()) == 3  # they are still in the store, too
    ((_, copy),) = host.remote().copies()
    assert (copy.session, copy.gone_at) == (S1, None)
    figures = host.figures()
    assert (figures.files, figures.waiting_files, figures.errors) == (3, 0, 0)
    assert figures.last_success is not None


def test_values_go_up_with_the_copy_that_has_their_placeholders(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add()
    store = host.layout.store_dir(S1)
    now = host.clock.now() - 60.0
    os.utime(store, (now, now))  # the values have just left; the session has rested all the same
    assert host.push().files == 3
    assert FileKind.VALUES in {each.kind for each in host.remote().files.values()}
    # A store that changes again, with no newer copy, rests first.
    monkeypatch.setattr(ExtractedFiles, "pack_early", _refuse)
    os.utime(store, (now + 1.0, now + 1.0))
    assert host.push().files == 0


def test_a_push_without_changes_creates_nothing(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add()
    host.push()
    before = host.objects()
    for name in ("put", "put_new", "delete", "get"):
        monkeypatch.setattr(DirectoryBucket, name, _refuse)
    assert host.push().files == 0
    assert host.objects() == before


def _refuse(*_: object) -> None:
    raise AssertionError("a request was sent")


def test_a_new_result_is_one_more_generation(host: MadeHost) -> None:
    host.add()
    host.push()
    host.add("main/s2")
    assert host.push().generation == 2
    check(host)


def test_a_file_that_was_lost_here_stays_in_the_bucket(host: MadeHost) -> None:
    host.add()
    host.push()
    before = host.remote().files
    shutil.rmtree(host.layout.archive)
    for _ in range(2):
        assert host.push().removed == 0
    assert before.keys() <= host.remote().files.keys()


def test_packs_that_were_merged_here_are_replaced_there(host: MadeHost) -> None:
    for number in range(8):
        host.add(words=f"{number} ")
        host.push()
        host.layout.session_file(S1).unlink()
        shutil.rmtree(host.layout.store_dir(S1))
        shutil.rmtree(host.layout.history_dir(S1))
    archive = SessionArchive(host.layout.archive_dir(S1))
    archive.merge()
    assert len(archive.packs()) == 1
    host.push()
    values = [each for each in host.remote().files.values() if each.kind is FileKind.VALUES]
    assert [each.path for each in values] == [f"main_s1/{archive.packs()[0].name}"]
    check(host)


def test_a_merge_waits_for_the_merged_pack(host: MadeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add()
    host.push()
    (pack,) = SessionArchive(host.layout.archive_dir(S1)).packs()
    note_deleted(host.layout.root, [pack])
    successor = pack.with_name(f"20300101T000000Z-{'0' * 16}{PACK}")
    pack.rename(successor)
    successor.chmod(0o666)  # not bsd's own: it cannot be uploaded
    done = host.push()
    assert done.problems
    assert done.waiting == 1
    assert f"main_s1/{pack.name}" in host.remote().files
    successor.chmod(0o600)
    assert host.push().removed == 1
    check(host)


@pytest.mark.parametrize("what", ["entry", "session"])
def test_what_is_forgotten_leaves_the_bucket(host: MadeHost, what: str) -> None:
    host.add(words="forgettable")
    host.add("main/s2")
    host.push()
    host.clock.ahead += 1
    forget = Forget(host.layout, budget=host.caller.budget)
    if what == "entry":
        forget.entry(S1, "e1")
    else:
        host.layout.session_file(S1).unlink()
        forget.session(S1)
    old = {each.file.hash for each in host.remote().files.values() if each.store == "main_s1"}
    host.push()
    check(host)
    assert not any(key.rpartition("/")[2] in old for key in host.objects()) or what == "entry"
    if what == "session":
        manifests = [key for key in host.objects() if "/manifests/" in key]
        assert len(manifests) == 1  # the former ones named the session


def test_trash_stays_in_the_bucket_until_it_is_emptied(host: MadeHost) -> None:
    host.add()
    host.push()
    before = host.remote().files.keys()
    trash = Trash(host.layout, "14d", budget=host.caller.budget)
    trash.delete(S1)
    assert host.push().removed == 0
    assert host.remote().files.keys() == before
    trash.remove("main/s1")
    assert host.push().removed == len(before)
    assert host.remote().files == {}
    check(host)


def test_an_excluded_session_is_not_uploaded(host: MadeHost) -> None:
    host.add()
    host.add("main/s2")
    host.caller.config.update({"exclude": ["main/s2"]})
    host.push()
    assert {each.store for each in host.remote().files.values()} == {"main_s1"}


def test_only_one_push_runs(host: MadeHost) -> None:
    host.add()

    def again(step: str) -> None:
        if step == "obeyed":
            with pytest.raises(Busy):
                host.push()

    host.push(after_step=again)
    check(host)


def test_without_a_bucket_nothing_is_pushed(host: MadeHost) -> None:
    host.settings = FleetSettings()
    with pytest.raises(Invalid):
        host.push()


# --- manifests ---


def test_every_fiftieth_manifest_is_full(host: MadeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsd.fleet.remote_changes.FULL_EVERY", 3)
    for number in range(4):
        host.add(f"main/s{number}")
        host.push()
        check(host)
    names = [key.rpartition("/")[2] for key in host.objects() if "/manifests/" in key]
    assert names == ["0000000003.json", "0000000004.json"]


def test_a_broken_chain_is_told(host: MadeHost) -> None:
    for number in range(4):
        host.add(f"main/s{number}")
        host.push()
    bucket = Path(str(host.settings.bucket).removeprefix("file://"))
    third = bucket / manifest_key(host.directory, 3)
    data = third.read_bytes()
    third.write_bytes(data[:-3])
    (damaged, unlinked) = host.remote().broken
    assert "0000000003.json is damaged" in damaged
    assert "chain is broken" in unlinked
    third.unlink()
    assert len(host.remote().files) == 9  # those of the third generation are not listed
    planted = make_manifest(host.directory, 3, None, [], [], at=0.0, full=False)
    third.write_bytes(planted)
    assert len(host.remote().broken) == 2


# --- files that were damaged here ---


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def _packs(host: MadeHost) -> dict[Path, bytes]:
    found = (path for path in host.layout.archive.rglob("*") if path.name.endswith(PACK))
    return {path: path.read_bytes() for path in found}


@pytest.mark.parametrize("at", [40, -100], ids=["block", "index"])
def test_a_pack_that_was_damaged_here_does_not_replace_the_whole_one(
    host: MadeHost, at: int
) -> None:
    host.add()
    host.push()
    before, packs = host.remote().files, _packs(host)
    for path in packs:
        _flip(path, at)
    done = host.push()
    assert (done.files, done.waiting, len(done.problems)) == (0, 0, len(packs))
    assert all("verify --repair" in problem for problem in done.problems)
    for path, data in packs.items():
        path.write_bytes(data[:-50])
    assert len(host.push().problems) == len(packs)
    assert host.remote().files == before
    for path, data in packs.items():
        path.write_bytes(data)
    assert host.push().problems == []
    assert host.remote().files == before
    check(host)


@pytest.mark.parametrize("damage", [False, True])
def test_packs_that_only_the_bucket_has_whole_go_with_a_new_name(
    host: MadeHost, *, damage: bool
) -> None:
    host.add()
    host.push()
    before = host.remote().files
    for path in _packs(host):
        if damage:
            _flip(path, 40)
        else:
            make_thin(path)
    host.settings = replace(host.settings, host="renamed")
    done = host.push()
    assert (done.waiting, host.figures().waiting_files) == (0, 0)
    assert bool(done.problems) is damage
    assert {path: each.file.hash for path, each in host.remote().files.items()} == {
        path: each.file.hash for path, each in before.items()
    }


def test_a_pack_that_went_up_damaged_is_replaced_by_the_whole_one(host: MadeHost) -> None:
    host.add()
    push_module.prepare(host.caller, stopping=lambda: False)
    packs = _packs(host)
    for path, data in packs.items():
        path.write_bytes(data[:-50])
    assert host.push().files == len(packs) + 1
    for path, data in packs.items():
        path.write_bytes(data)
    done = host.push()
    assert (done.files, done.problems) == (len(packs), [])
    check(host)


def test_a_copy_that_cannot_be_read_does_not_replace_another(host: MadeHost) -> None:
    host.add()
    host.push()
    before = host.remote().files
    (copy,) = host.layout.archive.rglob("copy.json")
    data = copy.read_bytes()
    copy.write_bytes(data[: len(data) // 2])
    done = host.push()
    assert (done.files, done.waiting, len(done.problems)) == (0, 1, 1)
    assert host.remote().files == before
    copy.write_bytes(data)
    assert host.push().problems == []
    check(host)


# --- lost journals, clones, names ---


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_lost_journal_is_made_from_the_bucket(
    host: MadeHost, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add()
    host.push()
    file = journal_file(host.layout.root)
    if how == "lost":
        file.unlink()
    else:
        file.write_bytes(b"x" * 5000)
        with pytest.raises(JournalDamaged, match="may still be in the bucket"):
            UploadJournal(host.layout)
    monkeypatch.setattr(DirectoryBucket, "put_new", _refuse)  # no upload twice
    assert host.push().generation == 1
    monkeypatch.undo()
    host.add("main/s2")
    assert host.push().generation == 2
    check(host)


def test_a_damaged_journal_still_tells_what_was_forgotten(host: MadeHost, tmp_path: Path) -> None:
    for number in range(3):
        host.add(f"main/s{number}", words="Xylophonium")
    host.push()
    host.layout.session_file(S1).unlink()
    host.clock.ahead += 86_400.0
    Forget(host.layout, everywhere=True, budget=host.caller.budget).session(S1)
    file = journal_file(host.layout.root)
    with closing(sqlite3.connect(file)) as db:
        (size,) = db.execute("PRAGMA page_size").fetchone()
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'files'")
    data = bytearray(file.read_bytes())
    data[(root - 1) * size : root * size] = b"\xff" * size
    file.write_bytes(data)
    with pytest.raises(JournalDamaged) as caught:
        host.push()
    assert "may still be in the bucket" not in caught.value.message
    assert host.push().removed
    assert not any(path.startswith("main_s1/") for path in host.remote().files)
    assert (tmp_path / "bucket" / "tombstones").is_dir()
    check(host)


def test_a_cloned_root_takes_an_id_of_its_own(host: MadeHost, tmp_path: Path) -> None:
    host.add()
    host.push()
    shutil.copytree(host.layout.root, tmp_path / "clone", copy_function=shutil.copy2)
    clone = replace(host, layout=replace(host.layout, root=tmp_path / "clone"))
    host.add("main/s2")
    clone.add("main/s3")
    first = host.directory
    host.push()
    assert clone.push().problems == []
    assert host.directory == first != clone.directory
    assert len(host_directories(host.bucket)) == 2
    for each in (host, clone):
        assert each.push().files == 0
        check(each)
    assert why_new_id(host.layout) is None
    assert "another machine" in str(why_new_id(clone.layout))


def test_two_hosts_of_one_name_do_not_meet(tmp_path: Path) -> None:
    hosts = [MadeHost.of(tmp_path, name, host="same") for name in ("one", "two")]
    for each in hosts:
        each.add(words=each.layout.root.name)
        each.push()
    for each in hosts:
        check(each)
    assert {each.host for each in host_directories(hosts[0].bucket)} == {"same"}


def test_a_renamed_host_begins_anew_and_forgets_at_both_places(host: MadeHost) -> None:
    host.add()
    host.push()
    former = host.remote()
    host.settings = replace(host.settings, host="renamed")
    host.push()
    check(host)
    host.layout.session_file(S1).unlink()
    Forget(host.layout, budget=host.caller.budget).session(S1)
    host.push()
    assert host.remote().files == {}
    objects = [key for key in host.objects() if "/objects/" in key]
    assert objects == [], former


def test_a_bucket_that_was_emptied_is_filled_again(host: MadeHost) -> None:
    host.add()
    host.push()
    shutil.rmtree(str(host.settings.bucket).removeprefix("file://"))
    Path(str(host.settings.bucket).removeprefix("file://")).mkdir()
    host.push()
    check(host)
    assert "has lost manifests" in str(why_new_id(host.layout))


# --- thin packs ---


def test_objects_that_verify_misses_are_uploaded_again(host: MadeHost, tmp_path: Path) -> None:
    host.add(words="secret")
    host.push()
    lost, cut, changed, *_ = sorted((tmp_path / "bucket").rglob("objects/*"))
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    content = changed.read_bytes()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert host.push().files == 0
    (quick,) = verify_remote(host.caller).hosts
    assert (len(quick.problems), quick.again) == (2, 2)
    (full,) = verify_remote(host.caller, full=True).hosts
    assert (len(full.problems), full.again) == (3, 3)
    assert host.push().files == 3
    assert verify_remote(host.caller, full=True).clean
    check(host)


def test_old_packs_become_thin_and_stay_known(host: MadeHost) -> None:
    host.settings = replace(host.settings, keep_local="3h")
    host.add()
    assert host.push().thinned == 0
    host.clock.ahead += 10800
    done = host.push()
    assert done.thinned == 1  # the copy of a session that exists stays whole
    (pack,) = SessionArchive(host.layout.archive_dir(S1)).packs()
    with Pack(pack) as opened:
        assert opened.is_thin
        assert len(list(opened)) == 3  # from the bucket
    again = host.push()
    assert (again.files, again.thinned, again.problems) == (0, 0, [])
    # Neither a lost journal nor another name makes it useless.
    journal_file(host.layout.root).unlink()
    assert host.push().problems == []
    host.settings = replace(host.settings, host="renamed")
    assert host.push().problems == []
    with Pack(pack) as opened:
        assert len(list(opened)) == 3
    values = [each for each in host.remote().files.values() if each.kind is FileKind.VALUES]
    assert values[0].file.size > pack.stat().st_size


def test_a_pack_that_the_bucket_has_lost_stays_whole(host: MadeHost) -> None:
    host.add()
    host.push()
    for key in host.objects():
        if "/objects/" in key:
            host.bucket.delete([key])
    host.settings = replace(host.settings, keep_local="1h")
    host.clock.ahead += 7200
    (pack,) = SessionArchive(host.layout.archive_dir(S1)).packs()
    assert pack.name in host.push().problems[0]
    with Pack(pack) as opened:
        assert not opened.is_thin
    host.settings = replace(host.settings, keep_local="never")
    assert host.push().files == 1  # it is uploaded again


# --- outages ---


def test_an_outage_loses_nothing_and_is_told(
    host: MadeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.fleet.uploading.backoff", lambda _: 0.0)
    for number in range(3):
        host.add(f"main/s{number}")
    left = [4]
    put_new = DirectoryBucket.put_new

    def failing(self: DirectoryBucket, key: str, data: bytes) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise BucketUnreachable("the disk of the bucket is full")
        return put_new(self, key, data)

    monkeypatch.setattr(DirectoryBucket, "put_new", failing)
    for errors in (1, 2):
        with pytest.raises(BucketUnreachable):
            host.push()
        figures = host.figures()
        assert figures.errors == errors
        assert figures.waiting_files > 0
        assert figures.waiting_since is not None
        assert figures.last_error == "the disk of the bucket is full"
    monkeypatch.undo()
    host.push()
    check(host)
    assert host.figures().last_error is None


def test_a_file_that_cannot_be_read_stops_no_other(host: MadeHost) -> None:
    host.add()
    host.add("main/s2")
    push_module.prepare(host.caller, stopping=lambda: False)
    (pack,) = SessionArchive(host.layout.archive_dir(S1)).packs()
    pack.chmod(0o666)
    done = host.push()
    assert len(done.problems) == 1
    assert pack.name in done.problems[0]
    assert done.files == 5
    assert host.figures().last_error == done.problems[0]


def test_clocks_do_not_matter(host: MadeHost) -> None:
    host.add()
    host.push()
    host.clock.ahead -= 400 * 24 * 3600
    host.add("main/s2")
    host.push()
    host.clock.ahead += 800 * 24 * 3600
    (copy,) = snapshots_of(host.layout, S1)
    assert copy.kept_at
    host.push()
    assert host.remote().broken == ()
