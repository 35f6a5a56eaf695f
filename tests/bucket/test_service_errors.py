"""What errors of services mean; the answers of other services than moto."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoBucket,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.bucket.service_errors import translate
from bsd.core.errors import BsdError

_TEXT = (
    "Generic S3 error: Error performing PUT http://127.0.0.1/b/k in 5ms - Server returned non-2xx "
    "status code: {status}: <?xml?><Error><Code>{code}</Code><Message>m</Message>"
    "<AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>SIGNATURE</StringToSign></Error>"
)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        ("500 Internal", "InternalError", BucketUnreachable, "HTTP 500 InternalError"),
        ("503 Slow", "SlowDown", BucketUnreachable, "HTTP 503 SlowDown"),
        ("429 Too many", "TooManyRequests", BucketUnreachable, "not now"),
        ("409 Conflict", "ConditionalRequestConflict", BucketUnreachable, "not now"),
        ("507 Full", "XMinioStorageFull", BucketUnreachable, "the bucket is full"),
        ("403 Quota", "QuotaExceeded", BucketUnreachable, "the bucket is full"),
        ("400 Bad", "BadDigest", BucketUnreachable, "damaged on their way"),
        ("403 Skew", "RequestTimeTooSkewed", BucketUnreachable, "the clock of this machine"),
        ("403 No", "AccessDenied", BucketRefused, "refused"),
        ("403 No", "SignatureDoesNotMatch", BucketRefused, "refused"),
        ("403 No", "InvalidAccessKeyId", BucketRefused, "refused"),
        ("400 No", "ExpiredToken", BucketRefused, "does not accept"),
        ("401 No", "AuthenticationFailed", BucketRefused, "refused"),
        ("404 No", "NoSuchBucket", NoBucket, "the bucket does not exist"),
        ("404 No", "NoSuchKey", NoObject, "not there"),
        ("301 Moved", "PermanentRedirect", NoBucket, "another region"),
        ("416 Range", "InvalidRange", ObjectDamaged, "shorter"),
    ],
)
def test_each_status_has_its_meaning_and_no_answer_is_quoted(
    status: str, code: str, kind: type[BsdError], words: str
) -> None:
    error = translate(GenericError(_TEXT.format(status=status, code=code)), "creating s3://b/k")
    assert type(error) is kind
    assert error.message.startswith("creating s3://b/k: ")
    assert words in error.message
    whole = error.message + str(error.hint)
    assert not any(word in whole for word in ("AKIDSECRET", "SIGNATURE", "127.0.0.1"))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (GenericError("error sending request: dns error"), BucketUnreachable, "cannot be resolved"),
        (
            GenericError("tcp connect error: Connection refused"),
            BucketUnreachable,
            "nothing listens",
        ),
        (GenericError("source: TimedOut"), BucketUnreachable, "no answer in time"),
        (GenericError("connection closed before message completed"), BucketUnreachable, "broke"),
        (GenericError("invalid peer certificate: Unknown"), BucketUnreachable, "certificate"),
        (GenericError("PUT http://169.254.169.254/latest/api/token"), BucketRefused, "no credent"),
        (PermissionDeniedError("no"), BucketRefused, "refused"),
        (FileNotFoundError("no"), NoObject, "not there"),
        (
            AlreadyExistsError(_TEXT.format(status="412 No", code="PreconditionFailed")),
            OtherContent,
            "already",
        ),
    ],
)
def test_what_is_no_answer_has_a_meaning_too(
    error: Exception, kind: type[BsdError], words: str
) -> None:
    found = translate(error, "reading s3://b/k")
    assert type(found) is kind
    assert words in found.message
