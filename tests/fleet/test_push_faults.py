"""Pushes to a server of object storage, through faults of network and service."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from bsd.bucket import object_storage
from bsd.bucket.errors import BucketUnreachable
from bsd.core.layout import SessionName
from bsd.fleet.manifest import host_directories
from bsd.store.archive import SessionArchive
from bsd.store.pack import OnlyInBucket, Pack, PackDamaged
from tests.fleet.hosts import MadeHost
from tests.servers.faults import Fault, Proxy
from tests.servers.s3 import S3Server

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("s3")]

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "_FEWEST_SECONDS", 1)
    monkeypatch.setattr(object_storage, "_SILENCE_SECONDS", 1)
    monkeypatch.setitem(object_storage._RETRY, "max_retries", 0)
    monkeypatch.setattr("bsd.fleet.uploading.backoff", lambda _: 0.0)


@pytest.fixture
def name(s3_server: S3Server, s3_proxy: Proxy) -> str:
    assert s3_proxy.url
    name = f"push-{os.getpid()}-{next(_numbers)}"
    s3_server.make_bucket(name)
    return name


def _host(top: Path, bucket: str, name: str = "here") -> MadeHost:
    return MadeHost.of(top, name, bucket=f"s3://{bucket}/prefix", host="here")


def _check(host: MadeHost, server: S3Server, bucket: str) -> None:
    """Check that the bucket has the archive, each object once, and no other object."""
    remote = host.remote()
    assert remote.broken == ()
    assert remote.files.keys() == host.archived().keys()
    own = f"prefix/{host.directory.objects}/"
    keys = {f"prefix/{part.key}" for each in remote.files.values() for part in each.file.parts}
    assert {key for key in server.keys(bucket) if key.startswith(own)} == keys


_FAULTS = [
    Fault("status", status=500, times=None, method="PUT", path="objects"),
    Fault("status", status=503, code="SlowDown", times=None),
    Fault("status", status=507, code="InsufficientStorage", times=None, method="PUT"),
    Fault("hang", times=4, method="PUT"),
    Fault("reset_request", times=6, method="PUT"),
    Fault("corrupt_request", times=6, method="PUT", path="objects"),
    Fault("lost_answer", times=6, method="PUT"),
]


@pytest.mark.parametrize("fault", _FAULTS, ids=lambda fault: f"{fault.kind}-{fault.status}")
def test_nothing_is_lost_or_doubled_by_a_fault(
    fault: Fault, tmp_path: Path, name: str, s3_server: S3Server, s3_proxy: Proxy
) -> None:
    host = _host(tmp_path, name)
    for session in ("main/s1", "main/s2"):
        host.add(session)
    s3_proxy.add(replace(fault))
    for _ in range(2):
        with suppress(BucketUnreachable):  # any other error fails the test
            host.push()
    s3_proxy.clear()
    done = host.push()
    assert (done.waiting, done.problems) == (0, [])
    _check(host, s3_server, name)
    before = len(s3_proxy.seen)
    host.push()
    requests = [each.method for each in s3_proxy.seen[before:]]
    assert "PUT" not in requests
    assert "DELETE" not in requests
    assert len(requests) <= 3


def test_a_value_of_a_thin_pack_costs_one_request(
    tmp_path: Path, name: str, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = _host(tmp_path, name)
    host.settings = replace(host.settings, keep_local="1h")
    host.add(session := "main/s1")
    assert host.push().thinned == 1
    (path,) = SessionArchive(host.layout.archive_dir(SessionName.parse(session))).packs()
    with Pack(path) as pack:
        places = pack.places()
    for fault in (
        Fault("status", status=503, code="SlowDown", times=None),
        Fault("reset_response", times=None),
        Fault("hang", times=None),
        Fault("corrupt_response", times=None),
    ):
        s3_proxy.add(fault)
        with Pack(path) as pack, pytest.raises((OnlyInBucket, PackDamaged)):
            pack.line(places[0])
        s3_proxy.clear()
    monkeypatch.setattr(object_storage, "_SILENCE_SECONDS", 60)
    for place in places:
        with Pack(path) as pack:
            assert sha256(pack.line(place)).digest() == place.hash
    # The library repeats requests that failed; one of those may come only now, with its fault.
    unharmed = [(each.method, bool(each.range)) for each in s3_proxy.seen if not each.fault]
    assert unharmed == [("GET", True)] * len(places)


def test_two_machines_of_one_root_push_at_once(
    tmp_path: Path, name: str, s3_server: S3Server, s3_proxy: Proxy
) -> None:
    """Both have the id of one root, as after a copy of a machine: the second gets an id."""
    one = _host(tmp_path, name, "one")
    one.add("main/s1")
    one.directory  # noqa: B018 - makes the id
    two = _host(tmp_path, name, "two")
    for file in (".brainsurgeon/fleet/host.json", ".brainsurgeon/root-id"):
        (two.layout.root / file).parent.mkdir(parents=True, exist_ok=True)
        (two.layout.root / file).write_bytes((one.layout.root / file).read_bytes())
    two.add("main/s2")
    assert one.directory == two.directory
    # The second creates its manifest while the first is about to create the same.
    s3_proxy.add(Fault("call", method="PUT", path="manifests", call=two.push))
    thread = Thread(target=one.push)
    thread.start()
    thread.join()
    assert one.directory != two.directory
    assert len(host_directories(one.bucket)) == 2
    for host in (one, two):
        host.push()
        _check(host, s3_server, name)
