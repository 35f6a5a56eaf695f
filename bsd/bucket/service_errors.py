"""Errors of obstore in bsd's words, which hold nothing of the answer of the service.

Services repeat keys and signatures in their answers, so only the status and the name of the error
(`<Code>`) are taken from there.
"""

from __future__ import annotations

import re

from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoBucket,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.core.errors import BsdError

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3}),")
_CODE = re.compile(r"<Code>([A-Za-z][A-Za-z0-9.]{2,60})</Code>")
_CREDENTIAL_SERVICES = ("169.254.169.254", "169.254.170.", "metadata.google.internal")
_DAMAGED_ON_THE_WAY = {
    "BadDigest",
    "InvalidDigest",
    "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch",
    "Md5Mismatch",
    "IncompleteBody",
}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity"}
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_CLOCK = "RequestTimeTooSkewed"
_CREDENTIALS = (
    "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE for s3://, "
    "GOOGLE_APPLICATION_CREDENTIALS for gs://, AZURE_STORAGE_ACCOUNT_NAME and a key for az://; "
    "a service of the system needs them in its own environment"
)
_RIGHTS = "allow these credentials to list, read, create and delete objects in this bucket"
_LATER = "again later, as the daemon does by itself; `bsd fleet status` shows what waits"

# A sign in obstore's message, and its meaning.
_BROKEN = (
    ("dns error", "the name of its host cannot be resolved"),
    ("failed to lookup address", "the name of its host cannot be resolved"),
    ("Connection refused", "nothing listens at its address"),
    ("ConnectionRefused", "nothing listens at its address"),
    ("certificate", "its certificate is not valid for this machine"),
    ("imeout", "there was no answer in time"),
    ("TimedOut", "there was no answer in time"),
    ("timed out", "there was no answer in time"),
    ("reset", "the connection broke"),
)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the service's answer; None: there was no answer."""
    found = _STATUS.search(str(error))
    return int(found[1] or found[2]) if found else None


def code_of(error: BaseException) -> str:
    """Return the name that the service gives to the error, or ""."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def translate(error: Exception, doing: str) -> BsdError:
    """Return the error of `errors.py` that an exception of obstore means.

    Args:
        doing: the failed operation, such as "reading s3://bucket/key".
    """
    if isinstance(error, BsdError):
        return error
    status, code = status_of(error), code_of(error)
    answer = f"HTTP {status} {code}".strip() if status else ""
    text = str(error)
    if any(sign in text for sign in _CREDENTIAL_SERVICES):
        return BucketRefused(f"{doing}: no credentials were found", hint=_CREDENTIALS)
    if status is None:
        return _no_answer(error, doing)
    if type(error).__name__ == "AlreadyExistsError":
        return OtherContent(f"{doing}: it is already there")
    if code in _DAMAGED_ON_THE_WAY:
        return BucketUnreachable(f"{doing}: the data were damaged on their way", hint=_LATER)
    if code == _CLOCK:
        return BucketUnreachable(
            f"{doing}: the clock of this machine differs from that of the service",
            hint="correct the clock (timedatectl set-ntp true); " + _LATER,
        )
    if status == 507 or code in _FULL:
        return BucketUnreachable(
            f"{doing}: the bucket is full ({answer})", hint="make room there; " + _LATER
        )
    return _by_status(status, answer, doing, no_bucket=code in _NO_BUCKET)


def unusable(doing: str) -> NoBucket:
    """Return the error for settings or credentials of which no client can be made."""
    return NoBucket(f"{doing}: its settings cannot be used", hint=_CREDENTIALS)


def _by_status(status: int, answer: str, doing: str, *, no_bucket: bool) -> BsdError:
    if no_bucket:
        return NoBucket(f"{doing}: the bucket does not exist", hint="make it, or correct its name")
    match status:
        case 301 | 307 | 308:
            return NoBucket(
                f"{doing}: the bucket is in another region ({answer})",
                hint="name its region: AWS_REGION, or `region` in ~/.aws/config",
            )
        case 401:
            return BucketRefused(f"{doing}: refused ({answer})", hint=_CREDENTIALS)
        case 403:
            hint = _RIGHTS if answer.endswith("AccessDenied") else _CREDENTIALS
            return BucketRefused(f"{doing}: refused ({answer})", hint=hint)
        case 404:
            return NoObject(f"{doing}: it is not there")
        case 416:
            return ObjectDamaged(f"{doing}: it is shorter than it was")
        case 408 | 409 | 425 | 429:
            return BucketUnreachable(f"{doing}: not now ({answer})", hint=_LATER)
        case _ if status >= 500:
            return BucketUnreachable(f"{doing}: the service failed ({answer})", hint=_LATER)
        case _:
            return BucketRefused(
                f"{doing}: the service does not accept the request ({answer})", hint=_CREDENTIALS
            )


def _no_answer(error: Exception, doing: str) -> BsdError:
    if isinstance(error, FileNotFoundError):
        return NoObject(f"{doing}: it is not there")
    name = type(error).__name__
    if name in {"PermissionDeniedError", "UnauthenticatedError"}:
        return BucketRefused(f"{doing}: refused", hint=_CREDENTIALS)
    if name in {"UnknownConfigurationKeyError", "InvalidPathError", "NotSupportedError"}:
        return unusable(doing)
    text = str(error)
    why = next((why for sign, why in _BROKEN if sign in text), "the connection broke")
    return BucketUnreachable(f"{doing}: {why}", hint=_LATER)
