"""Why an operation on a bucket failed. No message contains a credential or a signature."""

from __future__ import annotations

from bsd.core.errors import Conflict, Forbidden, NotFound, TemporaryFailure, Unavailable


class BucketUnreachable(TemporaryFailure):
    """The service did not answer, or cannot serve now; the same call may succeed later.

    A full disk or an exhausted quota is of this kind.
    """


class BucketRefused(Forbidden):
    """The service does not know the credentials, or they lack a right: the user has to act."""


class NoBucket(Unavailable):
    """The bucket does not exist, or its settings cannot be used."""


class NoObject(NotFound):
    """The bucket has no object with this key."""


class OtherContent(Conflict):
    """An object that may only be created is there with another content; it is left as it is."""


class ObjectDamaged(Unavailable):
    """An object is not as it was uploaded, or what arrived of it is not."""


class CannotDecrypt(Forbidden):
    """The identity file is missing or cannot be used, or the object is encrypted to another key."""
