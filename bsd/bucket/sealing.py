"""Encryption of what goes into the bucket, with age (`[fleet] encrypt_to`, `identity`).

A piece of a file is sealed in segments of 1 MiB, each an age file of its own, so that a range can
be read without the rest. Names of files are in the manifests only, which are sealed too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bsd.core.fleet_settings import FleetSettings

SEGMENT = 1 << 20


class Sealed(NamedTuple):
    """Age files one after the other, and their sizes; without sizes, the data as they were."""

    data: bytes | bytearray
    sizes: tuple[int, ...]


class Sealing:
    """Encrypts to public keys, and decrypts with the keys of an identity file.

    Args:
        recipients: public keys (`age1…`); empty: nothing is encrypted.
        identity: a file of age-keygen; None: nothing can be decrypted.
    """

    def __init__(self, recipients: tuple[str, ...] = (), identity: Path | None = None) -> None:
        self.recipients = recipients
        self.identity = identity

    @property
    def seals(self) -> bool:
        """Whether what is uploaded is encrypted."""
        return bool(self.recipients)

    def seal(self, data: bytes) -> bytes:
        """Return `data` as one age file, or as it is; for manifests and other small objects."""
        raise NotImplementedError

    def open(self, data: bytes, what: str) -> bytes:
        """Return the content of one age file; data that is not encrypted is returned as it is.

        Args:
            what: the object, for the message.

        Raises:
            CannotDecrypt: there is no identity, it cannot be read, or it is not the right one.
            ObjectDamaged: the data were changed.
        """
        raise NotImplementedError

    def problem(self) -> str | None:
        """Return what is wrong with the identity file (for `bsd doctor`), or None."""
        raise NotImplementedError


def sealing_of(settings: FleetSettings) -> Sealing:
    """Return the sealing of the settings; pyrage is loaded when it is needed."""
    return Sealing(settings.encrypt_to, settings.identity)
