"""Packs whose blocks are only in the bucket: what is read from where, and what without it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.bucket.directory import DirectoryBucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import upload
from bsd.core.errors import TemporaryFailure, os_problem
from bsd.core.layout import Layout
from bsd.maintenance.forget_lines import forget_packed
from bsd.store.archive import SessionArchive
from bsd.store.pack import OnlyInBucket, Pack, PackDamaged, PackWriter, why_damaged
from bsd.store.thin_packs import make_thin
from bsd.store.upload_places import Upload, current_place
from bsd.store.uploads import BucketPlace, UploadJournal


def _line(number: int) -> bytes:
    text = os.urandom(400_000).hex() if number % 2 else f"text {number}"
    return b'{"id":"e%d","text":"%s"}\n' % (number, text.encode())


class Place:
    """An archive of one session, its bucket, and requests to it."""

    def __init__(self, root: Path, bucket: Path) -> None:
        self.layout = Layout(root)
        self.directory = root / "archive" / "main_session"
        self.bucket_directory = bucket
        self.url = f"file://{bucket}"
        bucket.mkdir()

    def pack(self, lines: list[bytes], at: float) -> Path:
        with PackWriter(self.directory) as writer:
            for number, line in enumerate(lines):
                record = {"file": f"{number:04d}_text.json", "entry_id": f"e{number}"}
                writer.add(line, record)
            return writer.finish(at, at)

    def upload(self, path: Path, sealing: Sealing) -> None:
        root = self.layout.root
        name = str(path.relative_to(root / "archive"))
        bucket = DirectoryBucket(self.url)
        file = upload(bucket, "host/id/objects", path, root=root, path=name, sealing=sealing)
        status = path.stat()
        with UploadJournal(self.layout, create=True) as journal:
            place = current_place(journal, BucketPlace(self.url, sealing.identity, "host/id"))
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            place.note_uploads([Upload(file, stamp)])

    def cut_off(self) -> Callable[[], None]:
        """Take the bucket away; returns a function that brings it back."""
        away = self.bucket_directory.with_name("away")
        self.bucket_directory.rename(away)
        return lambda: void(away.rename(self.bucket_directory))


def void(_: object) -> None:
    pass


@pytest.fixture
def place(root: Path, tmp_path: Path) -> Place:
    return Place(root, tmp_path / "bucket")


@pytest.fixture
def lines() -> list[bytes]:
    return list(map(_line, range(8)))


@pytest.fixture(params=["plain", "sealed"])
def sealing(request: pytest.FixtureRequest, tmp_path: Path) -> Sealing:
    if request.param == "plain":
        return Sealing()
    import pyrage  # type: ignore[import-untyped]

    key = pyrage.x25519.Identity.generate()
    (tmp_path / "age.txt").write_text(str(key))
    return Sealing((str(key.to_public()),), tmp_path / "age.txt")


@pytest.fixture
def thin(place: Place, lines: list[bytes], sealing: Sealing) -> Path:
    path = place.pack(lines, 1_700_000_000)
    place.upload(path, sealing)
    before = path.stat()
    freed = make_thin(path)
    after = path.stat()
    assert before.st_size == after.st_size + freed
    assert after.st_size < 2000
    assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
    return path


def _hash(line: bytes) -> str:
    from bsd.store.originals import digest

    return digest(line)


def test_everything_works_on_a_thin_pack_as_on_any(
    place: Place, thin: Path, lines: list[bytes]
) -> None:
    assert make_thin(thin) == 0
    with Pack(thin) as pack:
        assert pack.is_thin
        assert pack.summary.is_thin
        assert pack.summary.lines == 8
        assert [packed.line for packed in pack] == lines
        assert pack.find(bytes(32)) is None
        pack.check()
    assert why_damaged(thin) is None
    archive = SessionArchive(place.directory)
    assert [archive.line(_hash(line)) for line in lines] == lines
    assert archive.line(_hash(b"other")) is None
    assert archive.trouble is None
    assert len(archive.names()) == len(archive.entries()) == 8


def test_without_the_bucket_what_is_here_is_still_known(
    place: Place, thin: Path, lines: list[bytes]
) -> None:
    bring_back = place.cut_off()
    archive = SessionArchive(place.directory)
    assert archive.line(_hash(lines[0])) is None
    assert archive.unreached
    assert "only in the bucket file://" in archive.unreached.message
    assert "which cannot be read now" in (archive.trouble or "")
    assert archive.line(_hash(b"other")) is None  # surely not there
    assert archive.trouble is None
    assert len(archive.names()) == 8
    assert why_damaged(thin) is None
    with Pack(thin) as pack, pytest.raises(OnlyInBucket):
        pack.check()
    bring_back()
    assert archive.line(_hash(lines[0])) == lines[0]
    assert archive.unreached is None


def test_the_error_is_one_of_the_system_and_one_for_people() -> None:
    error = OnlyInBucket("it is away", hint="later")
    assert isinstance(error, OSError)
    assert os_problem(error, "reading") is error
    assert (error.exit_code, str(error)) == (TemporaryFailure.exit_code, "it is away")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.hint) == (OnlyInBucket, "it is away", "later")


def test_what_is_no_longer_in_the_bucket_is_damage(
    place: Place, thin: Path, lines: list[bytes], sealing: Sealing
) -> None:
    for path in place.bucket_directory.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[30:-30:50] = bytes(len(data[30:-30:50]))
            path.write_bytes(data)
    archive = SessionArchive(place.directory)
    assert archive.line(_hash(lines[0])) is None
    assert "is damaged" in (archive.trouble or "")
    assert archive.unreached is None
    for path in place.bucket_directory.rglob("*"):
        if path.is_file():
            path.unlink()
    assert archive.line(_hash(lines[0])) is None
    assert "does not have its lines any more" in (archive.trouble or "")


def test_without_the_journal_the_error_says_what_to_do(
    place: Place, thin: Path, lines: list[bytes]
) -> None:
    (place.layout.fleet / "uploads.db").unlink()
    archive = SessionArchive(place.directory)
    assert archive.line(_hash(lines[0])) is None
    assert archive.unreached
    assert "archive push" in (archive.unreached.hint or "")


def test_packing_again_trusts_the_index_and_merging_leaves_thin_packs(
    place: Place, thin: Path, lines: list[bytes], tmp_path: Path
) -> None:
    place.cut_off()
    archive = SessionArchive(place.directory)
    file = tmp_path / "0000_text.json"
    file.write_bytes(lines[0])
    (taken,) = archive.take([(file, {"file": "0000_text.json"})], 1_700_000_100)
    assert (taken.files, taken.pack) == ((file,), None)
    small = [
        place.pack([b'{"id":"s%d"}\n' % number], 1_700_000_200 + number) for number in range(9)
    ]
    (merged,) = archive.merge()
    assert not any(path.exists() for path in small if path != merged)
    assert thin in archive.packs()


def test_a_copy_on_this_disk_is_read_first_and_stays(
    place: Place, thin: Path, lines: list[bytes]
) -> None:
    whole = place.pack(lines, 1_700_000_000.0 + 0.0)  # the same second, as after a crash
    assert whole == thin  # the whole pack has replaced the thin one
    make_thin(thin)
    more = place.pack([*lines[:3], b"{}\n"], 1_700_000_000)
    place.cut_off()
    archive = SessionArchive(place.directory)
    assert archive.line(_hash(lines[0])) == lines[0]
    archive.sweep()
    assert set(archive.packs()) == {thin, more}


def test_forgetting_reads_what_stays_from_the_bucket_or_deletes_nothing(
    place: Place, thin: Path, lines: list[bytes]
) -> None:
    root = place.layout.root
    with Pack(thin) as pack:
        gone = {place_.hash for place_ in pack.in_order()[:1]}
    bring_back = place.cut_off()
    with pytest.raises(OnlyInBucket):
        forget_packed(root, place.directory, gone, None, lambda _: None)
    assert SessionArchive(place.directory).packs() == [thin]
    bring_back()
    assert forget_packed(root, place.directory, gone, None, lambda _: None)[0] == 1
    archive = SessionArchive(place.directory)
    assert thin not in archive.packs()
    assert archive.line(_hash(lines[0])) is None
    assert [archive.line(_hash(line)) for line in lines[1:]] == lines[1:]
    # All lines of a thin pack are forgotten without a request.
    (left,) = archive.packs()
    make_thin(left)
    place.cut_off()
    assert forget_packed(root, place.directory, None, None, lambda _: None)[0] == 7
    assert archive.packs() == []


def test_a_damaged_pack_is_not_made_thin(place: Place, lines: list[bytes]) -> None:
    path = place.pack(lines, 1_700_000_000)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    with pytest.raises(PackDamaged):
        make_thin(path)
    assert path.read_bytes() == data
    assert [each.name for each in place.directory.iterdir()] == [path.name]


def test_a_torn_thin_pack_is_damaged(thin: Path) -> None:
    data = thin.read_bytes()
    for wrong in (data[:-1], data[:16] + data[17:], data + b"x", data[:40] + b"x" + data[41:]):
        thin.write_bytes(wrong)
        assert why_damaged(thin)


@pytest.mark.parametrize("step", ["create_private", "write_all", "sync_dir"])
def test_making_thin_under_a_full_disk_leaves_a_pack(
    place: Place, lines: list[bytes], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    from bsd.store import thin_packs

    path = place.pack(lines, 1_700_000_000)
    place.upload(path, Sealing())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(thin_packs, step, full)
        with pytest.raises(OSError, match="No space"):
            make_thin(path)
    assert [each.name for each in place.directory.iterdir()] == [path.name]
    assert SessionArchive(place.directory).line(_hash(lines[5])) == lines[5]
