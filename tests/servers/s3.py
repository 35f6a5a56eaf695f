"""A server of object storage for tests: moto, in a process of its own on loopback.

A test module that uses the fixtures has `pytestmark = pytest.mark.servers`. The server keeps all in
memory and checks neither keys nor signatures.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.compat.install import find_moto
from tests.compat.needed import needed
from tests.waiting import DEADLINE_SECONDS, wait_for

# Keys as every S3 client wants them; moto takes any.
KEY, SECRET = "AKIDOFTHETESTS", "secret-of-the-tests-0123456789"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server."""

    url: str

    def make_bucket(self, name: str, *, versions: bool = False) -> str:
        """Make a bucket; returns its URL for the settings."""
        self.request("PUT", f"/{name}")
        if versions:
            body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            self.request("PUT", f"/{name}?versioning", body)
        return f"s3://{name}"

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request; its signature is made up."""
        signed = f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"
        headers = {
            "Authorization": f"{signed}, SignedHeaders=host, Signature=0",
            "Content-Type": "application/octet-stream",  # moto would parse a form
        }
        asked = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        with urllib.request.urlopen(asked, timeout=DEADLINE_SECONDS) as answer:
            data: bytes = answer.read()
            return data

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of at most 1000 objects."""
        text = self.request("GET", f"/{bucket}?list-type=2").decode()
        return re.findall(r"<Key>(.*?)</Key>", text)


def environment(url: str) -> dict[str, str]:
    """Return the variables with which clients find the server (or a proxy before it)."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def running(directory: Path) -> Iterator[S3Server]:
    """Run moto on a port that is free; skips the test if it is not installed."""
    program = needed("moto", find_moto)
    log = directory / "moto.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), "-H", "127.0.0.1", "-p", "0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:

        def port() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
            return found[1] if found else None

        yield S3Server(f"http://127.0.0.1:{wait_for(port, 'the port of moto')}")
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
