"""An archive that is damaged or cannot be read, or from which somebody deleted who was killed."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from bsd.care import search as care_search
from bsd.care.gone import gone_sessions
from bsd.care.search import search, search_as_it_is
from bsd.care.verify import verify
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout
from bsd.foundation.pruning_fields import PruningConfig
from bsd.session.surgeon import Surgeon
from bsd.store.pack import Pack, PackWriter
from tests.care.test_archive import OFF, age, clean, everything_back, kept, packs
from tests.sessions import LONG, NAME, conversation, write
from tests.verbs import performed


@pytest.fixture
def original(layout: Layout, surgeon: Surgeon) -> bytes:
    """What the session was before four values left it."""
    was = write(layout, conversation(4)).read_bytes()
    surgeon.extract(NAME)
    return was


@pytest.fixture
def archived(layout: Layout, original: bytes) -> bytes:
    """The same; the values are in the archive only."""
    age(layout)
    assert clean(layout).cleaned == 4
    return original


def test_a_line_of_a_damaged_pack_is_packed_again_and_made_one(
    layout: Layout, surgeon: Surgeon, archived: bytes
) -> None:
    """What is doubled, as a pack could not be read, is mended without a loss."""
    (pack,) = packs(layout)
    whole = pack.read_bytes()
    lines = kept(layout)
    store = layout.store_dir(NAME)
    store.mkdir(parents=True)
    for number, one in enumerate(lines):
        (store / f"{number:04d}_text.json").write_bytes(one.line)
    pack.write_bytes(whole[:-10])
    age(layout)
    assert clean(layout).errors == 0
    assert len(packs(layout)) == 2
    assert verify(layout, repair=True).clean
    (left,) = packs(layout)
    with Pack(left) as opened:
        assert {one.line for one in opened} == {one.line for one in lines}
    everything_back(surgeon)
    assert layout.session_file(NAME).read_bytes() == archived


def test_lines_that_a_pack_has_lost_and_others_have_are_mended(
    layout: Layout, archived: bytes
) -> None:
    assert archived
    (pack,) = packs(layout)
    lines = kept(layout)
    with PackWriter(pack.parent) as writer:
        for one in lines:
            writer.add(one.line, one.record)
        other = writer.finish(time.time() + 5, time.time() + 5)
    data = bytearray(pack.read_bytes())
    data[40] ^= 0xFF  # in its only block
    pack.write_bytes(data)
    assert not verify(layout).clean
    found = verify(layout, repair=True)
    assert found.clean, found
    assert packs(layout) == [other]
    assert found.packed == 4


def refusing(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Opening a file whose path has this in it is not permitted."""
    real = os.open

    def refused(path: str | Path, *args: int, **more: int) -> int:
        if wanted in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", refused)


def test_a_pack_that_cannot_be_read_now_doubles_nothing_and_is_named(
    layout: Layout, surgeon: Surgeon, archived: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archived
    (pack,) = packs(layout)
    line = kept(layout)[0].line
    with monkeypatch.context() as patch:
        refusing(patch, pack.name)
        answer = performed.restore(surgeon, NAME, "e1")
        told = str(answer["unavailable"])
        assert str(pack) in told
        assert "Permission denied" in told
        store = layout.store_dir(NAME)
        store.mkdir(parents=True)
        (store / "0001_text.json").write_bytes(line)
        age(layout)
        assert clean(layout).errors == 1
    assert packs(layout) == [pack]
    assert store.exists()
    assert performed.restore(surgeon, NAME, "e2")["restored"]


def test_a_damaged_pack_is_named_to_who_restores(
    layout: Layout, surgeon: Surgeon, archived: bytes
) -> None:
    assert archived
    (pack,) = packs(layout)
    pack.write_bytes(b"x" * 400)
    told = str(performed.restore(surgeon, NAME, "e1")["unavailable"])
    assert str(pack) in told
    assert "is damaged" in told


def test_a_file_in_place_of_the_archive_is_named(layout: Layout, surgeon: Surgeon) -> None:
    write(layout, conversation(4))
    surgeon.extract(NAME)
    layout.archive.write_bytes(b"")
    with pytest.raises(BsdError, match="not a directory"):
        gone_sessions(layout)
    assert [hit.session for hit in search(layout, "seen")] != []  # others are none the worse
    [finding] = [one for one in verify(layout).findings if one.kind == "unreadable"]
    assert finding.where == str(layout.archive)


@pytest.mark.parametrize("place", ["store", "archive"])
def test_words_of_what_was_deleted_go_though_who_deleted_was_killed(
    layout: Layout, original: bytes, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A kill between the files and their words; the next run knows by its mark."""
    assert original
    search(layout, "seen")
    assert search_as_it_is(layout, LONG) != []
    age(layout)
    config = OFF
    if place == "archive":
        clean(layout)
        config = PruningConfig(archive_max_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr(care_search, "forget_stored", _killed)
        with pytest.raises(_Killed):
            clean(layout, config)
    assert layout.letting_go.exists()
    assert search_as_it_is(layout, LONG) != []
    clean(layout, PruningConfig(retention="never"))
    assert not layout.letting_go.exists()
    assert search_as_it_is(layout, LONG) == []


class _Killed(BaseException):
    """Passes everything, as a kill does."""


def _killed(*_: object) -> bool:
    raise _Killed
