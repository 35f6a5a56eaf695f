"""`index.json` of a store: a record for each file, written after the commit (SPEC §3 "Store").

The records describe a store to people and to `verify`; packs of the archive copy them. Look-ups go
through `contents`, which reads the file. It can be rebuilt from the stored lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import orjson

from bsd.core.errors import BsdError, os_problem
from bsd.core.files import LARGEST_LINE, open_plain, read_plain, write_private
from bsd.core.layout import SessionName

INDEX_FILE = "index.json"  # in the directory of a store

_VERSION = 1
_END = b"\n]}\n"


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a stored file. Sizes are bytes."""

    entry_id: str
    index: int  # line number in the session at the time of extraction
    file: str  # file name in the store directory, with its ending
    hash: str
    size: int
    keys: tuple[str, ...]
    sizes_bytes: Mapping[str, int]  # by key: its text in UTF-8 (older records: its JSON)
    extracted_at: str  # ISO 8601, Z

    @property
    def ref(self) -> str:
        return self.file.removesuffix(".json")


def record_of(entry: Any) -> Record | None:
    """Return a record from its JSON; None if the JSON is not a record."""
    try:
        return Record(
            entry_id=str(entry["entry_id"]),
            index=int(entry["index"]),
            file=str(entry["file"]),
            hash=str(entry["hash"]),
            size=int(entry["size"]),
            keys=tuple(intern(str(key)) for key in entry["keys"]),
            sizes_bytes={intern(str(key)): int(n) for key, n in entry["sizes_bytes"].items()},
            extracted_at=intern(str(entry["extracted_at"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def session_named_in(document: Path) -> SessionName | None:
    """Return the session that a document of bsd (an index, notes) names; None if it names none."""
    with suppress(OSError, ValueError, LookupError, TypeError, BsdError):
        name = orjson.loads(read_plain(document, LARGEST_LINE))["session"]
        return SessionName.parse(str(name))
    return None


class Index:
    """The `index.json` of a store. The file is read on demand; a damaged file counts as empty.

    `broken`: why the file on disk could not be used; None if it was sound.
    """

    def __init__(self, path: Path, name: SessionName) -> None:
        self.path = path
        self.name = name
        self.broken: str | None = None
        self._records: dict[str, Record] | None = None

    @property
    def records(self) -> Mapping[str, Record]:
        """The records by file name, in the order in which they were last written or used."""
        if self._records is None:
            self._records = self._read()
        return self._records

    def add(self, records: Iterable[Record]) -> None:
        """Add records of new or reused files; the cost grows with them, not with the index."""
        new = _lines(records)  # as text, since objects take many times the memory
        if not self._append(new):
            if old := self.records:
                added = filter(None, map(record_of, orjson.loads(b"[%b]" % bytes(new))))
                new = _lines(_by_file([*old.values(), *added]).values())
            self._write(new)
        self._records = None

    def replace(self, records: Iterable[Record]) -> None:
        """Write the whole index anew."""
        self._write(_lines(_by_file(records).values()))
        self._records = None

    def _append(self, lines: bytearray) -> bool:
        """Write after the last entry, over the end of the list; return False if that is impossible.

        The file is changed in place: after a crash in the middle it is damaged, and is written
            anew.
        """
        try:
            descriptor = open_plain(self.path, os.O_RDWR)
        except OSError:
            return False
        try:
            end = os.fstat(descriptor).st_size - len(_END)
            if end < 1 or os.pread(descriptor, len(_END) + 1, end - 1) != b"}" + _END:
                return False  # empty, or not written by bsd
            text = b",\n" + lines + _END if lines else _END
            if os.pwrite(descriptor, text, end) == len(text):
                return True
            os.pwrite(descriptor, _END, end)  # restoring the old end needs no disk space
            os.ftruncate(descriptor, end + len(_END))
            return False
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _write(self, lines: bytearray) -> None:
        # The list is changed in place, since the lines of a large session take many megabytes.
        head = orjson.dumps({"version": _VERSION, "session": str(self.name), "entries": []})
        lines[:0] = head.removesuffix(b"]}") + (b"\n" if lines else b"")
        lines += _END
        try:
            write_private(self.path, lines)
        except OSError as error:
            raise os_problem(error, f"writing {self.path}") from error
        self.broken = None

    def _read(self) -> dict[str, Record]:
        try:
            document = orjson.loads(read_plain(self.path, LARGEST_LINE))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            self.broken = str(error)
            return {}
        entries = document.get("entries") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            self.broken = "it holds no list of entries"
            return {}
        records = [record for entry in entries if (record := record_of(entry))]
        if len(records) != len(entries):
            self.broken = "some of its entries are not readable"
        return _by_file(records)


def _lines(records: Iterable[Record]) -> bytearray:
    """Return one line for each record, so that `contents` can read single records."""
    lines = bytearray()
    for record in records:
        if lines:
            lines += b",\n"
        lines += orjson.dumps(record)
    return lines


def _by_file(records: Iterable[Record]) -> dict[str, Record]:
    """Return the last record of each file, in the order of these last records."""
    by_file: dict[str, Record] = {}
    for record in records:
        by_file.pop(record.file, None)
        by_file[record.file] = record
    return by_file
