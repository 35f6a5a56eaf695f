"""Files in a bucket: pieces, ranges, interrupted uploads; each with and without encryption."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyrage  # type: ignore[import-untyped]
import pytest

from bsd.bucket.directory import DirectoryBucket
from bsd.bucket.errors import NoObject, ObjectDamaged
from bsd.bucket.objects import Bandwidth
from bsd.bucket.remote_file import RemoteFile
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download, read_range, upload

_PIECE = (1 << 20) + 1000  # a limit of a quarter of it


class Counted(DirectoryBucket):
    """Counts requests and their bytes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: list[tuple[str, int]] = []

    def put_new(self, key: str, data: bytes | bytearray) -> bool:
        self.requests.append(("put_new", len(data)))
        return super().put_new(key, data)

    def put(self, key: str, data: bytes | bytearray) -> None:
        self.requests.append(("put", len(data)))
        super().put(key, data)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.requests.append(("get_range", length))
        return super().get_range(key, start, length)


@pytest.fixture
def bucket(tmp_path: Path) -> Counted:
    (tmp_path / "bucket").mkdir()
    return Counted(f"file://{tmp_path}/bucket")


@pytest.fixture(params=["plain", "sealed"])
def sealing(request: pytest.FixtureRequest, tmp_path: Path) -> Sealing:
    if request.param == "plain":
        return Sealing()
    key = pyrage.x25519.Identity.generate()
    (tmp_path / "age.txt").write_text(str(key))
    return Sealing((str(key.to_public()),), tmp_path / "age.txt")


@pytest.fixture
def send(bucket: Counted, root: Path, sealing: Sealing) -> Callable[..., RemoteFile]:
    def send(data: bytes, **more: Any) -> RemoteFile:
        file = root / "file"
        file.write_bytes(data)
        file.chmod(0o600)
        arguments: dict[str, Any] = {"root": root, "path": "store/a.zst", "sealing": sealing}
        return upload(bucket, "host/id/objects", file, **(arguments | more))

    return send


def _everything(bucket: DirectoryBucket, remote: RemoteFile, sealing: Sealing) -> bytes:
    stream = io.BytesIO()
    download(bucket, remote, sealing, stream)
    return stream.getvalue()


Send = Callable[..., RemoteFile]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 * _PIECE, 3 * _PIECE + 5])
def test_a_file_comes_back_whole_and_in_ranges(
    bucket: Counted, send: Send, sealing: Sealing, size: int
) -> None:
    bucket.bandwidth = Bandwidth(_PIECE // 4, sleep=lambda _: None)
    data = os.urandom(size)
    remote = send(data)
    assert remote == RemoteFile.from_json(remote.as_json())
    assert (remote.size, remote.hash) == (size, hashlib.sha256(data).hexdigest())
    assert len(remote.parts) == max(1, -(-size // _PIECE))
    assert all(part.key == f"host/id/objects/{part.hash}" for part in remote.parts)
    assert _everything(bucket, remote, sealing) == data
    points = sorted({0, 1, _PIECE - 1, _PIECE, 1 << 20, (1 << 20) + 1, size // 2, size})
    for start in points:
        for end in points:
            if start <= end <= size:
                found = read_range(bucket, remote, sealing, start, end - start)
                assert found == data[start:end], (start, end)


def test_nothing_of_a_file_is_in_sealed_objects(
    bucket: Counted, send: Send, sealing: Sealing, tmp_path: Path
) -> None:
    send(b"a word that is nobody's business\n" * 1000)
    held = [path.read_bytes() for path in (tmp_path / "bucket").rglob("*") if path.is_file()]
    assert any(b"nobody's business" in each for each in held) != sealing.seals


def test_a_range_costs_one_request_of_what_is_needed(
    bucket: Counted, send: Send, sealing: Sealing
) -> None:
    remote = send(os.urandom(8 << 20))
    bucket.requests.clear()
    read_range(bucket, remote, sealing, (5 << 20) + 7, 1000)
    ((kind, size),) = bucket.requests
    assert kind == "get_range"
    assert size == 1000 if not sealing.seals else size < (1 << 20) + (1 << 16)


def test_an_upload_that_was_interrupted_before_it_was_noted_finds_its_objects(
    bucket: Counted, send: Send, sealing: Sealing, tmp_path: Path
) -> None:
    data = os.urandom(3 << 20)
    first = send(data)
    objects = {each.key: each for each in bucket.list_keys("")}
    assert send(data) == first
    assert {each.key: each for each in bucket.list_keys("")} == objects
    assert not any(kind == "put" for kind, _ in bucket.requests)
    if sealing.seals:  # a host that only uploads
        blind = Sealing(sealing.recipients)
        assert send(data, sealing=blind) == first


def test_a_piece_that_the_caller_knows_is_not_sent(
    bucket: Counted, send: Send, sealing: Sealing
) -> None:
    remote = send(b"content")
    bucket.requests.clear()
    (part,) = remote.parts
    again = send(b"content", known={part.hash: part}.get, path="other/b.zst")
    assert again.parts == remote.parts
    assert bucket.requests == []


@pytest.mark.parametrize("change", ["flip", "cut", "empty"])
def test_an_object_that_is_not_what_its_key_says_is_written_anew(
    bucket: Counted, send: Send, sealing: Sealing, tmp_path: Path, change: str
) -> None:
    data = os.urandom(2000)
    (part,) = send(data).parts
    path = tmp_path / "bucket" / part.key
    there = path.read_bytes()
    torn = {
        "cut": there[:-1],
        "empty": b"",
        "flip": there[:-3] + bytes([there[-3] ^ 1]) + there[-2:],
    }
    path.write_bytes(torn[change])
    remote = send(data)
    assert _everything(bucket, remote, sealing) == data


def test_encryption_that_is_turned_on_later_replaces_objects_that_are_not_noted(
    bucket: Counted, send: Send, sealing: Sealing
) -> None:
    data = os.urandom(2000)
    send(data, sealing=Sealing())
    remote = send(data)
    assert _everything(bucket, remote, sealing) == data
    assert bool(remote.parts[0].sealed) == sealing.seals


def test_damage_in_the_bucket_is_never_handed_out(
    bucket: Counted, send: Send, sealing: Sealing, tmp_path: Path
) -> None:
    remote = send(os.urandom(2000))
    path = tmp_path / "bucket" / remote.parts[0].key
    there = path.read_bytes()
    path.write_bytes(there[:-3] + bytes([there[-3] ^ 1]) + there[-2:])
    for call in (
        lambda: read_range(bucket, remote, sealing, 0, 2000),
        lambda: download(bucket, remote, sealing, io.BytesIO()),
        lambda: read_range(bucket, remote, sealing, 1999, 2),
    ):
        with pytest.raises(ObjectDamaged):
            call()
    path.unlink()
    with pytest.raises(NoObject):
        read_range(bucket, remote, sealing, 0, 10)


def test_many_files_at_once_hold_few_pieces_in_memory(
    bucket: Counted, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from bsd.bucket import transfers

    memory = transfers._Memory(250)
    monkeypatch.setattr(transfers, "_memory", memory)
    left: list[int] = []
    put_new = bucket.put_new

    def watched(key: str, data: bytes | bytearray) -> bool:
        left.append(memory._left)
        return put_new(key, data)

    monkeypatch.setattr(bucket, "put_new", watched)

    def send(number: int) -> RemoteFile:
        file = root / f"file{number}"
        file.write_bytes(bytes([number]) * 100)
        file.chmod(0o600)
        return upload(bucket, "o", file, root=root, path="a/b", sealing=Sealing())

    with ThreadPoolExecutor(8) as pool:
        assert len({each.hash for each in pool.map(send, range(30))}) == 30
    assert min(left) >= 0
    assert memory._left == 250


_FILE: dict[str, Any] = {
    "path": "store/a.zst",
    "size": 10,
    "hash": "0" * 64,
    "parts": [{"key": "h/objects/1", "size": 10, "hash": "1" * 64, "sealed": [300]}],
}


def test_the_form_in_manifests_is_read_strictly() -> None:
    assert RemoteFile.from_json(_FILE).as_json() == _FILE
    part = _FILE["parts"][0]
    wrongs: list[object] = [
        None,
        [],
        {},
        _FILE | {"more": 1},
        _FILE | {"path": "../../etc/passwd"},
        _FILE | {"path": "/etc/passwd"},
        _FILE | {"path": "a\nb"},
        _FILE | {"path": 1},
        _FILE | {"size": 11},
        _FILE | {"size": True},
        _FILE | {"size": -1},
        _FILE | {"hash": "0" * 63},
        _FILE | {"parts": {}},
        _FILE | {"parts": [part | {"key": "a/../../b"}]},
        _FILE | {"parts": [part | {"sealed": [1, 2]}]},
        _FILE | {"parts": [part | {"sealed": [1 << 30]}]},
        _FILE | {"parts": [part | {"hash": "G" * 64}]},
        _FILE | {"size": 1 << 40, "parts": [part | {"size": 1 << 40, "sealed": []}]},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"."):
            RemoteFile.from_json(wrong)
