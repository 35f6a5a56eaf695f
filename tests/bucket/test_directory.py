"""A bucket that is a directory; what holds for each bucket is tested here, too."""

from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path

import pytest

from bsd.bucket import directory
from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoBucket,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.bucket.objects import Bandwidth, Bucket, backoff, open_bucket
from bsd.core.fleet_settings import FleetSettings


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "bucket with ü"
    place.mkdir()
    return place


@pytest.fixture
def bucket(place: Path) -> Bucket:
    return open_bucket(FleetSettings(bucket=f"file://{place}"))


def test_an_object_is_created_once_and_read_whole_and_in_ranges(bucket: Bucket) -> None:
    assert bucket.put_new("host/objects/a", b"0123456789")
    assert not bucket.put_new("host/objects/a", b"0123456789")
    with pytest.raises(OtherContent, match="host/objects/a: it is there with another content"):
        bucket.put_new("host/objects/a", b"other")
    assert bucket.get("host/objects/a") == b"0123456789"
    assert bucket.get_range("host/objects/a", 3, 4) == b"3456"
    assert bucket.get_range("host/objects/a", 3, 0) == b""
    bucket.put("host/objects/a", b"replaced")
    assert bucket.get("host/objects/a") == b"replaced"
    with pytest.raises(ObjectDamaged, match="shorter"):
        bucket.get_range("host/objects/a", 4, 20)
    with pytest.raises(ObjectDamaged, match="larger than 3 bytes"):
        bucket.get("host/objects/a", most=3)


def test_objects_are_listed_and_deleted(bucket: Bucket, place: Path) -> None:
    for key in ("one/b/2", "one/a", "one/b/1", "two/x"):
        bucket.put_new(key, key.encode())
    assert [each.key for each in bucket.list_keys("one")] == ["one/a", "one/b/1", "one/b/2"]
    assert [each.size for each in bucket.list_keys("one/b")] == [7, 7]
    assert [each.key for each in bucket.list_keys("none")] == []
    assert bucket.list_directories("") == ["one", "two"]
    assert bucket.list_directories("one") == ["b"]
    assert bucket.list_directories("none") == []
    bucket.delete(["one/b/1", "none/at/all", "one/b/2"])
    assert [each.key for each in bucket.list_keys("")] == ["one/a", "two/x"]
    for call in (bucket.get, lambda key: bucket.get_range(key, 0, 1)):
        with pytest.raises(NoObject, match="it is not there"):
            call("one/b/1")
    assert bucket.keeps_versions() is False


def test_what_is_written_is_private_under_any_umask(bucket: Bucket, place: Path) -> None:
    before = os.umask(0)
    try:
        bucket.put_new("host/objects/a", b"content")
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.lstat().st_mode) for path in place.rglob("*") if path.exists()
    }
    assert modes == {"host": 0o700, "objects": 0o700, "a": 0o600, ".unfinished": 0o700}


def test_a_file_system_without_links_has_objects_too(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*args: object, **more: object) -> None:
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_links)
    assert bucket.put_new("a", b"content")
    assert not bucket.put_new("a", b"content")
    with pytest.raises(OtherContent):
        bucket.put_new("a", b"other")


def test_what_a_crash_left_goes_after_a_day(bucket: Bucket, place: Path) -> None:
    unfinished = place / ".unfinished"
    unfinished.mkdir()
    old, new = unfinished / "old", unfinished / "new"
    old.write_bytes(b"")
    new.write_bytes(b"")
    os.utime(old, (1, 1))
    bucket.put_new("a", b"content")
    assert list(unfinished.iterdir()) == [new]
    assert [each.key for each in bucket.list_keys("")] == ["a"]
    assert bucket.list_directories("") == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, BucketUnreachable),
        (errno.EACCES, BucketRefused),
        (errno.EIO, BucketUnreachable),
    ],
)
def test_a_disk_that_fails_leaves_nothing(
    bucket: Bucket, place: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def failing(descriptor: int, data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(directory, "write_all", failing)
        with pytest.raises(kind, match=os.strerror(number)):
            bucket.put_new("a", b"content")
    assert list((place / ".unfinished").iterdir()) == []
    assert bucket.put_new("a", b"content")


def test_a_directory_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    bucket = open_bucket(FleetSettings(bucket=f"file://{tmp_path}/share"))
    for call in (
        lambda: bucket.put_new("a", b""),
        lambda: bucket.get("a"),
        lambda: list(bucket.list_keys("")),
        lambda: bucket.list_directories("host"),
        lambda: bucket.delete(["a"]),
        bucket.check_rights,
    ):
        with pytest.raises(NoBucket, match="does not exist"):
            call()
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize("key", ["../a", "a//b", "", "/a", "a/..", ".unfinished/a", "a\0"])
def test_no_key_leads_out_of_the_directory(bucket: Bucket, key: str) -> None:
    with pytest.raises(NoObject):
        bucket.put_new(key, b"content")


def test_links_are_not_followed(bucket: Bucket, place: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (place / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(BucketRefused):
        bucket.get("a")
    assert list(bucket.list_keys("")) == []


def test_rights_are_tried(bucket: Bucket, place: Path) -> None:
    checks = bucket.check_rights()
    assert [(each.operation, each.problem) for each in checks] == [
        ("list", None),
        ("create", None),
        ("read", None),
        ("delete", None),
    ]
    assert list(bucket.list_keys("")) == []


def test_without_a_bucket_the_error_says_where_it_is_set() -> None:
    with pytest.raises(NoBucket, match="no bucket is set"):
        open_bucket(FleetSettings())


def test_waits_grow_to_five_minutes_and_differ() -> None:
    chance = random.Random(1)
    waits = [backoff(attempt, chance) for attempt in range(40)]
    assert all(min(300, 2**n) / 2 <= wait <= min(300, 2**n) for n, wait in enumerate(waits))
    assert len(set(waits)) == 40


def test_uploads_share_a_bandwidth() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        now[0] += seconds

    limit = Bandwidth(1000, clock=lambda: now[0], sleep=sleep)
    for _ in range(3):
        limit.take(500)
    now[0] += 60
    limit.take(10_000)
    limit.take(1)
    assert slept == [0.5, 0.5, 10.0]
    assert limit.piece == 1 << 20
    assert Bandwidth().piece == 64_000_000
    Bandwidth().take(1 << 40)
