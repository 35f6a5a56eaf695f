"""Packs whose hashes are right, and whose records or blocks are what no bsd would write."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import orjson

from bsd.core.zstd import zstd
from bsd.store.pack import PackWriter

# As the module of packs describes them.
_STAMP = b"bsdpack\x01"
_HEAD = bytes.fromhex("502A4D1808000000") + _STAMP
_END = struct.Struct("<QQIIQQQ")
_TAIL = _END.size + 32 + len(_STAMP)
GIB = 1 << 30


def written(directory: Path, lines: list[bytes], at: float = 1.7e9) -> Path:
    """A pack as bsd writes it."""
    with PackWriter(directory) as writer:
        for number, line in enumerate(lines):
            said = {"file": f"{number:04d}_tool_result.json", "entry_id": f"e{number}"}
            writer.add(line, said)
        return writer.finish(at, at)


def with_records(path: Path, records: bytes, **end: int) -> Path:
    """Write a pack anew with this frame of records and these numbers in its end; all hashes fit."""
    data = path.read_bytes()
    names = ("index", "records", "lines", "blocks", "content", "oldest", "newest")
    tail = data[-_TAIL:]
    numbers = dict(zip(names, _END.unpack(tail[: _END.size]), strict=True))
    rest = data[numbers["index"] + numbers["records"] : -_TAIL]
    blocks = data[: numbers["index"] - 8]
    numbers |= {"records": len(records), **end}
    body = records + rest + _END.pack(*(numbers[name] for name in names))
    skip = struct.pack("<II", 0x184D2A51, len(body) + 32 + len(_STAMP))
    hash_ = hashlib.sha256(_HEAD + skip + body).digest()
    path.write_bytes(blocks + skip + body + hash_ + _STAMP)
    return path


def packed(text: bytes) -> bytes:
    """One frame."""
    return zstd.compress(text)


def bomb(size: int) -> bytes:
    """A frame of so many bytes in very few, which does not say how many: blocks of one byte each.

    Its format is that of RFC 8878: no size in the head, a window of 1 MiB, blocks of type 1.
    """
    block = (((128 << 10) << 3) | 2).to_bytes(3, "little") + b" "
    last = (((128 << 10) << 3) | 3).to_bytes(3, "little") + b" "
    return bytes.fromhex("28B52FFD0050") + block * (size // (128 << 10) - 1) + last


def _record(**more: object) -> bytes:
    return orjson.dumps({"file": "0000_tool_result.json", "entry_id": "e0", **more}) + b"\n"


# By what is odd: the records of a pack of one line.
RECORDS: dict[str, bytes] = {
    "no JSON": packed(b"{nothing\n"),
    "no text": packed(b"\xff\xfe\n"),
    "a list": packed(b"[1]\n"),
    "deep": packed(b"[" * 100_000 + b"\n"),
    "too few": packed(b""),
    "too many": packed(_record() * 3),
    "not ended": packed(_record()[:-1]),
    "no frame": b"nothing at all",
    "empty": b"",
    "very many bytes": bomb(4 * GIB),
    "an entry that is none": packed(_record(entry_id={"a": [1]})),
    "a file that is none": packed(_record(file=[["x"]])),
    "a time that is none": packed(_record(extracted_at={"at": 1e300})),
    "sizes that are none": packed(_record(sizes_bytes=[1], keys=7, size="x", index={})),
    "nothing in it": packed(b"{}\n"),
}
