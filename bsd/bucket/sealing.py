"""Encryption of what goes into the bucket, with age (`[fleet] encrypt_to`, `identity`).

A piece of a file is sealed in segments of 1 MiB, each an age file of its own, so that a range can
be read without the rest. A host that only uploads has no identity: it needs none to find the
segments of an object again, since an age file of a known content has a known length after its
header.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bsd.bucket.errors import CannotDecrypt, NoBucket, ObjectDamaged
from bsd.core.extras import load_extra
from bsd.core.files import LARGEST_NOTE, read_plain
from bsd.core.fleet_settings import FleetSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

SEGMENT = 1 << 20
# The format of age (age-encryption.org/v1): a header in lines, the last of which begins with `---`,
# a nonce, and chunks of 64 KiB with a tag each.
_HEADER = b"age-encryption.org/v1\n"
_HEADER_END = b"\n--- "
_LONGEST_HEADER = 1 << 16
_NONCE, _CHUNK, _TAG = 16, 64 << 10, 16


class Sealed(NamedTuple):
    """Age files one after the other, and their sizes."""

    data: bytes | bytearray
    sizes: tuple[int, ...]


class Sealing:
    """Encrypts to public keys, and decrypts with the keys of an identity file.

    pyrage is loaded when it is needed. Usable by several threads.

    Args:
        recipients: public keys (`age1…`); empty: nothing is encrypted.
        identity: a file of age-keygen; None: nothing can be decrypted.
    """

    def __init__(self, recipients: tuple[str, ...] = (), identity: Path | None = None) -> None:
        self.recipients = recipients
        self.identity = identity
        self._lock = threading.Lock()
        self._public: Sequence[Any] | None = None
        self._private: Sequence[Any] | None = None

    @property
    def seals(self) -> bool:
        """Whether what is uploaded is encrypted."""
        return bool(self.recipients)

    def seal(self, data: bytes) -> bytes:
        """Return `data` as one age file, or as they are; for manifests and other small objects.

        Raises:
            Unavailable: pyrage is not installed.
            NoBucket: a key of the settings is not a key of age.
        """
        if not self.seals:
            return data
        public = self._recipients()
        pyrage = load_extra("pyrage", "encryption (`encrypt_to`)")
        return bytes(pyrage.encrypt(data, public))

    def seal_segments(self, data: bytes | bytearray | memoryview) -> Sealed:
        """Return a piece of a file as age files of `SEGMENT` bytes each, before encryption."""
        view = memoryview(data)
        sealed, sizes = bytearray(), list[int]()
        for start in range(0, len(view), SEGMENT):
            segment = self.seal(bytes(view[start : start + SEGMENT]))
            sizes.append(len(segment))
            sealed += segment
        return Sealed(sealed, tuple(sizes))

    def open(self, data: bytes, what: str) -> bytes:
        """Return the content of one age file; data that is not encrypted is returned as it is.

        Args:
            what: the object, for the message.

        Raises:
            CannotDecrypt: there is no identity, it cannot be read, or it is not the right one.
            ObjectDamaged: the data were changed.
            Unavailable: pyrage is not installed.
        """
        return self.open_segment(data, what) if data.startswith(_HEADER) else data

    def open_segment(self, data: bytes, what: str) -> bytes:
        """Return the content of one age file; raises as `open`."""
        private = self._identities(what)
        pyrage = load_extra("pyrage", "decryption (`identity`)")
        try:
            return bytes(pyrage.decrypt(data, private))
        except pyrage.DecryptError as error:
            if "No matching keys" in str(error):
                raise CannotDecrypt(
                    f"{what} is encrypted to another key than that of {self.identity}",
                    hint="name the identity file that belongs to `encrypt_to` of the host that "
                    "uploaded it: [fleet] identity",
                ) from None
            raise ObjectDamaged(f"{what} cannot be decrypted: it was changed or cut") from None

    def problem(self) -> str | None:
        """Return what is wrong with the identity file (for `bsd doctor`), or None."""
        if self.identity is None:
            return None
        try:
            self._read(self.identity)
            status = os.stat(self.identity)
        except (CannotDecrypt, OSError) as error:
            return str(error)
        if status.st_uid not in {os.geteuid(), 0}:
            return f"the identity file {self.identity} belongs to another user"
        if stat.S_IMODE(status.st_mode) & 0o077:
            return f"other users may read the identity file {self.identity}"
        return None

    # --- keys ---

    def _recipients(self) -> Sequence[Any]:
        with self._lock:
            if self._public is None:
                pyrage = load_extra("pyrage", "encryption (`encrypt_to`)")
                try:
                    self._public = [
                        pyrage.x25519.Recipient.from_str(each) for each in self.recipients
                    ]
                except pyrage.RecipientError:
                    raise NoBucket(
                        "a key in `encrypt_to` is not a public key of age",
                        hint="age-keygen prints it: age1…",
                    ) from None
            return self._public

    def _identities(self, what: str) -> Sequence[Any]:
        with self._lock:
            if self._private is None:
                if self.identity is None:
                    raise CannotDecrypt(
                        f"{what} is encrypted, and no identity is set",
                        hint="name a file of age-keygen: `identity` in [fleet] of bsd.toml",
                    )
                self._private = self._read(self.identity)
            return self._private

    @staticmethod
    def _read(path: Path) -> Sequence[Any]:
        """Return the keys of an identity file. No message quotes its lines."""
        try:
            text = read_plain(path, LARGEST_NOTE, follow=True).decode()
        except OSError as error:
            gone = error.errno == errno.ENOENT
            why = "does not exist" if gone else f"cannot be read: {error.strerror}"
            raise CannotDecrypt(
                f"the identity file {path} {why}",
                hint="make one: age-keygen -o FILE" if gone else f"chmod 600 {path}",
            ) from None
        except UnicodeDecodeError:
            text = ""
        lines = [line.strip() for line in text.splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        pyrage = load_extra("pyrage", "decryption (`identity`)")
        try:
            found = [pyrage.x25519.Identity.from_str(key) for key in keys]
        except pyrage.IdentityError:
            found = []
        if not found:
            raise CannotDecrypt(
                f"{path} is not an identity file of age",
                hint="it has a line AGE-SECRET-KEY-1…, without a passphrase: age-keygen -o FILE",
            )
        return found


def sealing_of(settings: FleetSettings) -> Sealing:
    """Return the sealing of the settings."""
    return Sealing(settings.encrypt_to, settings.identity)


def segment_sizes(data: bytes | bytearray, size: int) -> tuple[int, ...] | None:
    """Return the sizes of the age files in a sealed piece of `size` bytes; needs no key.

    Returns None if the data are not such a piece: they are cut, for example.
    """
    sizes: list[int] = []
    offset = 0
    for start in range(0, size, SEGMENT):
        content = min(SEGMENT, size - start)
        if not data.startswith(_HEADER, offset):
            return None
        end = data.find(_HEADER_END, offset, offset + _LONGEST_HEADER)
        line_end = data.find(b"\n", end + 1, end + _LONGEST_HEADER) if end >= 0 else -1
        if line_end < 0:
            return None
        length = line_end + 1 - offset + _NONCE + content + _TAG * -(-content // _CHUNK)
        sizes.append(length)
        offset += length
    return tuple(sizes) if offset == len(data) else None
