from __future__ import annotations

import urllib.error

import pytest

from tests.servers.faults import Fault, Proxy
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.servers


def test_a_bucket_holds_objects(s3_server: S3Server) -> None:
    s3_server.make_bucket("first-bucket")
    s3_server.request("PUT", "/first-bucket/a/b", b"content")
    assert s3_server.keys("first-bucket") == ["a/b"]
    assert s3_server.request("GET", "/first-bucket/a/b") == b"content"


def test_the_proxy_makes_faults_and_lets_the_next_request_through(
    s3_server: S3Server, s3_proxy: Proxy
) -> None:
    s3_server.make_bucket("with-faults")
    through = S3Server(s3_proxy.url)
    s3_proxy.add(Fault("status", status=503, method="PUT"))
    with pytest.raises(urllib.error.HTTPError, match="503"):
        through.request("PUT", "/with-faults/key", b"content")
    assert s3_server.keys("with-faults") == []
    s3_proxy.add(Fault("lost_answer"))
    with pytest.raises(OSError, match=r"closed|reset"):
        through.request("PUT", "/with-faults/key", b"content")
    assert s3_server.keys("with-faults") == ["key"]
    s3_proxy.add(Fault("corrupt_response"), Fault("reset_response"))
    assert through.request("GET", "/with-faults/key") != b"content"
    with pytest.raises(OSError, match=r"reset|aborted"):
        through.request("GET", "/with-faults/key")
    assert through.request("GET", "/with-faults/key") == b"content"
    assert [seen.status for seen in s3_proxy.seen] == [503, 0, 200, 0, 200]
