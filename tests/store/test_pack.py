"""Packs return content completely or not at all, even if their files are damaged."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core import files
from bsd.core.zstd import zstd
from bsd.store import pack as packs
from bsd.store.pack import Pack, PackDamaged, PackFull, PackWriter
from bsd.store.pack_salvage import salvaged
from tests.refusing import raising

_CHANCE = random.Random(16)


def _line(number: int, size: int) -> bytes:
    words = " ".join(_CHANCE.choices(["one", "two", "three"], k=size // 4))
    return b'{"id":"%d","output":"%b"}\n' % (number, words.encode())


LINES = [_line(number, 20_000) for number in range(120)]
LINES[7] = b"a last line, and no newline"
LINES[60] = _line(60, 3_000_000)  # longer than a block


def write(directory: Path, lines: list[bytes] = LINES) -> Path:
    with PackWriter(directory) as writer:
        for number, line in enumerate(lines):
            writer.add(line, {"entry_id": f"e{number}", "index": number})
        return writer.finish(1_000.0, 2_000.0)


def sha(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


def served(path: Path, line: bytes) -> bytes | None:
    """Return a pack's line for a hash; None if the pack is damaged or has no such line."""
    try:
        with Pack(path) as pack:
            place = pack.find(sha(line))
            return None if place is None else pack.line(place)
    except PackDamaged:
        return None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("packs"))


def test_every_line_comes_back_alone_and_all_in_their_order(path: Path) -> None:
    assert [served(path, line) for line in LINES] == LINES
    with Pack(path) as pack:
        found = list(pack)
        assert pack.find(sha(b"another line")) is None
        assert pack.summary.content == sum(map(len, LINES))
        assert pack.summary.blocks > 4
        assert (pack.summary.oldest, pack.summary.newest) == (1_000.0, 2_000.0)
    assert [one.line for one in found] == LINES
    assert [one.record["entry_id"] for one in found] == [f"e{n}" for n in range(len(LINES))]


def test_its_name_tells_its_time_and_it_is_private_and_alone(path: Path) -> None:
    assert path.name.startswith("19700101T003320Z-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_any_zstd_prints_the_lines(path: Path) -> None:
    ended = [line if line.endswith(b"\n") else line + b"\n\n" for line in LINES]
    assert zstd.decompress(path.read_bytes()) == b"".join(ended)


# Written by bsd with zstandard 0.25: two blocks of several lines, and a line of 3 MB in a
# block of its own between them, and a line that has no newline.
OLD_PACK = Path(__file__).with_name("packs") / "20231114T221500Z-a4eeba2a51e7eca0.zst"
OLD_LINES = "6ba2cfd3cac3345e1ec96e7936855fb4409aa12a39efca63108ef4c1fd1ea77a"  # SHA-256 of all


@pytest.fixture
def old_pack(tmp_path: Path) -> Path:
    path = tmp_path / OLD_PACK.name
    path.write_bytes(OLD_PACK.read_bytes())  # private, as bsd makes its files
    path.chmod(0o600)
    return path


def test_a_pack_of_another_library_is_read(old_pack: Path) -> None:
    with Pack(old_pack) as pack:
        pack.check()
        found = list(pack)
        assert [pack.line(pack.find(sha(one.line)) or pack.places()[0]) for one in found] == [
            one.line for one in found
        ]
        assert (len(found), pack.summary.blocks) == (60, 3)
        assert max(len(one.line) for one in found) > 3_000_000
    assert [one.record["entry_id"] for one in found] == [f"e{number}" for number in range(60)]
    assert sha(b"".join(one.line for one in found)).hex() == OLD_LINES
    assert list(salvaged(old_pack)) == [one.line for one in found]


def test_the_same_lines_make_the_same_pack_as_with_the_other_library(
    old_pack: Path, tmp_path: Path
) -> None:
    with Pack(old_pack) as pack, PackWriter(tmp_path / "again") as writer:
        for one in pack:
            writer.add(one.line, one.record)
        again = writer.finish(1_700_000_000.0, 1_700_000_100.0)
    if zstd.zstd_version_info[:2] == (1, 5):  # another release may compress differently
        assert again.stat().st_size == pytest.approx(old_pack.stat().st_size, rel=0.01)
    with Pack(again) as pack, Pack(old_pack) as old:
        assert list(pack) == list(old)


def test_a_block_with_a_checksum_or_with_more_than_its_header_says(tmp_path: Path) -> None:
    line = b'{"id":"e0","output":"%b"}\n' % (b"word " * 400)
    whole = write(tmp_path, [line])
    data = whole.read_bytes()
    with Pack(whole) as pack:
        size = pack._index - 8 - 16
    options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    frames = {
        "a checksum": (zstd.compress(line, options=options), line),
        "another length": (zstd.compress(line * 2), None),
        "no length": (_without_length(line), None),
        "no frame": (b"nothing at all", None),
    }
    for frame, answer in frames.values():
        path = tmp_path / "other.zst"
        path.write_bytes(_with_block(data, size, frame))
        path.chmod(0o600)
        with Pack(path) as pack:
            place = pack.find(sha(line))
            assert place is not None
            if answer is not None:
                assert pack.line(place) == answer
                continue
            with pytest.raises(PackDamaged):
                pack.line(place)


def _without_length(content: bytes) -> bytes:
    packer = zstd.ZstdCompressor()
    return packer.compress(content) + packer.flush()


def _with_block(data: bytes, size: int, frame: bytes) -> bytes:
    """Replace the only block of a pack, whose size is `size`; all hashes fit."""
    index = 16 + size + 8
    body = bytearray(data[index:])
    numbers = list(packs._END.unpack(body[-packs._TAIL : -packs._TAIL + packs._END.size]))
    numbers[0] = 16 + len(frame) + 8
    body[-packs._TAIL : -packs._TAIL + packs._END.size] = packs._END.pack(*numbers)
    at = len(body) - packs._TAIL - packs._BLOCK_PLACE.size
    _, _, length = packs._BLOCK_PLACE.unpack_from(body, at)
    packs._BLOCK_PLACE.pack_into(body, at, 16, len(frame), length)
    hashed = data[:16] + data[16 + size : index] + bytes(body[:-40])
    return data[:16] + frame + data[16 + size : index] + body[:-40] + sha(hashed) + body[-8:]


def test_a_line_is_in_it_once(tmp_path: Path) -> None:
    with Pack(write(tmp_path, [b"{}", b"[]", b"{}"])) as pack:
        assert [one.line for one in pack] == [b"{}", b"[]"]


def test_one_line_is_a_pack_too(tmp_path: Path) -> None:
    one = write(tmp_path, [b"{}"])
    assert served(one, b"{}") == b"{}"
    assert list(salvaged(one)) == [b"{}"]


def _cuts(path: Path) -> Iterator[int]:
    with Pack(path) as pack:
        size = pack.summary.packed
        ends = [pack._blocks + 16 * number for number in range(pack.summary.blocks)]
        for place in ends:
            offset = int.from_bytes(pack._read(place, 8), "little")
            yield from (offset - 1, offset, offset + 1)
        yield from (pack._index, pack._places, pack._blocks)
    yield from (0, 1, 15, 16, size - 88, size - 1)


def test_a_pack_cut_anywhere_says_so_and_gives_what_it_still_has(
    path: Path, tmp_path: Path
) -> None:
    whole, torn = path.read_bytes(), tmp_path / "torn.zst"
    for cut in _cuts(path):
        torn.write_bytes(whole[:cut])
        with pytest.raises(PackDamaged):
            Pack(torn)
        left = list(salvaged(torn))
        assert left == LINES[: len(left)]
        if cut >= len(whole) - 1:
            assert left == LINES


def test_with_any_byte_of_its_index_changed_nothing_wrong_is_served_and_nothing_lost(
    tmp_path: Path,
) -> None:
    lines = [_line(number, 300) for number in range(9)]
    path = write(tmp_path, lines)
    whole = path.read_bytes()
    with Pack(path) as pack:
        index = [*range(16), *range(pack._index - 8, len(whole))]
    torn = tmp_path / "torn.zst"
    for at in index:
        for bit in (1, 0x80):
            torn.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            assert all(served(torn, line) in {line, None} for line in lines)
            with pytest.raises(PackDamaged), Pack(torn) as pack:
                list(pack)
            if at >= 16:
                assert list(salvaged(torn)) == lines


def test_with_any_byte_of_a_block_changed_nothing_wrong_is_served(tmp_path: Path) -> None:
    lines = [_line(number, 300) for number in range(9)]
    path = write(tmp_path, lines)
    whole = path.read_bytes()
    with Pack(path) as pack:
        end = pack._index - 8
    for at in range(16, end):
        torn = tmp_path / "torn.zst"
        torn.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert all(served(torn, line) in {line, None} for line in lines)
        list(salvaged(torn))


def test_a_pack_of_another_version_is_left_alone(path: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.zst"
    data = bytearray(path.read_bytes())
    data[15] = data[-1] = 2
    newer.write_bytes(data)
    with pytest.raises(PackDamaged, match="another version"):
        Pack(newer)


def test_one_line_costs_reading_one_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    amount = 0
    pread = os.pread

    def counting(fd: int, length: int, offset: int) -> bytes:
        nonlocal amount
        amount += length
        return pread(fd, length, offset)

    monkeypatch.setattr(os, "pread", counting)
    assert served(path, LINES[100]) == LINES[100]
    with Pack(path) as pack:
        assert amount < pack.summary.packed / 3


@pytest.mark.parametrize("call", ["fsync", "rename", "write"])
def test_what_cannot_be_written_leaves_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "main_s1"
    directory.mkdir()
    monkeypatch.setattr(os, call, raising(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write(directory)
    assert list(directory.iterdir()) == []


def test_a_pack_that_does_not_read_as_it_was_written_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotten(descriptor: int, data: bytes) -> None:
        files.write_all(descriptor, data[:400] + b"?" + data[401:])

    monkeypatch.setattr(packs, "write_all", rotten)
    with pytest.raises(PackDamaged):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_too_long_for_a_pack_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "LARGEST_LINE", 10)
    with PackWriter(tmp_path) as writer, pytest.raises(PackFull):
        writer.add(b"x" * 11, {})
    assert list(tmp_path.iterdir()) == []
