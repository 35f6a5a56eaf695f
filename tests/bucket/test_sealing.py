"""Encryption with age; another program of age can read what bsd writes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import pyrage  # type: ignore[import-untyped]
import pytest

from bsd.bucket.errors import CannotDecrypt, NoBucket, ObjectDamaged
from bsd.bucket.sealing import SEGMENT, Sealing, sealing_of, segment_sizes
from bsd.core.errors import Unavailable
from bsd.core.fleet_settings import FleetSettings

SIZES = [0, 1, 65_535, 65_536, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 70_000]


def _identity(path: Path) -> str:
    """Make an identity file; returns the public key."""
    key = pyrage.x25519.Identity.generate()
    path.write_text(f"# created: today\n# public key: {key.to_public()}\n{key}\n")
    path.chmod(0o600)
    return str(key.to_public())


@pytest.fixture
def sealing(tmp_path: Path) -> Sealing:
    public = _identity(tmp_path / "age.txt")
    settings = FleetSettings(encrypt_to=(public,), identity=tmp_path / "age.txt")
    return sealing_of(settings)


@pytest.mark.parametrize("size", SIZES)
def test_segments_can_be_read_alone_and_found_without_a_key(sealing: Sealing, size: int) -> None:
    data = os.urandom(size)
    sealed = sealing.seal_segments(data)
    assert len(sealed.sizes) == -(-size // SEGMENT)
    assert segment_sizes(sealed.data, size) == sealed.sizes
    content, offset = b"", 0
    for each in sealed.sizes:
        content += sealing.open_segment(bytes(sealed.data[offset : offset + each]), "it")
        offset += each
    assert content == data
    if size:
        assert segment_sizes(sealed.data[:-1], size) is None
        assert segment_sizes(sealed.data, size + 1) is None
        assert segment_sizes(data, size) is None


def test_small_objects_are_one_file_of_age(sealing: Sealing) -> None:
    sealed = sealing.seal(b"manifest")
    assert b"manifest" not in sealed
    assert sealing.open(sealed, "the manifest") == b"manifest"
    assert sealing.open(b"in clear", "the manifest") == b"in clear"
    assert Sealing().seal(b"in clear") == b"in clear"


def test_what_was_changed_is_damaged(sealing: Sealing) -> None:
    sealed = bytearray(sealing.seal(b"manifest"))
    sealed[-3] ^= 1
    with pytest.raises(ObjectDamaged, match="the manifest cannot be decrypted"):
        sealing.open(bytes(sealed), "the manifest")


def test_without_the_right_identity_the_error_says_what_to_do(
    sealing: Sealing, tmp_path: Path
) -> None:
    sealed = sealing.seal(b"manifest")
    with pytest.raises(CannotDecrypt, match="no identity is set"):
        Sealing(sealing.recipients).open(sealed, "it")
    _identity(tmp_path / "other.txt")
    with pytest.raises(CannotDecrypt, match=r"another key than that of .*other\.txt"):
        Sealing(identity=tmp_path / "other.txt").open(sealed, "it")
    with pytest.raises(CannotDecrypt, match=r"missing\.txt does not exist"):
        Sealing(identity=tmp_path / "missing.txt").open(sealed, "it")
    assert "does not exist" in (Sealing(identity=tmp_path / "missing.txt").problem() or "")


def test_no_message_quotes_an_identity_file(tmp_path: Path) -> None:
    for text in ("AGE-SECRET-KEY-1ABC", "", "\xff secret"):
        (tmp_path / "age.txt").write_text(text, encoding="latin-1")
        problem = Sealing(identity=tmp_path / "age.txt").problem()
        assert problem == f"{tmp_path}/age.txt is not an identity file of age"


def test_an_identity_that_others_may_read_is_told(sealing: Sealing, tmp_path: Path) -> None:
    assert sealing.problem() is None
    assert Sealing().problem() is None
    (tmp_path / "age.txt").chmod(0o644)
    assert "other users may read" in (sealing.problem() or "")


def test_a_wrong_public_key_is_an_error_of_the_settings() -> None:
    with pytest.raises(NoBucket, match="encrypt_to"):
        Sealing(("age1qqqqqqqqqqqqqqqqqqqqqqqqqq",)).seal(b"")


def test_without_pyrage_the_error_names_the_extra(
    sealing: Sealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="needs the package pyrage") as caught:
        sealing.seal(b"")
    assert "brainsurgeond[s3]" in str(caught.value.hint)


def test_the_same_content_is_never_sealed_to_the_same_bytes(sealing: Sealing) -> None:
    assert len({hashlib.sha256(sealing.seal(b"x")).digest() for _ in range(3)}) == 3
