"""A bucket of a service: S3 and what speaks its language, Google Cloud Storage, Azure; by obstore.

A put is checked twice: the service compares a checksum (S3: SHA-256), and the ETag of its answer is
compared with the MD5 of the data. Where the ETag is not an MD5 (encryption by the service), the
object is read back.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
import structlog
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from bsd.bucket.aws_profile import credential_provider, read_profile
from bsd.bucket.directory import check_each
from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.bucket.objects import LARGEST_OBJECT, Bandwidth, Bucket, ListedObject, RightCheck
from bsd.bucket.service_errors import code_of, status_of, translate, unusable
from bsd.core.errors import BsdError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_log = structlog.stdlib.get_logger(module="bucket")

_CONNECT_SECONDS = 10
_SILENCE_SECONDS = 60  # between two pieces of an answer
_LONGEST_SECONDS = 3600
_FEWEST_SECONDS = 32
_EXPECTED_RATE, _SLOWEST_RATE = 128_000, 8_000  # bytes per second of a request's body
_DELETED_AT_ONCE = 500
_MD5 = re.compile(r"[0-9a-f]{32}")
# Short: callers wait and call again, and show the problem meanwhile.
_RETRY: RetryConfig = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
_USER_AGENT = "bsd"
_Data = bytes | bytearray
_NO_ETAG = "ETag Header missing"


# What obstore raises.
_ERRORS = (BaseError, OSError, ValueError)


class StorageBucket(Bucket):
    """A bucket of a service. Its clients are made when they are needed."""

    def __init__(self, url: str, bandwidth: Bandwidth | None = None) -> None:
        self.url = url
        self.bandwidth = bandwidth or Bandwidth()
        parts = urlsplit(url)
        self._kind, self._name = parts.scheme, parts.netloc
        self._prefix = parts.path.strip("/")
        self._stores: dict[int, ObjectStore] = {}  # by time-out; 0: for reading
        self._lock = threading.Lock()
        self._rate = _EXPECTED_RATE
        self._versions: bool | None = None
        self._credentials_problem: BsdError | None = None
        self._s3 = _s3_settings() if self._kind == "s3" else {}
        if provider := self._s3.get("credential_provider"):
            self._s3["credential_provider"] = self._noting_problems(provider)

    # --- errors ---

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Raise the errors of `errors.py` in place of obstore's."""
        try:
            yield
        except _ERRORS as error:
            raise self._problem(error, doing) from None

    def _problem(self, error: Exception, doing: str) -> BsdError:
        if problem := self._credentials_problem:
            self._credentials_problem = None
            return BucketRefused(f"{doing}: {problem.message}", hint=problem.hint)
        return translate(error, doing)

    def _noting_problems(self, provider: Callable[[], object]) -> Callable[[], object]:
        """Return a provider of credentials whose errors reach the caller as they are."""

        def credentials() -> object:
            try:
                return provider()
            except BsdError as problem:
                self._credentials_problem = problem
                raise

        return credentials

    # --- clients ---

    def _store(self, size: int | None = None) -> ObjectStore:
        """Return the client that reads, or that sends this number of bytes.

        obstore's time-outs belong to a client. One that reads gives up if nothing arrives; one that
        sends has a limit for the whole request.
        """
        seconds = 0
        if size is not None:
            seconds = _FEWEST_SECONDS
            while seconds < min(_LONGEST_SECONDS, _FEWEST_SECONDS + size / self._rate):
                seconds *= 2
        with self._lock:
            if seconds not in self._stores:
                try:
                    self._stores[seconds] = self._make(seconds)
                except _ERRORS:  # no request has been made
                    raise unusable(f"opening {self.url}") from None
            return self._stores[seconds]

    def _make(self, seconds: int) -> ObjectStore:
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=seconds or _LONGEST_SECONDS),
            "user_agent": _USER_AGENT,
        }
        if not seconds:
            options["read_timeout"] = timedelta(seconds=_SILENCE_SECONDS)
        common: dict[str, Any] = {"client_options": options, "retry_config": _RETRY}
        match self._kind:
            case "gs":
                return GCSStore(self._name, **common)
            case "az":
                return AzureStore(container_name=self._name, **common)
            case _:
                options.update(self._s3.get("client_options", {}))
                more = {name: self._s3[name] for name in self._s3 if name != "client_options"}
                return S3Store(self._name, **common, **more)

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix and key else self._prefix or key

    # --- writing ---

    def put_new(self, key: str, data: _Data) -> bool:
        doing = f"creating {self.url}/{key}"
        try:
            etag = self._send(key, data, "create")
        except OtherContent:
            if self._has(key, data, doing):
                return False
            raise OtherContent(f"{doing}: it is there with another content") from None
        self._check_sent(key, data, etag, doing)
        return True

    def put(self, key: str, data: _Data) -> None:
        doing = f"writing {self.url}/{key}"
        self._check_sent(key, data, self._send(key, data, "overwrite"), doing)

    def _send(self, key: str, data: _Data, mode: Any) -> str | None:
        doing = f"{'creating' if mode == 'create' else 'writing'} {self.url}/{key}"
        self.bandwidth.take(len(data))
        store = self._store(len(data))
        try:
            result = obstore.put(store, self._path(key), data, mode=mode, use_multipart=False)
        except _ERRORS as error:
            if self._leaves_out_checksum(error):
                return self._send(key, data, mode)
            if _NO_ETAG in str(error):  # the object is there all the same
                return None
            problem = self._problem(error, doing)
            if isinstance(problem, BucketUnreachable) and status_of(error) is None:
                self._rate = max(_SLOWEST_RATE, self._rate // 2)  # the next attempt has more time
            raise problem from None
        self._note_version(result["version"])
        return result["e_tag"]

    def _leaves_out_checksum(self, error: Exception) -> bool:
        """Whether the service knows no checksums, so that requests from now on have none."""
        unknown = status_of(error) == 501 or code_of(error) == "NotImplemented"
        config = self._s3.get("config", {})
        if not unknown or "checksum_algorithm" not in config:
            return False
        with self._lock:
            del config["checksum_algorithm"]
            self._stores.clear()
        return True

    def _check_sent(self, key: str, data: _Data, etag: str | None, doing: str) -> None:
        """Raise BucketUnreachable, and delete the object, if the service has other bytes."""
        if _is_md5_of(etag, data) or self._has(key, data, doing):
            return
        with suppress(BucketUnreachable, BucketRefused):
            self.delete([key])
        raise BucketUnreachable(f"{doing}: the data were damaged on their way")

    def _has(self, key: str, data: _Data, doing: str) -> bool:
        """Return whether an object has this content; reads it only if its ETag does not tell.

        Raises BucketUnreachable if two readings differ.
        """
        with suppress(NoObject):
            with self._translated(doing):
                meta = obstore.head(self._store(), self._path(key))
            if meta["size"] != len(data):
                return False
            if _is_md5_of(meta["e_tag"], data):
                return True
            wanted, seen = hashlib.sha256(data).digest(), set[bytes]()
            for _ in range(2):  # another content is only believed if it arrives twice
                there = hashlib.sha256(self.get(key, len(data))).digest()
                if there == wanted:
                    return True
                seen.add(there)
            if len(seen) == 1:
                return False
        raise BucketUnreachable(f"{doing}: it cannot be read back")

    # --- reading ---

    def get(self, key: str, most: int = LARGEST_OBJECT) -> bytes:
        doing = f"reading {self.url}/{key}"
        with self._translated(doing):
            answer = obstore.get(self._store(), self._path(key))
            size = answer.meta["size"]
            if size > most:
                raise ObjectDamaged(f"{doing}: it is larger than {most} bytes")
            data = bytes(answer.bytes())
        if len(data) != size:
            raise BucketUnreachable(f"{doing}: the connection broke")
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if not length:
            return b""
        doing = f"reading {self.url}/{key}"
        with self._translated(doing):
            answer = obstore.get_range(self._store(), self._path(key), start=start, length=length)
        data = bytes(answer)
        if len(data) != length:
            raise ObjectDamaged(f"{doing}: it is shorter than it was")
        return data

    def list_keys(self, prefix: str) -> Iterator[ListedObject]:
        skipped = len(self._prefix) + 1 if self._prefix else 0
        doing = f"listing {self.url}/{prefix}"
        with self._translated(doing):
            pages = obstore.list(self._store(), self._path(prefix) or None)
        page: Sequence[ObjectMeta] | None = []
        while page is not None:
            for meta in page:
                yield ListedObject(meta["path"][skipped:], meta["size"], meta["last_modified"])
            with self._translated(doing):
                page = next(pages, None)

    def list_directories(self, prefix: str) -> list[str]:
        with self._translated(f"listing {self.url}/{prefix}"):
            found = obstore.list_with_delimiter(self._store(), self._path(prefix) or None)
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, keys: Iterable[str]) -> None:
        left = iter(keys)
        while some := [self._path(key) for key in islice(left, _DELETED_AT_ONCE)]:
            with self._translated(f"deleting {len(some)} objects of {self.url}"):
                try:
                    obstore.delete(self._store(), some)
                except FileNotFoundError:  # a service that minds may have left the others
                    for path in some:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._store(), path)

    # --- checks ---

    def keeps_versions(self) -> bool | None:
        if self._versions is None:
            key = f"bsd-check-{os.urandom(8).hex()}"
            self.put(key, b"bsd checks whether old versions stay\n")
            self.delete([key])
        if self._kind == "s3":
            return self._versions
        # Google and Azure may keep deleted objects for days, which no answer tells. Nor does the
        # generation that Google names.
        return True if self._versions and self._kind == "az" else None

    def _note_version(self, version: str | None) -> None:
        self._versions = version not in {None, "", "null"}

    def check_rights(self) -> list[RightCheck]:
        return check_each(self)


def _is_md5_of(etag: str | None, data: _Data) -> bool:
    text = (etag or "").strip('"').lower()
    if not _MD5.fullmatch(text):
        return False
    return hashlib.md5(data, usedforsecurity=False).hexdigest() == text


def _s3_settings() -> dict[str, Any]:
    """Return what S3Store needs beside its environment: region, endpoint and keys of a profile."""
    environ = os.environ
    profile = read_profile(environ)
    config: dict[str, Any] = {}
    found: dict[str, Any] = {"config": config}
    if profile.region and not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        config["region"] = profile.region
    if "AWS_CHECKSUM_ALGORITHM" not in environ:
        config["checksum_algorithm"] = "SHA256"
    named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((environ[name] for name in named if environ.get(name)), profile.endpoint)
    if endpoint:
        config["endpoint"] = endpoint.rstrip("/")
        # A connection that everyone can read is only made to an address that says so.
        found["client_options"] = {"allow_http": endpoint.startswith("http://")}
    if not environ.get("AWS_ACCESS_KEY_ID") and not environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        if profile.has_credentials:
            found["credential_provider"] = credential_provider(environ)
        elif environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true" and not any(
            environ.get(f"AWS_CONTAINER_CREDENTIALS_{which}_URI") for which in ("RELATIVE", "FULL")
        ):
            raise BucketRefused(
                "no credentials for s3:// were found",
                hint="aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
    return found
