"""Azure Blob Storage: Azurite, from npm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.other_hosts import bring_back_remote, verify_remote
from bsd.bucket.errors import BucketRefused, NoBucket, NoObject, ObjectDamaged, OtherContent
from bsd.bucket.objects import Bucket, open_bucket
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.settings import SourceSettings
from bsd.fleet.push import push
from bsd.transcripts.agents.programs import layout_of
from tests.fleet.archives import Machine
from tests.maintenance.keeping import DAY, ClaudeHome, extract, keep
from tests.servers.azure import AzureServer, running
from tests.session_files import Clock

pytestmark = [pytest.mark.servers, pytest.mark.soak]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with running(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def url(server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server.make_container(f"c{os.urandom(6).hex()}")


@pytest.fixture
def bucket(url: str) -> Bucket:
    return open_bucket(FleetSettings(bucket=f"{url}/some/prefix"))


def test_objects_are_created_read_listed_and_deleted(bucket: Bucket) -> None:
    assert [each.problem for each in bucket.check_rights()] == [None] * 4
    data = os.urandom(1_000_000)
    assert bucket.put_new("host/objects/a", data)
    assert not bucket.put_new("host/objects/a", data)
    with pytest.raises(OtherContent):
        bucket.put_new("host/objects/a", b"other")
    assert bucket.get_range("host/objects/a", 700_000, 10) == data[700_000:700_010]
    for start in (999_999, 2_000_000):
        with pytest.raises(ObjectDamaged):
            bucket.get_range("host/objects/a", start, 2)
    bucket.put("host/objects/a", b"replaced")
    bucket.put_new("host/b ü~%+", b"")
    assert bucket.get("host/objects/a") == b"replaced"
    assert {each.key: each.size for each in bucket.list_keys("")} == {
        "host/objects/a": 8,
        "host/b ü~%+": 0,
    }
    assert [each.key for each in bucket.list_keys("host/obj")] == []
    assert (bucket.list_directories(""), bucket.list_directories("host")) == (["host"], ["objects"])
    bucket.delete(["host/objects/a", "host/none", "host/b ü~%+"])
    assert list(bucket.list_keys("")) == []
    with pytest.raises(NoObject):
        bucket.get("host/b")
    assert bucket.keeps_versions() is None, "nothing tells of soft deletion"


def test_wrong_settings_are_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = open_bucket(FleetSettings(bucket="az://no-such-container/x"))
    for call in (lambda: nowhere.put_new("a", b"1"), lambda: list(nowhere.list_keys(""))):
        with pytest.raises(NoBucket, match="does not exist"):
            call()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    with pytest.raises(BucketRefused, match="refused"):
        open_bucket(FleetSettings(bucket=url)).put_new("a", b"1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "no base64")
    with pytest.raises(NoBucket, match="cannot be used"):
        open_bucket(FleetSettings(bucket=url)).put_new("a", b"1")


def test_a_lost_host_is_read_by_another(url: str, tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path / "a", 2)
    settings = FleetSettings(bucket=f"{url}/fleet", host="laptop", copy_after="1h")
    lost = Machine(home.layout, settings, clock.now)
    for name in home.names:
        extract(home.layout, name, clock)
    keep(home.layout, clock)
    clock.ahead += DAY
    done = push(lost.context)
    assert (done.waiting, done.problems) == (0, [])
    shutil.rmtree(tmp_path / "a")
    here = Machine(_another(home, tmp_path), replace(settings, host="desk"), clock.now)
    assert verify_remote(here.context, "laptop").clean
    for name in home.names:
        assert bring_back_remote(here.context, "laptop", str(name)).sessions
    source = here.layout.sources[0].path
    for path, (content, _, _) in home.files.items():
        assert (source / path.relative_to(home.source)).read_bytes() == content


def _another(lost: ClaudeHome, tmp_path: Path) -> Layout:
    source = tmp_path / "b" / "home" / lost.source.relative_to(tmp_path / "a" / "home")
    source.mkdir(parents=True)
    (root := tmp_path / "b" / "root").mkdir()
    return layout_of(root, [SourceSettings(kind="claude-code", path=source)])
