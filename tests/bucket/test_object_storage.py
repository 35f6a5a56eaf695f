"""Object storage: moto behind a proxy that makes faults."""

from __future__ import annotations

import io
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.bucket import object_storage
from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoBucket,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.bucket.object_storage import StorageBucket
from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import Sealing
from bsd.bucket.transfers import download, read_range, upload
from bsd.core.fleet_settings import FleetSettings
from tests.servers.faults import Fault, Proxy
from tests.servers.s3 import KEY, SECRET, S3Server, environment

pytestmark = pytest.mark.servers

_numbers = itertools.count()


@pytest.fixture
def name(s3_server: S3Server) -> str:
    name = f"objects-{os.getpid()}-{next(_numbers)}"
    s3_server.make_bucket(name)
    return name


@pytest.fixture
def bucket(name: str, s3_proxy: Proxy) -> Bucket:
    return open_bucket(FleetSettings(bucket=f"s3://{name}/some/prefix"))


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "_FEWEST_SECONDS", 1)
    monkeypatch.setattr(object_storage, "_SILENCE_SECONDS", 1)
    monkeypatch.setitem(object_storage._RETRY, "max_retries", 0)


def test_objects_are_created_read_listed_and_deleted(
    bucket: Bucket, name: str, s3_server: S3Server, s3_proxy: Proxy
) -> None:
    data = os.urandom(100_000)
    assert bucket.put_new("host/objects/a", data)
    assert not bucket.put_new("host/objects/a", data)
    with pytest.raises(OtherContent):
        bucket.put_new("host/objects/a", b"other")
    assert s3_server.keys(name) == ["some/prefix/host/objects/a"]
    assert bucket.get("host/objects/a") == data
    assert bucket.get_range("host/objects/a", 70_000, 10) == data[70_000:70_010]
    assert bucket.get_range("host/objects/a", 5, 0) == b""
    with pytest.raises(ObjectDamaged):
        bucket.get_range("host/objects/a", 99_999, 2)
    with pytest.raises(ObjectDamaged):
        bucket.get_range("host/objects/a", 200_000, 2)
    with pytest.raises(ObjectDamaged):
        bucket.get("host/objects/a", 99_999)
    bucket.put("host/objects/a", b"replaced")
    assert bucket.get("host/objects/a") == b"replaced"
    bucket.put_new("host/b", b"")
    assert bucket.get("host/b") == b""
    listed = {each.key: each.size for each in bucket.list_keys("")}
    assert listed == {"host/objects/a": 8, "host/b": 0}
    assert [each.key for each in bucket.list_keys("host/objects")] == ["host/objects/a"]
    assert [each.key for each in bucket.list_keys("host/obj")] == []
    assert bucket.list_directories("") == ["host"]
    assert bucket.list_directories("host") == ["objects"]
    bucket.delete(["host/objects/a", "host/none", "host/b"])
    assert s3_server.keys(name) == []
    with pytest.raises(NoObject):
        bucket.get("host/b")
    puts = [seen for seen in s3_proxy.seen if seen.method == "PUT"]
    assert puts
    assert bucket.keeps_versions() is False
    assert [each.problem for each in bucket.check_rights()] == [None] * 4
    assert s3_server.keys(name) == []


def test_a_whole_file_goes_up_and_one_block_of_it_comes_back_by_one_request(
    bucket: Bucket, s3_proxy: Proxy, root: Path
) -> None:
    data = os.urandom(3 << 20)
    file = root / "file"
    file.write_bytes(data)
    file.chmod(0o600)
    remote = upload(bucket, "h/objects", file, root=root, path="a/b", sealing=Sealing())
    s3_proxy.clear()
    assert read_range(bucket, remote, Sealing(), 1 << 20, 500) == data[1 << 20 : (1 << 20) + 500]
    (seen,) = s3_proxy.seen
    assert (seen.range, seen.sent) == ("bytes=1048576-1049075", 500)
    stream = io.BytesIO()
    download(bucket, remote, Sealing(), stream)
    assert stream.getvalue() == data


_BAD_ANSWERS = [
    Fault("status", status=500, times=None),
    Fault("status", status=503, code="SlowDown", times=None),
    Fault("status", status=507, code="InsufficientStorage", times=None),
    Fault("status", status=403, code="RequestTimeTooSkewed", times=None),
    Fault("hang", times=None),
    Fault("reset_request", times=None),
    Fault("lost_answer", times=None),
]


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("fault", _BAD_ANSWERS, ids=lambda fault: f"{fault.kind}-{fault.status}")
def test_what_fails_for_now_is_unreachable_and_succeeds_later(
    bucket: Bucket, s3_proxy: Proxy, fault: Fault
) -> None:
    bucket.put_new("there", b"content" * 10)
    s3_proxy.add(fault)
    calls: list[Callable[[], object]] = [
        lambda: bucket.put_new("new", b"new content" * 1000),
        lambda: bucket.get("there"),
        lambda: list(bucket.list_keys("")),
        lambda: bucket.delete(["none"]),
    ]
    if fault.kind == "reset_request":  # only a put has a body of some length
        calls = calls[:1]
    for call in calls:
        with pytest.raises(BucketUnreachable) as caught:
            call()
        assert caught.value.exit_code == 75
        assert bucket.url in caught.value.message
    s3_proxy.clear()
    bucket.put_new("new", b"new content" * 1000)
    assert bucket.get("new") == b"new content" * 1000


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=503, method="PUT"),
        Fault("reset_request", method="PUT"),
        Fault("lost_answer", method="PUT"),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_short_fault_is_not_noticed(bucket: Bucket, s3_proxy: Proxy, fault: Fault) -> None:
    s3_proxy.add(fault)
    data = os.urandom(300_000)
    try:
        bucket.put_new("key", data)
    except BucketUnreachable:
        assert fault.kind != "status"  # a put that may have been carried out is not sent again
        bucket.put_new("key", data)
    assert bucket.get("key") == data


def test_bytes_that_change_on_their_way_up_do_not_stay(bucket: Bucket, s3_proxy: Proxy) -> None:
    s3_proxy.add(Fault("corrupt_request", method="PUT", times=3))
    with pytest.raises(BucketUnreachable, match="damaged on their way"):
        bucket.put_new("key", b"content" * 100)
    with pytest.raises(NoObject):
        bucket.get("key")
    s3_proxy.clear()
    assert bucket.put_new("key", b"content" * 100)


@pytest.mark.parametrize("kind", ["other_etag", "no_etag"])
def test_without_a_usable_etag_the_object_is_read_back(
    bucket: Bucket, s3_proxy: Proxy, kind: str
) -> None:
    data = os.urandom(10_000)
    s3_proxy.add(Fault(kind, times=None))  # type: ignore[arg-type]
    assert bucket.put_new("key", data)
    assert [seen.method for seen in s3_proxy.seen] == ["PUT", "HEAD", "GET"]
    assert not bucket.put_new("key", data)
    with pytest.raises(OtherContent):
        bucket.put_new("key", os.urandom(10_000))


def test_damage_on_the_way_down_is_no_other_content(bucket: Bucket, s3_proxy: Proxy) -> None:
    data = os.urandom(10_000)
    bucket.put_new("key", data)
    s3_proxy.add(
        Fault("other_etag", method="HEAD"), Fault("corrupt_response", method="GET", times=1)
    )
    assert not bucket.put_new("key", data)


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("kind", ["reset_response", "short_response", "corrupt_response", "slow"])
def test_a_file_that_is_read_under_faults_is_whole_or_an_error(
    bucket: Bucket, s3_proxy: Proxy, root: Path, kind: str
) -> None:
    data = os.urandom(100_000)
    file = root / "file"
    file.write_bytes(data)
    file.chmod(0o600)
    remote = upload(bucket, "h/objects", file, root=root, path="a/b", sealing=Sealing())
    s3_proxy.add(Fault(kind, method="GET", times=1))  # type: ignore[arg-type]
    stream = io.BytesIO()
    try:
        download(bucket, remote, Sealing(), stream)
    except (BucketUnreachable, ObjectDamaged):
        assert kind != "slow"
        stream = io.BytesIO()
        download(bucket, remote, Sealing(), stream)
    assert stream.getvalue() == data


def test_a_service_without_checksums_or_a_missing_right_is_handled(
    bucket: Bucket, s3_proxy: Proxy
) -> None:
    s3_proxy.add(Fault("status", status=501, code="NotImplemented", method="PUT"))
    assert bucket.put_new("key", b"content")
    s3_proxy.add(Fault("status", status=403, code="AccessDenied", method="POST", times=None))
    checks = bucket.check_rights()
    assert [(each.operation, each.problem is None) for each in checks] == [
        ("list", True),
        ("create", True),
        ("read", True),
        ("delete", False),
    ]
    assert "allow these credentials" in (checks[-1].hint or "")


def test_a_bucket_that_keeps_old_versions_is_told(s3_server: S3Server, s3_proxy: Proxy) -> None:
    s3_server.make_bucket("with-versions", versions=True)
    assert open_bucket(FleetSettings(bucket="s3://with-versions")).keeps_versions() is True


def test_a_bucket_that_does_not_exist(s3_proxy: Proxy) -> None:
    bucket = open_bucket(FleetSettings(bucket="s3://no-such-bucket"))
    for call in (
        lambda: bucket.put_new("a", b""),
        lambda: bucket.get("a"),
        lambda: list(bucket.list_keys("")),
        bucket.check_rights,
    ):
        with pytest.raises(NoBucket, match="does not exist"):
            call()


def _echo() -> Fault:
    text = (
        f"<Error><Code>SignatureDoesNotMatch</Code><Message>{SECRET}</Message>"
        f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>{SECRET}</StringToSign></Error>"
    )
    return Fault("status", status=403, body=text.encode(), times=None)


def test_no_credential_is_in_a_message_or_a_log(
    bucket: Bucket, s3_proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    s3_proxy.add(_echo())
    said = [repr(bucket), str(vars(bucket).get("url"))]
    calls: list[Callable[[], object]] = [
        lambda: bucket.put_new("a", b"content"),
        lambda: bucket.get("a"),
        lambda: list(bucket.list_keys("")),
        lambda: bucket.delete(["a"]),
    ]
    for call in calls:
        with pytest.raises(BucketRefused) as caught:
            call()
        chain: BaseException | None = caught.value
        said.append(str(caught.value.hint))
        while chain is not None:
            said.append(str(chain))
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    said += [str(each) for each in bucket.check_rights()]
    said += capfd.readouterr()
    assert not any(KEY in text or SECRET in text for text in said)


def test_credentials_of_a_profile_are_used(
    name: str,
    s3_server: S3Server,
    s3_proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    clean_environment: Path,
) -> None:
    for variable in environment(""):
        monkeypatch.delenv(variable)
    (clean_environment / ".aws").mkdir()
    (clean_environment / ".aws" / "config").write_text(
        f"[profile fleet]\nendpoint_url = {s3_proxy.url}\nregion = eu-west-1\n"
        f"aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        "[profile sso]\nsso_session = company\nendpoint_url = https://localhost:1\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "fleet")
    bucket = open_bucket(FleetSettings(bucket=f"s3://{name}"))
    assert bucket.put_new("key", b"content")
    assert s3_server.keys(name) == ["key"]
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(BucketRefused, match="which bsd cannot read"):
        open_bucket(FleetSettings(bucket=f"s3://{name}")).get("key")
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BucketRefused, match="no credentials"):
        open_bucket(FleetSettings(bucket=f"s3://{name}"))


def test_an_address_where_nothing_listens(
    name: str, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setitem(object_storage._RETRY, "max_retries", 0)
    with pytest.raises(BucketUnreachable, match="nothing listens"):
        open_bucket(FleetSettings(bucket=f"s3://{name}")).get("key")
    # An address with TLS is never asked in clear.
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_proxy.url.replace("http:", "https:"))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(BucketUnreachable):
        open_bucket(FleetSettings(bucket=f"s3://{name}")).get("key")
    assert s3_proxy.seen == []


def test_two_that_create_one_object_at_once(bucket: Bucket, name: str) -> None:
    other = StorageBucket(bucket.url)
    done: list[object] = []
    barrier = threading.Barrier(2)

    def create(bucket: Bucket, data: bytes) -> None:
        barrier.wait()
        try:
            done.append(bucket.put_new("key", data))
        except OtherContent as error:
            done.append(type(error))

    for data in ((b"one", b"two"), (b"same", b"same")):
        done.clear()
        bucket.delete(["key"])
        threads = [
            threading.Thread(target=create, args=arguments)
            for arguments in zip((bucket, other), data, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(str, done)) == sorted(
            map(str, (True, OtherContent if data[0] == b"one" else False))
        )
